"""A session with a target: its progress store and its tables over one connection, common to all dialects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import structlog

from consumer.errors import RowTooLargeError, TableTooLargeError, TransientError
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    TargetTable,
    UnitState,
    format_entry_key,
)
from consumer.ordering.row_sizes import name_longest_columns
from consumer.targets.alterations import AlterTable, DropTable, apply_alterations
from consumer.targets.bookkeeping import UNITS_A_STATEMENT, Bookkeeping, parse_units_by_topic
from consumer.targets.checks.rights import MissingRight, RequiredRights, TablePlace
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.dialect_components import (
    DialectComponents,
    Link,
    LockHolders,
    NetChangeApplier,
    TargetCatalog,
)
from consumer.targets.progress import SqlProgressStore, SqlProgressWriter, run_create
from consumer.targets.sql import Syntax, join_conditions, render_keys_in
from consumer.targets.table_changer import TableChanger
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table
from schemas.table.names import NameRules
from schemas.values.packed import decode_packed_rows

log = structlog.get_logger(__name__)


class SqlTransaction(SqlProgressWriter):
    """An open transaction of a session, with rows and progress over one link, that has passed its guard.

    Leaving the `with` block commits; an exception rolls back.
    """

    def __init__(
        self,
        unit: ApplyUnit,
        link: Link,
        books: Bookkeeping,
        catalog: TargetCatalog,
        applier: NetChangeApplier,
        *,
        changer: TableChanger,
    ) -> None:
        super().__init__(unit, link, books)
        self._catalog = catalog
        self._applier = applier
        self._changer = changer

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        """Apply `net` set-based. Return how many rows were written to `rowlock_displaced`; they count
        once it commits.

        With `displacing` None, a needed unique value that a row of another key holds raises
        UniqueViolationError. With `displacing` (JSON of what is applied: offsets of the batch) such
        rows are removed first, and each is written whole to `rowlock_displaced`. This includes
        snapshots, where nothing proves that the row is stale rather than written by another key of the
        same snapshot.

        Raises TransientError, RefusedError, UniqueViolationError; after any of them the transaction is
        rolled back by leaving the block.
        """
        if not net.size:
            return 0
        if net.table.has_kept_rows:
            self._release_kept_rows(net)
        try:
            return self._applier.apply_net_change(self._unit, net, displacing)
        except RowTooLargeError as error:
            raise name_longest_columns(error, net) from error

    def _release_kept_rows(self, net: NetChange) -> None:
        """Forget the kept rows that `net` deletes or writes anew: from now on the log decides on their keys.

        A kept row has no row at the source, so what comes first is never an update in place.
        """
        keys = list(map(format_entry_key, net.list_keys_of_new_rows()))
        table = f"{net.table.schema}.{net.table.name}"
        self._waiting.extend(self._books.kept.build_delete(self._unit, table, keys))

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        """Delete all rows, or only those with the values `where` in added columns.

        Never commits implicitly.
        """
        text, params = join_conditions(self._catalog.build_filter(table, where))
        self._link.execute(f"DELETE FROM {self._catalog.quote_table_name(table)}{text}", params)

    def lock_units(self) -> dict[str, UnitState]:
        """Lock the `rowlock_unit` rows of all units of the pipeline to the end of the transaction.

        Return topic → state.
        """
        return parse_units_by_topic(
            self._link.execute(*self._books.units.select_all(self._unit.pipeline, lock=True))
        )

    def write_other(self, topic: str, state: UnitState) -> None:
        """Write the row of another unit of the pipeline, which `lock_units` has locked."""
        other = ApplyUnit(self._unit.pipeline, topic)
        self._link.execute(*self._books.units.build_update(other, state))

    def alter_table(self, change: AlterTable | DropTable) -> None:
        """Change a table as part of this transaction; only where the target has `transactional_ddl`.

        Waits at most 3 s for its lock. Raises TransientError (who holds the lock), TargetConfigError or
        RefusedError with a remedy; after any of them the transaction is rolled back by leaving the
        block.
        """
        if not self._changer.transactional:
            raise ValueError("altering a table would commit this transaction")
        self._changer.apply_change(change)
        self._applier.forget_table(change.table.db, change.table.name)


def _read_page(
    link: Link,
    catalog: TargetCatalog,
    syntax: Syntax,
    table: TargetTable,
    after: Key | None,
    *,
    where: dict[str, str] | None,
    limit: int,
    upto: Key | None = None,
) -> list[Row]:
    """Return up to `limit` rows with keys above `after`, and up to `upto`, in the order of the server's
    own key index.
    """
    text, params = join_conditions(
        [*catalog.build_filter(table, where), *catalog.build_page_conditions(table, after, upto, where)]
    )

    def render_page(select: str) -> str:
        return syntax.page(f"{select}{text}", catalog.build_page_order(table), limit)

    select, decode = catalog.select_rows(table)
    rows: Sequence[tuple[object, ...]] | None = None
    if (packing := catalog.select_packed_rows(table)) is not None:
        select_packed, packed = packing
        [found] = link.execute(packed.render(render_page(select_packed)), params)
        rows = decode_packed_rows(table.table, found)
    return [decode(row) for row in (rows if rows is not None else link.execute(render_page(select), params))]


KEYS_PER_STATEMENT = 500


class SqlSession(SqlProgressStore):
    """One connection to a target that is its own progress store, so that rows and progress commit
    together. Used by one thread at a time.
    """

    def __init__(self, parts: DialectComponents) -> None:
        super().__init__(parts.link, parts.books, parts.fresh)
        self.catalog = parts.catalog
        self.column_names = parts.catalog.column_names
        self._applier = parts.applier
        self._fresh = parts.fresh
        self._changer = TableChanger(parts.link, parts.alterer, parts.fresh)
        self.transactional_ddl = parts.alterer.transactional

    @property
    def table_names(self) -> NameRules:
        """Return how the server compares names of schemas and tables."""
        return self.catalog.table_names

    @contextmanager
    def begin_transaction(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress], lock_wait_s: float | None = None
    ) -> Iterator[SqlTransaction]:
        """Begin READ COMMITTED and lock the lane rows of `guards` in lane order, as the first
        statement. `lock_wait_s`: see `Link.begin_transaction`.

        Raises FencedError unless epoch, attempt and offset are those that were last read or written.
        """
        committed = False
        try:
            with self.begin_guarded(unit, guards, lock_wait_s):
                transaction = SqlTransaction(
                    unit, self._link, self._books, self.catalog, self._applier, changer=self._changer
                )
                yield transaction
                transaction.send_waiting()
            committed = True
        finally:
            self._applier.on_transaction_end(committed=committed)

    def read_table(self, schema: str, name: str) -> Table | None:
        return self.catalog.read_table(schema, name)

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        """Return the facts that `table_findings` judges beside the definition of an existing table."""
        return self.catalog.read_table_facts(schema, name)

    def read_surroundings(self, schema: str, name: str) -> object:
        mine = [(schema, name)]
        return self.read_table_facts(schema, name), self.find_missing_rights(
            mine, create=False, alter=mine, drop=mine
        )

    def find_missing_rights(
        self,
        tables: Sequence[TablePlace],
        *,
        create: bool,
        alter: Collection[TablePlace] = (),
        drop: Collection[TablePlace] = (),
    ) -> list[MissingRight]:
        """Return the rights that are missing to write `tables`.

        `create`: missing tables are created; `alter`, `drop`: tables that are altered or dropped.
        """
        self._link.connect()
        books = self._books.tables
        return self.catalog.find_missing_rights(
            RequiredRights(
                books.schema, books.list_rights(), tuple(tables), create, frozenset(alter), frozenset(drop)
            )
        )

    def probe_blockers(self) -> None:
        """Look for blockers of an idle connection: raises MissingGrantError if a takeover could not
        look for them.
        """
        self._link.connect()
        self._link.locks.end_blockers_of(self._link.get_connection_id())

    def probe_durability(self) -> Remark | None:
        """Return why a crash of the target may take back commits that readers have seen; None: it may not."""
        self._link.connect()
        return self.catalog.find_durability_risk()

    def explain_untested_version(self) -> Problem | None:
        """Return that rowlock was not tested with the server's version; None: it was."""
        self._link.connect()
        return self.catalog.explain_untested_version()

    def read_certificate_expiry(self) -> datetime | None:
        """Return when the certificate expires that the server presents; None: without TLS."""
        self._link.connect()
        return self._link.read_certificate_expiry()

    def judge_new_table(self, table: Table) -> list[Problem]:
        """Return what a table that `create_table` creates lacks, and raise TargetConfigError if it cannot be
        created.
        """
        self.catalog.create_statements(table)
        return self.catalog.explain_left_out_indexes(table)

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        """See TargetCatalog.render_numbering."""
        return self.catalog.render_numbering(table, column, next_number)

    def create_table(self, table: Table) -> None:
        for problem in self.catalog.explain_left_out_indexes(table):
            log.warning(
                "target table created without a unique index",
                table=f"{table.db}.{table.name}", reason=problem.what,
            )  # fmt: skip
        statements = self.catalog.create_statements(table)
        with self._name_large_columns(table):
            for text in statements:
                run_create(self._link, text)

    @contextmanager
    def _name_large_columns(self, table: Table) -> Iterator[None]:
        """Complete the server's refusal of a definition, `table`, with its columns."""
        try:
            yield
        except TableTooLargeError as error:
            raise self.catalog.name_large_columns(table, error) from error

    def read_unit_states(self, pipeline: str, topics: Sequence[str] | None = None) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units, without locks. `topics`: only of these."""
        units = self._books.units
        texts = [units.select_all(pipeline)]
        if topics is not None:
            starts = range(0, len(topics), UNITS_A_STATEMENT)
            texts = [units.select_some(pipeline, topics[at : at + UNITS_A_STATEMENT]) for at in starts]
        rows = self._run_unguarded(lambda: [row for text in texts for row in self._run_fragment(text)])
        return parse_units_by_topic(rows)

    def list_defined_topics(self, pipeline: str) -> list[str]:
        """Return the topics of the pipeline's units that have a definition, without locks."""
        rows = self._run_unguarded(
            lambda: self._run_fragment(self._books.units.select_topics(pipeline, defined=True))
        )
        return [str(topic) for (topic,) in rows]

    def get_connection_id(self) -> int:
        """Return the server's id of the session's connection, connecting first where needed.

        A process that takes the unit over ends this connection.
        """
        self._link.connect()
        return self._link.get_connection_id()

    def find_row_holders(self, connections: Sequence[int]) -> LockHolders:
        """Return who holds the row locks for which `connections` wait now; empty if none of them waits.

        Uses a connection of its own, and may be called from any thread.
        """
        second = self._fresh()
        second.connect()
        try:
            seen = [second.locks.find_row_holders(each) for each in connections]
        finally:
            second.close()
        found = dict.fromkeys(holder for each in seen for holder in each.found)
        return LockHolders(
            tuple(found), unseen="; ".join(dict.fromkeys(each.unseen for each in seen if each.unseen))
        )

    def alter_table(self, change: AlterTable | DropTable, *, connection: int) -> None:
        """Change a table, each statement committing by itself; only where the target has no
        `transactional_ddl`.

        `connection`: the result of `get_connection_id()` when the mark was committed. If the session
        has another connection by now, the old one may have been ended by a takeover of the unit:
        TransientError is raised before anything is done. A statement is never sent again over a new
        connection. Waits at most 3 s for its lock. Raises TransientError (with the holder of the lock;
        nothing was done), TargetConfigError or RefusedError with a remedy.
        """
        if self.transactional_ddl:
            raise ValueError("this target changes tables within a transaction")
        if (mine := self._link.get_connection_id()) != connection:
            raise TransientError(
                f"connection {connection}, which was to alter a table, is lost; the process that owns the "
                f"unit now may have ended it (this process has {mine}): nothing was changed, and rowlock "
                "retries"
            )
        ending = change.table if isinstance(change, DropTable) else apply_alterations(change)
        try:
            with self._name_large_columns(ending):
                self._changer.apply_change(change)
        finally:
            self._applier.forget_table(change.table.db, change.table.name)

    def end_connection(self, connection: int) -> None:
        """End a connection that may still change a table for a dead worker, and wait until it and its
        statement have ended.

        Does nothing where the connection does not exist. Raises TransientError when it still exists
        after a few seconds.
        """
        self._changer.end_connection(connection)

    def fetch_rows(
        self,
        table: TargetTable,
        after: Key | None,
        limit: int,
        where: dict[str, str] | None = None,
        *,
        upto: Key | None = None,
    ) -> list[Row]:
        """Read up to `limit` rows with after < key <= upto, as wire values (for verify and copies).

        Rows are in the order of the key's index.
        """
        link, catalog, syntax = self._link, self.catalog, self._books.syntax
        return self._run_unguarded(
            lambda: _read_page(link, catalog, syntax, table, after, where=where, limit=limit, upto=upto)
        )

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        """Read the rows with exactly these keys."""

        def run() -> list[Row]:
            select, decode = self.catalog.select_rows(table)
            found: list[Row] = []
            for at in range(0, len(keys), KEYS_PER_STATEMENT):
                chunk = self.catalog.build_key_params(table, keys[at : at + KEYS_PER_STATEMENT])
                text, params = render_keys_in(self.catalog.list_key_columns(table), chunk)
                found += [decode(row) for row in self._run_fragment((f"{select} WHERE {text}", params))]
            return found

        return self._run_unguarded(run)
