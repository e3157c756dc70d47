"""Changes in the log of any source, in the log's order: statements and ends of transactions.

Rows are `LoggedRows` of producer/sources/protocols.py.

A place of the log is (`file`, `pos`): the name of a part of the log, which ends in ".<number>", and an
offset in it that grows. A log without files has a single part; a log that is polled has the poll's
number as its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from producer.binlog_format.log_event import LoggedStatement
from producer.errors import TableStoppedError
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.statements.ddl import TableAction, TableDdl
from producer.statements.judgement import StatementVerdict
from producer.statements.statement import Statement
from schemas.findings import COPY_EACH
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Identity, LogProof, PreparedPlace, StoredPosition

TableName = tuple[str, str]  # database, table
TableNames = tuple[TableName, ...]


class LogMoment(NamedTuple):
    """A place in the log, and its time in ms since 1970."""

    file: str
    pos: int
    ts_ms: int


class LogFile(NamedTuple):
    """A file of the source's log; `size` in bytes."""

    name: str
    size: int


class TimedEnd(NamedTuple):
    """The end of a source's log, and a source time that it has reached.

    `ts_ms`: a time of the source server's clock, in ms since 1970, that was read before the end was. All
    transactions that the server had committed before it are before `file`, `pos`.
    """

    file: str
    pos: int
    ts_ms: int


class Evidence(NamedTuple):
    """The proof of the log before a position, as the position record stores it."""

    proofs: tuple[LogProof, ...]
    gtid_set: str | None


class TransactionHeader(NamedTuple):
    """A source transaction. `file`, `pos`: its start; `ts_ms`: its commit time in ms since 1970."""

    file: str
    pos: int
    ts_ms: int
    server_id: int
    gtid: str | None

    @property
    def id(self) -> str:
        return self.gtid or f"{self.file}:{self.pos}"


class Barrier(NamedTuple):
    """A statement that may affect captured tables.

    Its events have positions from `row` on (`SourceLog.record_position_count`). `start`: offset of the
    statement's own event in the file of `header`, from which its definition is proven. `verdicts`: its
    effects on tables, where the source itself knows them; None: they follow from the statement
    (producer/statements).
    """

    header: TransactionHeader
    statement: Statement
    row: int
    start: int = 0
    verdicts: tuple[StatementVerdict, ...] | None = None

    @classmethod
    def build_from_verdict(
        cls,
        header: TransactionHeader,
        text: str,
        action: TableAction,
        verdict: StatementVerdict,
        row: int = 0,
    ) -> Barrier:
        """Return the barrier of a statement whose effect the source itself knows. `text`: for messages and
        events.
        """
        statement = Statement(LoggedStatement("", text), TableDdl(action, (verdict.table,)))
        return cls(header, statement, row, header.pos, (verdict,))


class PreparedTransaction(NamedTuple):
    """An XA transaction that is prepared and has not ended.

    `tables`: those with rows in it. `place`: where these are in the log; None: it was prepared under a
    version that did not keep the place.
    """

    tables: TableNames
    place: PreparedPlace | None


OpenXa = Mapping[str, PreparedTransaction]
"""XID → the open transaction; never changed in place."""


def load_prepared(record: StoredPosition) -> OpenXa:
    """Return the XA transactions that are open at a stored position."""
    return {
        xid: PreparedTransaction(tables, record.prepared_at.get(xid))
        for xid, tables in record.prepared.items()
    }


def list_places(prepared: OpenXa) -> dict[str, PreparedPlace]:
    """Return where the rows of open XA transactions are, by XID, as far as it is known."""
    return {xid: each.place for xid, each in prepared.items() if each.place is not None}


def select_oldest_places(
    prepared: OpenXa, tables: Iterable[TableName], limit: int
) -> dict[str, PreparedPlace]:
    """Return the `limit` oldest of `list_places` with rows in one of `tables`, the oldest first.

    Names are compared without case: a place too many is no loss.
    """
    if not prepared:
        return {}
    folded = {(db.casefold(), table.casefold()) for db, table in tables}
    concerned = {
        xid: each
        for xid, each in prepared.items()
        if any((db.casefold(), table.casefold()) in folded for db, table in each.tables)
    }
    places = sorted(
        list_places(concerned).items(), key=lambda each: (parse_binlog_file_number(each[1].file), each[1].pos)
    )
    return dict(places[:limit])


class PassedTransaction(NamedTuple):
    """A transaction of a new server's log on the other side of the position: not captured and before it, or
    captured and after it.

    `tables`: those that it may have changed; None: they are not known.
    """

    gtid: str
    tables: frozenset[TableName] | None


class ServerSwitch(NamedTuple):
    """The facts about a source's new server, whose log follows that of another one (docs/adr/0047).

    `executed`: its transactions. `is_final`: it gets none from other servers any more. `passed`: see
    PassedTransaction. `prepared`: the XA transactions that are open at the position, with their places in the
    new log. `missed`: captured transactions that its log lacks between others, some of which may be none.
    None: none. `ahead`: captured transactions that follow the position in the new log.
    `unshown`: the last captured GTIDs of domains that the server has no longer, or never had.
    """

    executed: GtidSet
    is_final: bool
    passed: tuple[PassedTransaction, ...]
    prepared: OpenXa
    missed: GtidSet | None = None
    ahead: tuple[PassedTransaction, ...] = ()
    unshown: tuple[str, ...] = ()


class LogStart(NamedTuple):
    """The place from which capture reads, the identity of the log's server, the proof of the log
    (`StoredPosition.proof`), and the source time that the place has reached (`TimedEnd.ts_ms`).

    `switch`: the log is that of another server than the one recorded; None: it is that of the same.
    """

    file: str
    pos: int
    identity: Identity
    proof: tuple[LogProof, ...]
    ts_ms: int
    switch: ServerSwitch | None = None


class Boundary(NamedTuple):
    """The end of a transaction: capture may resume at `file`, `pos`.

    `undone`: captured tables with rows that were rolled back, which is right only for a table with
    transactions. `prepared`: the XA transactions that are open there.
    """

    header: TransactionHeader
    file: str
    pos: int
    undone: frozenset[TableName] = frozenset()
    prepared: Mapping[str, PreparedTransaction] = {}


def find_not_undone_stop(engines: Mapping[TableName, str | None]) -> TableStoppedError | None:
    """Return the stop of tables without transactions, which keep rows that the log rolls back.

    None: there are none.

    `engines`: table → its engine if it has no transactions, otherwise None.
    """
    tables = frozenset(name for name, engine in engines.items() if engine is not None)
    if not tables:
        return None
    listed = ", ".join(sorted(f"{db}.{table} ({engines[db, table]})" for db, table in tables))
    return TableStoppedError(
        tables, "log", f"the log rolls back rows of {listed}, but an engine without transactions keeps them",
        f"ALTER TABLE … ENGINE=InnoDB, and {COPY_EACH}",
    )  # fmt: skip
