"""Recovers the state of topics when capture starts: definitions, chunk markers, highest position.

The topics, not the position record, determine what has been written; the record only contains where to
begin reading (`Anchor`). Events of a lower gen than an earlier one in the topic were written by a
superseded process and do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from producer.ports import TopicRanges
from producer.tables import BegunCopy
from schemas.table.model import LeftOutColumn, Table, is_same_definition
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk, LogRows
from schemas.wire.position import Position
from schemas.wire.records import Anchor, TableStop

TableName = tuple[str, str]


class _Source(msgspec.Struct):
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    row: int = msgspec.field(name="row")
    position: Position = msgspec.field(name="position")
    prev: Position | None = msgspec.field(name="prev")
    gen: int = msgspec.field(name="gen")
    name: str = msgspec.field(name="name", default="")


class _Event(msgspec.Struct):
    op: str = msgspec.field(name="op")
    source: _Source = msgspec.field(name="source")
    definition: Table | None = msgspec.field(name="definition", default=None)
    chunk: Chunk | None = msgspec.field(name="chunk", default=None)
    stop: TableStop | None = msgspec.field(name="stop", default=None)
    copy: CopyMark | None = msgspec.field(name="copy", default=None)
    log: LogRows | None = msgspec.field(name="log", default=None)
    left_out: tuple[LeftOutColumn, ...] = msgspec.field(name="left_out", default=())


_decode: Callable[[bytes], _Event] = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class ChunkMarker:
    chunk: Chunk
    position: Position
    gen: int
    offset: int


class StopMark(NamedTuple):
    """The stop of a table, with the place of its event."""

    stop: TableStop
    position: Position
    offset: int


@dataclass(slots=True)
class TableTail:
    """One table's part of a topic. `definitions`: by position, in the order of the topic.

    `stop`: why no more events follow. It is ended by a new beginning of the log (a definition of a higher
    epoch), and by `begun`: a copy of the table. Only `markers` after that count.
    """

    definitions: dict[Position, Table] = field(default_factory=dict)
    markers: list[ChunkMarker] = field(default_factory=list)
    begun: BegunCopy | None = None
    stop: StopMark | None = None

    @property
    def marker_offset(self) -> int | None:
        """The offset of the last marker."""
        return self.markers[-1].offset if self.markers else None

    def find_definition(self, file: int, pos: int, epoch: int) -> tuple[Position, Table] | None:
        """Return the active definition for a transaction of this era that starts at `file`, `pos`.

        None: there is none.
        """
        ours = (p for p in self.definitions if p[0] == epoch and p <= (epoch, file, pos, -1))
        position = max(ours, default=None)
        return None if position is None else (position, self.definitions[position])

    def find_first_definition(self, epoch: int) -> tuple[Position, Table] | None:
        """Return the first definition of an era."""
        position = min((p for p in self.definitions if p[0] == epoch), default=None)
        return None if position is None else (position, self.definitions[position])

    def find_last_copy(self, first_era: int) -> BegunCopy | None:
        """Return the last copy that began, if it began in the history since `first_era`."""
        return self.begun if self.begun is not None and self.begun.position[0] >= first_era else None

    def was_altered(self) -> bool:
        """Return whether the definition has changed since the last copy began."""
        if self.begun is None or (was := self.definitions.get(self.begun.position)) is None:
            return False
        since = (table for at, table in self.definitions.items() if at > self.begun.position)
        return not all(is_same_definition(was, table) for table in since)

    def find_open_stop(
        self, stop: TableStop | None, here: tuple[int, int, int], known: int
    ) -> TableStop | None:
        """Return the stop that a record holds, unless a copy has begun in the topic since.

        `here`: the record's place (epoch, file, pos). A record that is past the begin and has the stop
        was written without knowing the copy. If the begin is at the same place, `known` decides: the
        topic's end for the record.
        """
        begun = self.begun
        if stop is None or begun is None or begun.mark.keys:
            return stop
        place = begun.position[:3]
        if place < here or (place == here and begun.offset <= known):
            return stop
        self.begun = begun._replace(ended=begun.ended or stop.cause)
        return None

    def begin_copy(self, mark: CopyMark, position: Position, offset: int) -> None:
        """Record the begin of a copy: the table's stop has ended, and earlier chunks do not count.

        A key sweep ends no stop.
        """
        if mark.keys:
            self.begun = BegunCopy(mark, position, offset)
        else:
            ended = self.stop.stop.cause if self.stop is not None else ""
            self.begun, self.stop = BegunCopy(mark, position, offset, ended), None
        self.markers.clear()

    def add_event(self, offset: int, event: _Event) -> None:
        """Add the event at `offset`: a definition, the stop, or a chunk marker."""
        position = event.source.position
        if event.definition is not None:
            self.definitions[position] = msgspec.structs.replace(event.definition, left_out=event.left_out)
            if self.stop is not None and position[0] > self.stop.position[0]:
                self.stop = None
            if event.copy is not None:
                self.begin_copy(event.copy, position, offset)
        elif event.stop is not None:
            self.stop = StopMark(event.stop, position, offset)
        if event.chunk is not None:
            self.markers.append(ChunkMarker(event.chunk, position, event.source.gen, offset))


@dataclass(slots=True)
class TopicFindings:
    """The content of one topic.

    `logged`: rows of a consumed log, by table. `cut`: events after the anchors are missing.
    """

    tables: dict[TableName, TableTail] = field(default_factory=dict)
    logged: dict[TableName, list[tuple[str, int]]] = field(default_factory=dict)
    highest: Position | None = None
    gen: int = 0
    end: int = 0
    cut: bool = False
    is_empty: bool = False
    """Whether the topic holds no record, as far as `peek_last_events` looks."""
    lost: dict[TableName, str] = field(default_factory=dict)
    """The tables with events that the topic has lost, and the reason (producer.start.lost_topics)."""

    def add_event(self, offset: int, value: bytes, *, always: bool = False) -> None:
        """Add the event at `offset`. `always`: a row of the log also adds its table."""
        event = _decode(value)
        source = event.source
        if source.gen < self.gen:
            return
        self.gen = source.gen
        self.raise_ceiling(source.position)
        if source.prev is not None:
            self.raise_ceiling(source.prev)
        if event.log is not None:
            self.logged.setdefault((source.db, source.table), []).extend(event.log.rows)
        if event.op == "m" or source.row < 0:
            self.tables.setdefault((source.db, source.table), TableTail()).add_event(offset, event)
        elif always:
            self.tables.setdefault((source.db, source.table), TableTail())

    def find_last_copy(self, name: TableName) -> BegunCopy | None:
        """Return the last copy of a table that began."""
        return self.tables[name].begun if name in self.tables else None

    def extend_range(self, end: int) -> None:
        """Note that events up to `end` have been added as well."""
        self.end = end

    def raise_ceiling(self, position: Position) -> None:
        """Raise `highest` to `position`, if it is lower."""
        self.highest = max(position, self.highest or position)


def scan_topics(
    reader: TopicRanges,
    topics: Mapping[str, Mapping[TableName, Anchor]],
    bounds: Mapping[str, tuple[int, int]],
) -> dict[str, TopicFindings]:
    """Read what counts of each topic: the anchored events, then everything after the anchors.

    All topics are read at once. `bounds`: topic → its first offset and its end.

    Raises TransientSourceError, and msgspec.DecodeError for a message that is not an event.
    """
    found, stretches = {}, {}
    for topic, known in topics.items():
        low, high = bounds[topic]
        anchors = known.values()
        start = min((anchor.end + 1 for anchor in anchors), default=0)
        found[topic] = TopicFindings(end=high, cut=low > start)
        anchored = [(offset, offset + 1) for offset in _list_anchored_offsets(anchors, low, start)]
        stretches[topic] = [*anchored, (max(low, start), high)]
        for anchor in anchors:
            if anchor.highest is not None:
                found[topic].raise_ceiling(anchor.highest)
    for topic, message in reader.read_all(stretches):
        if message.value() is not None:
            found[topic].add_event(message.offset(), message.value())
    return found


def peek_last_events(reader: TopicRanges, topics: Iterable[str], source: str) -> dict[str, TopicFindings]:
    """Read the last event of each topic: its table of `source`, whether that is stopped, and its
    position.

    Records of other writers belong to no table. Raises TransientSourceError.
    """
    bounds = {topic: reader.get_bounds(topic) for topic in topics}
    found = {topic: TopicFindings(end=high, is_empty=low == high) for topic, (low, high) in bounds.items()}
    last = {topic: [(max(low, high - 1), high)] for topic, (low, high) in bounds.items()}
    for topic, message in reader.read_all(last):
        if message.value() is not None and _read_source(message.value()) == source:
            found[topic].add_event(message.offset(), message.value(), always=True)
    return found


def _read_source(value: bytes) -> str | None:
    """Return the source of an event; None: rowlock did not write it."""
    try:
        return _decode(value).source.name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _list_anchored_offsets(anchors: Iterable[Anchor], low: int, start: int) -> list[int]:
    offsets = {
        offset
        for anchor in anchors
        for offset in (anchor.definition, anchor.marker, anchor.stop, anchor.begin)
        if offset is not None
    }
    return sorted(offset for offset in offsets if low <= offset < start)
