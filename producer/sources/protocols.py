"""A source database as capture sees it: the protocols that a new kind of source implements
(docs/how-to/add-a-source.md).

`SourceDatabase` is separate from its implementations: the start of capture (producer/start) and its
loop import this file and no implementation, and each implementation consists of parts in layers below
this file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from producer.decoders.envelope import SourceContext, TransactionContext
from producer.definitions.requests import DefinitionPlace, Proof
from producer.errors import TableStoppedError
from producer.sources.changes import (
    Barrier,
    Boundary,
    Evidence,
    LogMoment,
    LogStart,
    TimedEnd,
    TransactionHeader,
)
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.survey import ExaminedTable
from producer.statements.closure import ImpactedTables
from producer.statements.conversions import DoubtedValues
from producer.statements.statement import Statement
from producer.tables import TableState
from schemas.findings import Finding
from schemas.table.model import Key, Table
from schemas.table.names import NameRules, TableName
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition


class LoggedRows(Protocol):
    """Rows of one captured table, from one place of a transaction."""

    @property
    def header(self) -> TransactionHeader: ...

    @property
    def table(self) -> TableName:
        """The table's name as the log writes it."""
        ...

    def build_records(
        self, table: TableState, source: SourceContext, transaction: TransactionContext, /
    ) -> list[tuple[bytes, bytes]]:
        """Return (Kafka key, event) of every row, `last` false.

        Advances the topic's tail and `transaction.total_order`.

        Raises DecodeError; nothing is changed then.
        """
        ...

    def withdraw_rows(
        self,
        table: TableState,
        source: SourceContext,
        transaction: TransactionContext,
        records: list[tuple[bytes, bytes]],
        keep: int,
        /,
    ) -> None:
        """Withdraw all but the first `keep` of the records that `build_records` returned just now."""
        ...

    def list_keys(self, table: TableState, source: SourceContext, /) -> Sequence[Key]:
        """Return the keys of all images, before and after, once they are encoded."""
        ...


LogChange = LoggedRows | Barrier | Boundary | TableStoppedError
"""The changes in a log. A TableStoppedError as data: the tables cannot be followed from
`SourceLog.moment` on.
"""


class SourceLog(Protocol):
    """A source's log from a place on, in whole committed transactions in its order:
    producer.sources.binlog.binlog_log.BinlogLog.

    `heard`: whether the last read returned anything. `delivered`: the set, initially empty, of the GTIDs
    that the log delivers, if a snapshot's LOW is such a set (its reader fills it); None: LOW is a place
    of the log.
    """

    @property
    def heard(self) -> bool: ...
    @property
    def delivered(self) -> GtidSet | None: ...

    def read_changes(self, timeout: float, /) -> Iterator[LogChange | None]:
        """Yield what arrives within `timeout` seconds; None for changes that affect no table, so that a
        reader may stop there.

        A row's `row` is the same whenever it is read. Raises TransientSourceError, SourceRefusedError,
        StreamStoppedError.
        """
        ...

    @property
    def moment(self) -> LogMoment:
        """The place of the last yielded item; a stop that it causes is recorded there."""
        ...

    @property
    def begun(self) -> bool:
        """True if a part of a transaction was yielded, and not its end."""
        ...

    @property
    def inside(self) -> bool:
        """True if the last read ended in the middle of a transaction; also true when `begun`."""
        ...

    @property
    def point(self) -> tuple[str, int]:
        """The place where the log continues, after everything that was read; valid only when not
        `inside`.
        """
        ...

    @property
    def objects_changed(self) -> LogPoint:
        """The start of the last statement that may have changed which tables others write
        (ImpactFinder); (0, 0): none.
        """
        ...

    def record_position_count(self, rows: int, /) -> None:
        """Record how many positions the LoggedRows or Barrier took that was yielded last."""
        ...

    def skip_uncaptured(self, rows: Any, /) -> None:
        """Record that the LoggedRows that were yielded last are not published."""
        ...

    def record_transaction_end(self, boundary: Boundary, /) -> None:
        """Record that capture may resume after a transaction."""
        ...

    def keep_evidence(self, file: str, pos: int, /) -> None:
        """Keep the proof of the log up to there: capture may resume there."""
        ...

    def find_evidence(self) -> Evidence:
        """Return the proof of the log up to the place that was kept last."""
        ...

    def close(self) -> None: ...


class PublishedRows(NamedTuple):
    """The rows of a consumed log that the topics have when capture begins.

    `rows`: rows that may still be in the log, by table. `highest`: the highest `pos` of this era.
    `captured_before`: whether a process has captured before. `tables`: active definitions. `bare`: those of
    them with a topic that has nothing but the definition. `cut`: those with lost events that no record knew;
    their rows are missing in `rows`.
    """

    rows: Mapping[TableName, Sequence[tuple[str, int]]]
    highest: int | None
    captured_before: bool
    tables: Mapping[TableName, Table]
    bare: Collection[TableName]
    cut: Collection[TableName] = ()


NOTHING_PUBLISHED = PublishedRows({}, None, False, {}, ())


