"""The ports that capture's loop uses. producer/capture.py opens them for production, tests/sim for
simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from producer.copies.recreated_tables import Repair, get_default_limits
from producer.kafka.topics import SourceTopics
from producer.sources.protocols import ChunkQueue, DefinitionProver, ImpactFinder, SourceLog, SourceServer
from schemas.table.names import NameRules
from schemas.wire.copies import CopyRequest
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition, Watermark

OnWatermark = Callable[[Watermark], None]


class EventWriter(Protocol):
    """Writes to Kafka in order and without a gap; producer.kafka.writer.KafkaWriter documents the
    methods.

    `offsets`: the last acknowledged offset of each topic.
    """

    offsets: dict[str, int]

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
    def call_when_acknowledged(self, action: Callable[[], None], /) -> None: ...
    def drain(self) -> None: ...


class PositionWriter(Protocol):
    """Stores positions: producer.start.positions.PositionStore."""

    def store_position(self, writer: EventWriter, record: StoredPosition, /) -> None: ...
    def is_superseded(self, reader: TopicRanges, gen: int, /) -> bool: ...


class TopicRanges(Protocol):
    """Reads ranges of topics by offset: producer.kafka.topic_reader.TopicReader."""

    def get_bounds(self, topic: str, /) -> tuple[int, int]: ...
    def read_range(self, topic: str, start: int, end: int, /) -> Iterator[Any]: ...
    def read_all(
        self, stretches: Mapping[str, Sequence[tuple[int, int]]], /
    ) -> Iterator[tuple[str, Any]]: ...


class Clock(NamedTuple):
    """The clocks of capture. `seconds`: never goes back. `now_ms`: ms since 1970."""

    seconds: Callable[[], float]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports and functions that the loop uses.

    `open_log`, `open_reader`, `server`, `names`, `definitions`, `reaches`: those of the
    `SourceDatabase`. `stopping`: whether capture is to end. `poll_requests`: see
    producer.kafka.copy_requests.CopyRequestReader. `reader`: for a log that is consumed, and for new topics.
    `repair`: see producer.copies.recreated_tables. `explain_old_agents`: why the event of removed rows (`p`)
    may not be sent, because an agent cannot apply it; "": every agent can.
    """

    writer: EventWriter
    store: PositionWriter
    topics: SourceTopics
    open_log: Callable[[StoredPosition, Callable[[str, str], bool]], SourceLog]
    open_reader: Callable[[LogPoint], ChunkQueue]
    server: Callable[[], SourceServer]
    names: NameRules
    definitions: DefinitionProver
    reaches: Callable[[Callable[[], LogPoint]], ImpactFinder]
    clock: Clock
    stopping: Callable[[], bool]
    poll_requests: Callable[[], list[tuple[int, CopyRequest | None]]] = list
    reader: TopicRanges | None = None
    on_watermark: OnWatermark | None = None
    chunk_rows: int = 2000
    repair: Repair = get_default_limits
    explain_old_agents: Callable[[], str] = lambda: ""
