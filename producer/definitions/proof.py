"""Proves that the catalog, as it is now, shows the active definition at a position of the log.

The order matters. First, what the log has before the position becomes visible in the catalog. Then the
catalog is read, then the log's end is requested, all on one connection to one server. Then the log is
scanned up to that end. If it has no statement on the table in between, the reading is proven. A
statement that is in the index already refutes it before anything is read.

A log may be ahead of the catalog (MySQL). A statement is in the log, and sent to replicas, before its
commit makes it visible: for a moment on most servers, for seconds on one that waits for a replica's
answer (semi-synchronous replication). The catalog would still show the table before the statement
(`_await_log` and `_await_transaction` wait for that). MariaDB answers queries about a table only when no
statement on it is running, and its statements are in the log by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import pymysql

from producer.definitions.index import StatementIndex, TableName
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition, UnprovenDefinition
from producer.definitions.scan import StatementScan, derive_file_names
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.catalog import Catalog
from producer.sources.converted import may_be_converted
from producer.sources.source_session import SourceSession, connect_settings, source_errors
from producer.sources.survey import ExaminedTable
from producer.statements.conversions import DoubtedValues
from schemas.config.model import SourceConfig
from schemas.values.mysql import quote_name
from schemas.wire.position import LogPoint, parse_binlog_file_number

EffectScope = Literal[
    "nothing", "by policy", "the table", "what it may reach", "the source", "the start", "a warning"
]


class DocumentedEffect(NamedTuple):
    """A row of the page.

    `what`: a statement, setting or content of the log. `stops`: the smallest scope that it stops ("by
    policy": depends on a pipeline's `schema_changes`). `then`: what follows.
    """

    what: str
    stops: EffectScope
    then: str


_PATIENCE = 30  # seconds
_POLL = 0.05
_INVISIBLE_TABLE_ERRORS = frozenset({1146, 1049, 1142})  # no such table, no such database, may not read it


def _await_transaction(session: SourceSession, gtid: str | None, names: Collection[TableName]) -> None:
    """Return once the changes of transaction `gtid` to `names` are visible.

    `gtid` None: the transaction has no GTID.

    Raises TransientSourceError after half a minute, and pymysql errors.
    """
    if not session.flavour.runs_ahead:
        return
    if gtid is None:
        _await_statements(session, names)
        return
    row = session.run_query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s) AS late", (gtid, _PATIENCE))[0]
    if row["late"]:
        raise TransientSourceError(
            f"transaction {gtid} is in the source's log, but not visible after {_PATIENCE} s"
        )


def _await_statements(session: SourceSession, names: Collection[TableName]) -> None:
    """Open each table: a statement that changes it blocks this until it is visible."""
    session.run_query(f"SET SESSION lock_wait_timeout = {_PATIENCE}")
    for db, table in names:
        try:
            session.run_query(f"SELECT 1 FROM {quote_name(db)}.{quote_name(table)} LIMIT 0")
        except pymysql.MySQLError as error:
            if error.args[0] not in _INVISIBLE_TABLE_ERRORS:
                raise


def _await_log(
    catalog: Catalog,
    source: SourceConfig,
    point: LogPoint,
    names: Collection[TableName],
    beat: Callable[[], None],
) -> None:
    """Return once everything in the log before `point` is visible, at least the changes to `names`.

    Raises TransientSourceError, SourceRefusedError, and pymysql errors.
    """
    if not catalog.session.flavour.runs_ahead or not names:
        return
    if catalog.server.read_variables().get("gtid_mode") != "ON":
        _await_statements(catalog.session, names)
        return
    visibility = catalog.session.flavour.visibility(connect_settings(source))
    deadline = time.monotonic() + _PATIENCE
    while not visibility.is_start_visible(catalog.session.connection, point):
        beat()
        if time.monotonic() > deadline:
            raise TransientSourceError(
                f"transactions in the source's log are not visible after {_PATIENCE} s"
            )
        time.sleep(_POLL)


T = TypeVar("T")


@dataclass(slots=True)
class DefinitionReader:
    """Proves the definitions of one source.

    `beat`: called repeatedly while the log is scanned; may raise.
    """

    source: SourceConfig
    catalog: Callable[[], Catalog]
    scan: StatementScan
    beat: Callable[[], None] = lambda: None

    def prove_definition(self, place: DefinitionPlace, name: TableName) -> Proof:
        """Return the proof for one table.

        Raises TransientSourceError, SourceRefusedError, and the errors of `beat`.
        """
        return self.prove_definitions(place, [name])[name]

    def prove_definitions(
        self, place: DefinitionPlace, names: Collection[TableName]
    ) -> dict[TableName, Proof]:
        """Return the proof for each table, with one reading of the catalog.

        Raises like `prove_definition`.
        """
        index = self._get_index()
        proofs: dict[TableName, Proof] = dict(yield_refuted_tables(index, place.point, names))
        asked = [name for name in names if name not in proofs]
        if not asked:
            return proofs
        found, until = self.read_catalog(place, asked, lambda catalog: catalog.tables.examine_tables(asked))
        return proofs | judge_definitions(index, place.point, until, found)

    def find_partitioning(self, place: DefinitionPlace, name: TableName) -> str | None:
        """Return a table's partitioning method at `place` (see TableCatalog.find_partitioning).

        None: it is not proven.

        Raises like `prove_definition`.
        """
        found, until = self.read_catalog(
            place, [name], lambda catalog: catalog.tables.find_partitioning(name)
        )
        return (
            found
            if self.scan.index.find_last_statement(name, place.point, until, unchanged=True) is None
            else None
        )

    def may_have_converted(self, place: DefinitionPlace, name: TableName, doubt: DoubtedValues) -> bool:
        """Return whether the statement at `place` may have changed values of rows as `doubt` describes.

        Raises like `prove_definition`.
        """
        return self.read_catalog(
            place, [name], lambda catalog: may_be_converted(catalog.session, name, doubt)
        )[0]

    def read_catalog(
        self, place: DefinitionPlace, names: Collection[TableName], what: Callable[[Catalog], T]
    ) -> tuple[T, LogPoint]:
        """Return a reading of the catalog for `place`, of at least `names`, and the log's end after it.

        The index then has every statement from the place up to that end. Raises like `prove_definition`.
        """
        with source_errors():
            catalog = self.catalog()
            server = catalog.server.identify_server()
            self.scan.select_server(server)
            if place.beginning:
                _await_log(catalog, self.source, place.point, names, self.beat)
            else:
                _await_transaction(catalog.session, place.gtid, names)
            found = what(catalog)
            end = catalog.server.log_end()
            if catalog.server.identify_server() != server:
                raise TransientSourceError(
                    "the source's address led to a different server before and after its catalog was read"
                )
        if end is None:
            raise SourceRefusedError("the source has no binary log", "set log_bin and restart it")
        until = (parse_binlog_file_number(end[0]), end[1])
        self.scan.cover_range(place.point, until, derive_file_names(place.file), server.server_id, self.beat)
        return found, until

    def _get_index(self) -> StatementIndex:
        """Return the index of the server that answers now."""
        with source_errors():
            self.scan.select_server(self.catalog().server.identify_server())
        return self.scan.index


def yield_refuted_tables(
    index: StatementIndex, at: LogPoint, names: Iterable[TableName]
) -> Iterator[tuple[TableName, UnprovenDefinition]]:
    """Yield the tables with a known statement after `at`. Pure."""
    for name in names:
        if (last := index.find_last_statement(name, at)) is not None:
            yield name, UnprovenDefinition(last)


def judge_definitions(
    index: StatementIndex, at: LogPoint, end: LogPoint, found: Mapping[TableName, ExaminedTable]
) -> dict[TableName, Proof]:
    """Return what a reading of the catalog proves for `at`. Pure.

    `end`: the log's end, requested after the reading. `index` is complete from `at` up to there.
    """
    proofs: dict[TableName, Proof] = {}
    for name, surveyed in found.items():
        last = index.find_last_statement(name, at, end)
        proofs[name] = (
            ProvenDefinition(surveyed.table, surveyed.problem) if last is None else UnprovenDefinition(last)
        )
    return proofs


EFFECTS: tuple[DocumentedEffect, ...] = (
    DocumentedEffect("one statement on a captured table that capture has not read yet", "nothing",
     "proven at the statement, and followed from there"),
    DocumentedEffect("two of them that may change the definition", "the table",
     "cause `definition`, at the first: the definition between the two cannot be known"),
    DocumentedEffect("a table that is created, filled and altered before capture has read that", "nothing",
     "capture of the table waits, and begins with a snapshot after the last statement"),
    DocumentedEffect("the same with `snapshot: never`", "the table",
     "cause `definition`: nothing would deliver the rows that were skipped"),
    DocumentedEffect("a statement with a text that does not show which tables it changes", "nothing",
     "counts as one on every table"),
    DocumentedEffect("START ALTER and ROLLBACK ALTER (MariaDB, binlog_alter_two_phase)", "nothing",
     "the definition changes at COMMIT ALTER"),
    DocumentedEffect("names, signs, character sets, labels, nullability or key in the log "
    "that contradict the definition", "the table", "cause `definition`, before the row"),
    DocumentedEffect("metadata of a captured table that cannot be parsed", "the table",
     "cause `value`, before the row"),
)  # fmt: skip
