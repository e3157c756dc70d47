"""Changes in the log of any source, in its order, as data: statements, and ends of transactions. (Rows: `LoggedRows` of
producer/source.py.)

A place of the log is (`file`, `pos`): the name of a part of the log, which ends in ".<number>", and an offset in it that grows. A log
without files has one part for ever; one that is polled has the poll's number for an offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from producer.binlog_format.log_event import SessionSettings
from producer.errors import TableStoppedError
from producer.statements import ddl
from producer.statements.judgement import StatementVerdict
from schemas.findings import COPY_EACH
from schemas.wire.records import Identity, LogProof

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


class LogStart(NamedTuple):
    """The place where capture begins to read, whose log that is, and its proof (`StoredPosition.proof`)."""

    file: str
    pos: int
    identity: Identity
    proof: tuple[LogProof, ...]


class Evidence(NamedTuple):
    """The proof of the log before a position, which the position record keeps."""

    proofs: tuple[LogProof, ...]
    gtid_set: str | None


class TransactionHeader(NamedTuple):
    """A source transaction. `file`, `pos`: its start; `id`: its GTID, else "file:pos"; `ts_ms`: its commit time."""

    file: str
    pos: int
    ts_ms: int
    server_id: int
    gtid: str | None

    @property
    def id(self) -> str:
        return self.gtid or f"{self.file}:{self.pos}"


class Barrier(NamedTuple):
    """A statement that may concern captured tables; events made from it stand at `row` on (`SourceLog.counted`).

    `start`: offset of the statement's own event in the file of `header`: what proves its definition (R8) counts from there.
    `db`: the current database it was executed in; `escapes`, `temporary`, `settings`: see `log_event.Query`.
    `verdicts`: what it does to tables, where the source itself knows that; None: its text tells (producer/statements).
    """

    header: TransactionHeader
    statement: ddl.TableDdl | ddl.SchemaDrop | ddl.UnknownStatement | ddl.DmlStatement | ddl.TriggerCreation
    sql: str
    row: int
    start: int = 0
    db: str = ""
    escapes: bool = True
    temporary: bool = False
    verdicts: tuple[StatementVerdict, ...] | None = None
    settings: SessionSettings = SessionSettings()


class Boundary(NamedTuple):
    """A transaction is over: capture may resume at `file`, `pos`.

    `undone`: captured tables with rows that were rolled back: right only for a table with transactions. `stop`: what the
    transaction's end does to captured tables. `prepared`: see PreparedXa.
    """

    header: TransactionHeader
    file: str
    pos: int
    undone: frozenset[TableName] = frozenset()
    stop: TableStoppedError | None = None
    prepared: Mapping[str, TableNames] = {}


def find_not_undone_stop(engines: Mapping[TableName, str | None]) -> TableStoppedError | None:
    """Return the stop of tables whose rows the log takes back while they stay: `engines` has those without transactions."""
    tables = frozenset(name for name, engine in engines.items() if engine is not None)
    if not tables:
        return None
    listed = ", ".join(sorted(f"{db}.{table} ({engines[db, table]})" for db, table in tables))
    return TableStoppedError(
        tables, "log", f"rows of {listed} are rolled back in the log, and stay in a table without transactions",
        f"ALTER TABLE … ENGINE=InnoDB, and {COPY_EACH}",
    )  # fmt: skip
