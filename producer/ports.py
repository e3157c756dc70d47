"""What capture's loop acts on. The product's are opened by producer/capture.py, those of the simulation by tests/sim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from producer.definitions.places import Place, Proof
from producer.snapshot.chunks import ChunkFailed, ChunkRead, LogPoint, ReadChunk
from producer.sources.binlog.assembly import Assembly
from producer.sources.binlog.transaction_stream import EventStream
from producer.statements.closure import Reach
from producer.statements.ddl import TableName, Token
from schemas.table.names import Names
from schemas.wire.records import LogProof, StoredPosition, Watermark

OnWatermark = Callable[[Watermark], None]


class EventWriter(Protocol):
    """Kafka, written in order and without a gap; producer.kafka.writer.KafkaWriter says what each method does.

    `offsets`: of the last acknowledged message of each topic. `stopping` is asked while it waits.
    """

    offsets: dict[str, int]
    stopping: Callable[[], bool]

    @property
    def full(self) -> bool: ...
    def send(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        on_offset: Callable[[int], None] | None = None,
        /,
    ) -> None: ...
    def send_all(self, topic: str, records: list[tuple[bytes, bytes]], size: int, /) -> None: ...
    def flush(self) -> None: ...
    def mark(self, action: Callable[[], None], /) -> None: ...
    def drain(self) -> None: ...


class SourceServer(Protocol):
    """What the loop asks of the source beside its log: producer.sources.catalog.Catalog."""

    def log_end(self) -> tuple[str, int] | None: ...
    def without_transactions(self, name: TableName, /) -> str | None: ...


class DefinitionProver(Protocol):
    """Definitions at a place of the log: producer.definitions.proof.Definitions."""

    def at(self, place: Place, name: TableName, /) -> Proof: ...
    def partitioning(self, place: Place, name: TableName, /) -> str | None: ...


class StatementReach(Protocol):
    """Which tables a statement may write: producer.definitions.reaches.Reaches."""

    def of(
        self, place: Place, tokens: list[Token], db: str, captured: Iterable[TableName] = (), /
    ) -> Reach: ...


class ChunkQueue(Protocol):
    """Has chunks read one after the other, beside the stream: producer.snapshot.reader.BackgroundReader."""

    def submit(self, request: ReadChunk, /) -> None: ...
    def poll(self) -> ChunkRead | ChunkFailed | None: ...
    def close(self) -> None: ...


class PositionKeeper(Protocol):
    """Stores positions: producer.resume.positions.PositionStore."""

    def send(self, writer: EventWriter, record: StoredPosition, /) -> None: ...


class TopicMaker(Protocol):
    """Creates topics: producer.kafka.topics.Topics."""

    def ensure(self, names: Iterable[str], settings: dict[str, str], /) -> set[str]: ...


class Clock(NamedTuple):
    """`seconds` never goes back; `now_ms`: since 1970."""

    seconds: Callable[[], float]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Ports:
    """`open_log(proofs, file, pos)`: the log from there on, if it is the proven one. `open_reader(started)`: a reader of chunks
    for a stream that began at `started`. `assembly(captured)`: what holds transactions. `stopping`: whether capture is to end.
    """

    writer: EventWriter
    store: PositionKeeper
    topics: TopicMaker
    open_log: Callable[[Sequence[LogProof], str, int], EventStream]
    open_reader: Callable[[LogPoint], ChunkQueue]
    assembly: Callable[[Callable[[str, str], bool]], Assembly]
    server: Callable[[], SourceServer]
    names: Names
    definitions: DefinitionProver
    reaches: Callable[[Callable[[], LogPoint]], StatementReach]
    clock: Clock
    stopping: Callable[[], bool]
    on_watermark: OnWatermark | None = None
    chunk_rows: int = 2000