@runtime_checkable
class ConsumedLog(Protocol):
    """A SourceLog with rows that are deleted once Kafka has them: producer.sources.oracle.log.OracleLog.

    `outstanding`: it has returned rows that Kafka may have, and that are not deleted. No record may pass
    them: a start would not find them.
    """

    outstanding: bool

    @property
    def unrecorded(self) -> bool:
        """True if a table waits to be read until the record names it."""
        ...

    def confirm_recorded(self) -> None:
        """Read those tables: the record that names them, by the last `find_evidence`, is stored."""
        ...

    def learn_published(self, published: PublishedRows, /) -> None:
        """Delete what is published, and use no position twice. Called before the first `read_changes`."""
        ...

    def purge_published(self) -> Iterator[TableStoppedError]:
        """Delete what was returned since the last call.

        Kafka has it, and this process's events are valid.
        """
        ...


class SourceServer(Protocol):
    """The source server, besides its log, as the loop queries it."""

    def read_timed_end(self) -> TimedEnd | None:
        """Return where the log ends now, and a time of the source's own clock that it has reached.

        None: there is no log.
        """
        ...

    def find_nontransactional_engine(self, name: TableName, /) -> str | None: ...
    def estimate_rows(self, name: TableName, /) -> int | None:
        """Return the approximate number of rows of a table; None: it is not known."""
        ...


class DefinitionProver(Protocol):
    """Definitions at a place of the log: producer.definitions.proof.DefinitionReader."""

    def prove_definition(self, place: DefinitionPlace, name: TableName, /) -> Proof: ...
    def prove_definitions(
        self, place: DefinitionPlace, names: Collection[TableName], /
    ) -> dict[TableName, Proof]: ...
    def find_partitioning(self, place: DefinitionPlace, name: TableName, /) -> str | None: ...
    def may_have_converted(
        self, place: DefinitionPlace, name: TableName, doubt: DoubtedValues, /
    ) -> bool: ...


class ImpactFinder(Protocol):
    """Finds the tables that a statement may write: producer.definitions.logged_statements.ImpactAnalyzer."""

    def find_impact(
        self, place: DefinitionPlace, statement: Statement, captured: Iterable[TableName] = (), /
    ) -> ImpactedTables: ...


class ChunkQueue(Protocol):
    """Reads chunks one after the other, alongside the stream:
    producer.snapshot.reader.BackgroundChunkReader.
    """

    def submit(self, request: ReadChunk, /) -> None:
        """Queue the request.

        It is read not before `request.not_before`, so that a failing chunk is not requested in a busy
        loop.
        """
        ...

    def poll_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None: ...
    def close(self) -> None: ...


class SourceTables(Protocol):
    """A source's tables, as they are now. Raises like SourceDatabase."""

    @property
    def names(self) -> NameRules:
        """The source's rule for comparing names; it does not change while the source runs."""
        ...

    def list_table_names(self, patterns: Sequence[str], /) -> list[TableName]: ...

    def examine_tables(self, names: Collection[TableName], /) -> dict[TableName, ExaminedTable]:
        """Return the definition of each table, and whether it can be captured."""
        ...


class SourceCheckResult(NamedTuple):
    """The result of checking a source.

    `tables`: the selected ones; None: the source could not be queried, and nothing else of it can be
    judged.
    """

    findings: list[Finding]
    tables: list[TableName] | None


class SourceDatabase(SourceServer, Protocol):
    """A source database: producer.sources.binlog.binlog_source.BinlogSource.

    The entries in schemas/config/kinds/sources.py create it.

    It exists as long as its process, and its connections from `open_source` to `close`. All methods
    raise TransientSourceError (retried) and SourceRefusedError (a person must act). `connector`: its
    name in events.
    """

    @property
    def connector(self) -> str: ...

    # checks

    def check_source(self) -> SourceCheckResult:
        """Return all that is wrong with the server, the user's rights and the tables; raises nothing."""
        ...

    def require_usable(self) -> None:
        """Raise SourceRefusedError with all errors of the server and of the user's rights, but not of
        tables.
        """
        ...

    # a run of capture

    def open_source(self, beat: Callable[[], None], /) -> None:
        """Open what is needed. `beat`: called repeatedly during long operations; may raise."""
        ...

    def close(self) -> None: ...

    # identity, and the log

    def find_log_end(self) -> LogStart:
        """Return the log's end, for a first start."""
        ...

    def resume_log(self, stored: StoredPosition, /) -> LogStart:
        """Return the place where the log continues, if this is the source that was captured up to
        `stored`, and its log still has that place. If another of the source's servers answers, the place is
        in its log (`LogStart.switch`).
        """
        ...

    def parse_gtids(self, text: str | None, /) -> GtidSet:
        """Return the set of GTIDs that a position record has as text."""
        ...

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool], /) -> SourceLog:
        """Return the log after `record`, proven. `captured(db, table)`: whether a table is captured now."""
        ...

    def build_context(self, name: str, epoch: int, gen: int, /) -> SourceContext: ...

    # tables and their definitions

    @property
    def tables(self) -> SourceTables: ...
    @property
    def definitions(self) -> DefinitionProver: ...
    def make_impact_finder(self, objects_changed: Callable[[], LogPoint], /) -> ImpactFinder: ...

    # snapshots

    def open_reader(self, started: LogPoint, /) -> ChunkQueue:
        """Return a reader of chunks for a stream that began at `started`.

        It determines what its SELECTs see, and the log position of that.
        """
        ...
