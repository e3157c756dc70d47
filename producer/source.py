"""A source database as capture sees it: what a new kind of source implements (docs/how-to/add-a-source.md).

`SourceDatabase` is not beside its implementations: how capture starts (producer/resume) and its loop know this file and no implementation,
and each implementation is made of parts that stand below this file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from producer.decoders.context import SourceContext, TransactionContext
from producer.definitions.places import DefinitionPlace, Proof
from producer.errors import TableStoppedError
from producer.sources.binlog.mysql_gtids import GtidSet
from producer.sources.changes import Barrier, Boundary, Evidence, LogMoment, LogStart, TransactionHeader
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.sources.survey import ExaminedTable
from producer.statements.closure import ImpactedTables
from producer.statements.conversions import DoubtedValues
from producer.statements.tokens import Token
from producer.tables import TableState
from schemas.findings import Finding
from schemas.table.model import Key, Table
from schemas.table.names import NameRules, TableName
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition


class LoggedRows(Protocol):
    """Rows of one captured table, as one place of a transaction has them."""

    @property
    def header(self) -> TransactionHeader: ...

    @property
    def table(self) -> TableName:
        """As the log writes it."""
        ...

    def encode_rows(
        self, table: TableState, source: SourceContext, transaction: TransactionContext, /
    ) -> list[tuple[bytes, bytes]]:
        """Return (Kafka key, event) of every row, `last` false; moves the tail of the topic and `transaction.total_order` on.

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
        """Take back all but the first `keep` of what `encode` returned just now."""
        ...

    def list_keys(self, table: TableState, source: SourceContext, /) -> Sequence[Key]:
        """Return the keys of all images, before and after, once they are encoded."""
        ...


LogChange = LoggedRows | Barrier | Boundary | TableStoppedError
"""What a log brings. A TableStoppedError as data: the tables cannot be followed from `SourceLog.moment` on."""


class SourceLog(Protocol):
    """A source's log from a place on, whole committed transactions in its order: producer.sources.binlog.binlog_log.BinlogLog.

    `heard`: whether the last `read` brought anything. `delivered`: the set, still empty, of the GTIDs that the log brings, where a
    snapshot's LOW is such a set (its reader fills it); None: LOW is a place of the log.
    """

    @property
    def heard(self) -> bool: ...
    @property
    def delivered(self) -> GtidSet | None: ...

    def read_changes(self, timeout: float, /) -> Iterator[LogChange | None]:
        """Yield what arrives within `timeout` seconds; None for what concerns nobody, so that a reader may stop there.

        A row's `row` is the same whenever it is read. Raises TransientSourceError, SourceRefusedError, StreamStoppedError.
        """
        ...

    @property
    def moment(self) -> LogMoment:
        """The place of the item that was yielded last: a stop that it causes is recorded there."""
        ...

    @property
    def begun(self) -> bool:
        """Tell whether something of a transaction was yielded, and not its end."""
        ...

    @property
    def inside(self) -> bool:
        """Tell whether what was read ends in the middle of a transaction; also true when `begun`."""
        ...

    @property
    def point(self) -> tuple[str, int]:
        """The place where the log goes on, behind all that was read; of use when not `inside`."""
        ...

    @property
    def objects_changed(self) -> LogPoint:
        """The start of the last statement that may have changed which tables others write (ImpactFinder); (0, 0): none."""
        ...

    def record_position_count(self, rows: int, /) -> None:
        """Learn how many positions the LoggedRows or Barrier took that was yielded last."""
        ...

    def skip_uncaptured(self, rows: Any, /) -> None:
        """Learn that the LoggedRows that were yielded last are not published."""
        ...

    def record_transaction_end(self, boundary: Boundary, /) -> None:
        """Learn that capture may resume behind a transaction."""
        ...

    def keep_evidence(self, file: str, pos: int, /) -> None:
        """Keep what proves the log up to there: capture may resume there."""
        ...

    def find_evidence(self) -> Evidence:
        """Return what proves the log up to the place that was noted last."""
        ...

    def close(self) -> None: ...


class PublishedRows(NamedTuple):
    """The rows of a used-up log that the topics hold when capture begins.

    `rows`: rows of the log that may still be in it, by table; `highest`: the highest `pos` of this era; `again`: whether a process has
    captured before; `tables`: definitions in force; `bare`: those of them of which a topic has nothing more; `cut`: those of which events are
    gone that no record knew: what `rows` would have of them nobody knows.
    """

    rows: Mapping[TableName, Sequence[tuple[str, int]]]
    highest: int | None
    again: bool
    tables: Mapping[TableName, Table]
    bare: Collection[TableName]
    cut: Collection[TableName] = ()


NOTHING_PUBLISHED = PublishedRows({}, None, False, {}, ())


@runtime_checkable
class ConsumedLog(Protocol):
    """A SourceLog whose rows are deleted once Kafka has them: producer.oracle.log.OracleLog.

    `outstanding`: it has brought rows that Kafka may have, and that are not deleted. No record may pass them: a start would not find them.
    """

    outstanding: bool

    @property
    def unrecorded(self) -> bool:
        """Tell whether a table waits to be read until the record names it."""
        ...

    def confirm_recorded(self) -> None:
        """Go on with them: the record that names them, by the last `evidence`, is stored."""
        ...

    def learn_published(self, published: PublishedRows, /) -> None:
        """Before the first `read`: delete what is published, and give no position again."""
        ...

    def purge_published(self) -> Iterator[TableStoppedError]:
        """Delete what was brought since the last time. Kafka has it, and this is the process whose events count."""
        ...


class SourceServer(Protocol):
    """The source server as the loop asks it, beside its log."""

    def log_end(self) -> tuple[str, int] | None: ...
    def find_nontransactional_engine(self, name: TableName, /) -> str | None: ...
    def estimate_rows(self, name: TableName, /) -> int | None:
        """Return how many rows a table has, about; None: nobody knows."""
        ...


class DefinitionProver(Protocol):
    """Definitions at a place of the log: producer.definitions.proof.Definitions."""

    def prove_definition(self, place: DefinitionPlace, name: TableName, /) -> Proof: ...
    def prove_definitions(
        self, place: DefinitionPlace, names: Collection[TableName], /
    ) -> dict[TableName, Proof]: ...
    def find_partitioning(self, place: DefinitionPlace, name: TableName, /) -> str | None: ...
    def may_have_converted(
        self, place: DefinitionPlace, name: TableName, doubt: DoubtedValues, /
    ) -> bool: ...


class ImpactFinder(Protocol):
    """The tables that a statement may write: producer.definitions.reaches.Reaches."""

    def find_impact(
        self, place: DefinitionPlace, tokens: list[Token], db: str, captured: Iterable[TableName] = (), /
    ) -> ImpactedTables: ...


class ChunkQueue(Protocol):
    """Has chunks read one after the other, beside the stream: producer.snapshot.reader.BackgroundReader."""

    def submit(self, request: ReadChunk, /) -> None:
        """Have it read, not before `request.not_before`: who answers a second try at once is asked for ever."""
        ...

    def poll_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None: ...
    def close(self) -> None: ...


class SourceTables(Protocol):
    """A source's tables, as they are now. Raises like SourceDatabase."""

    @property
    def names(self) -> NameRules:
        """The source's rule for comparing names; the same as long as it runs."""
        ...

    def list_table_names(self, patterns: Sequence[str], /) -> list[TableName]: ...

    def examine_tables(self, names: Collection[TableName], /) -> dict[TableName, ExaminedTable]:
        """Return what each table is, and whether it can be captured."""
        ...


class SourceCheckResult(NamedTuple):
    """`tables`: those that are selected; None: the source could not be asked, and nothing else of it can be judged."""

    findings: list[Finding]
    tables: list[TableName] | None


class SourceDatabase(SourceServer, Protocol):
    """A source database: producer.flavours.binlog_source.BinlogSource. What is entered in schemas/config/kinds/sources.py makes one.

    It lasts as long as its process, and its connections from `begin` to `close`. All methods raise TransientSourceError (tried
    again) and SourceRefusedError (a person must act). `connector`: its name in events.
    """

    @property
    def connector(self) -> str: ...

    # checks

    def check_source(self) -> SourceCheckResult:
        """Return all that is wrong with the server, the user's rights and the tables; raises nothing."""
        ...

    def require_usable(self) -> None:
        """Raise SourceRefusedError with all errors of the server and of the user's rights, tables aside."""
        ...

    # a stretch of capture

    def open_source(self, beat: Callable[[], None], /) -> None:
        """Open what is needed. `beat` is called again and again while something takes long, and may raise."""
        ...

    def close(self) -> None: ...

    # identity, and the log

    def find_log_end(self) -> LogStart:
        """Return the log's end, for a first start."""
        ...

    def resume_log(self, stored: StoredPosition, /) -> LogStart:
        """Return where the log goes on, if this is the source that was captured up to `stored`, and its log still holds that."""
        ...

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool], /) -> SourceLog:
        """Return the log behind `record`, proven. `captured(db, table)`: whether a table is captured just now."""
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
        """Return a reader of chunks for a stream that began at `started`: what its SELECTs see, and where that is in the log."""
        ...
