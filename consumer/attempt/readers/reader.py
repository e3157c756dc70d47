"""Turns Kafka records into row changes and barriers: decodes, drops duplicates, collects. Without I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from consumer.attempt.readers.kafka_reader import TopicRecord
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.dedup import Deduplicator
from consumer.ordering.model import LaneProgress, RowChange
from consumer.ordering.progress import LaneMark
from consumer.tables import undecodable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import (
    ROW_EVENT_OPS,
    SNAPSHOT_READ,
    DecodeEvent,
    build_event_error,
    decode_any,
    decode_full_event,
    decode_none,
)
from schemas.findings import START_OVER
from schemas.table.model import Key, Row
from schemas.wire.event import EventEnvelope

RecordSlice = list[TopicRecord]
"""Records of one topic in offset order."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Row changes in offset order. All records up to `mark` have been read."""

    changes: list[RowChange]
    mark: LaneMark


@dataclass(frozen=True, slots=True)
class Truncated:
    """The source's table was emptied: a barrier at `mark`."""

    mark: LaneMark


@dataclass(frozen=True, slots=True)
class RowsRemoved:
    """A statement removed rows of the source's table without row events: a barrier at `mark`.

    Every later event is still right; a key sweep, or a copy, that begins later shows which rows are left.
    """

    mark: LaneMark
    event: EventEnvelope


@dataclass(frozen=True, slots=True)
class KeysRead:
    """Keys of the target of rows that exist at the source, read by a key sweep. No barrier."""

    mark: LaneMark
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class KeySweepBegun:
    """A key sweep begins: a barrier at `mark`."""

    mark: LaneMark


@dataclass(frozen=True, slots=True)
class TopicNotice:
    """An event that is neither row nor truncate (definition, stop, chunk marker): a barrier at `mark`."""

    mark: LaneMark
    event: EventEnvelope


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """A barrier at `mark`: the next record is the last row of the Debezium snapshot with which the unit
    continues (consumer.attempt.copies.snapshots).
    """

    mark: LaneMark


ReaderItem = RowBatch | Truncated | RowsRemoved | KeysRead | KeySweepBegun | TopicNotice | SnapshotEnd


class RecordReader(ABC):
    """Turns the records of one topic into the events that are applied.

    `dropped`: number of records that were not new.
    """

    def __init__(self, topic: str) -> None:
        self.dropped = 0
        self._topic = topic

    def begin_reading(self, rows: Sequence[LaneProgress], active: ActiveDefinition | None) -> None:
        """Begin at the lane rows: at the start of an attempt, or with another definition or layout."""
        lowest = min(rows, key=lambda row: row.offset)
        self._dedup = Deduplicator(rows)
        self._active = active
        self._mark: LaneMark = (lowest.offset, lowest.position, lowest.gen, lowest.commit_ts_ms)

    @abstractmethod
    def read_slice(self, records: RecordSlice) -> Iterator[ReaderItem]:
        """Yield the items of `records`, in order. `begin_reading` may be called after a barrier.

        Raises UnitStoppedError at an event that cannot be applied, after yielding the rows before it.
        """

    def _build_row_batch(self, changes: list[RowChange], upto: int) -> RowBatch:
        """Return the batch up to the offset `upto`. Without changes, position and time of the mark stay."""
        _, position, _, commit_ts_ms = self._mark
        if changes:
            position, commit_ts_ms = changes[-1].position, changes[-1].ts_ms
        self._mark = (upto, position, self._dedup.gen, commit_ts_ms)
        return RowBatch(changes, self._mark)


class EnvelopeReader(RecordReader):
    """Reads the topics that rowlock captures."""

    def read_slice(self, records: RecordSlice) -> Iterator[ReaderItem]:
        """Yield the items of `records`. This is the hot loop: it avoids calls."""
        changes: list[RowChange] = []
        offset = self._mark[0]
        decode, row = self._get_decoders()
        judge = self._dedup.judge_record
        try:
            for offset, raw in records:
                if raw is None:
                    continue
                is_row = True
                try:
                    event = decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    event = self._decode_uncommon(offset, raw)
                    is_row = event.op in ROW_EVENT_OPS
                    if event.undecodable is not None and is_row:
                        self._collect_undecodable(offset, raw, event, changes)
                        continue
                source = event.source
                position = source.position
                if judge(offset, position, source.prev, source.gen):
                    self.dropped += 1
                elif is_row:
                    before, after = event.before, event.after
                    if before is not None:
                        before = row(before)
                    if after is not None:
                        after = row(after)
                    read = event.op == SNAPSHOT_READ
                    changes.append(
                        RowChange(
                            (offset, 0), before, after, position, source.gen, source.ts_ms, raw, None, read
                        )
                    )
                else:
                    yield self._build_row_batch(changes, offset - 1)
                    changes = []
                    yield self._build_barrier(offset, raw)
                    decode, row = self._get_decoders()
                    judge = self._dedup.judge_record
        except UnitStoppedError as error:
            if self._active is None and isinstance(error, CopyNeededError) and error.table is None and raw:
                source = decode_full_event(self._topic, offset, raw).source
                error.table = source.db, source.table
            yield self._build_row_batch(changes, offset - 1)
            raise
        yield self._build_row_batch(changes, offset)

    def _get_decoders(self) -> tuple[DecodeEvent, Callable[[Any], Row]]:
        """Return the decoder of row events and the row function of the active definition; without one,
        rows are refused.
        """
        active = self._active
        return (decode_none, self._refuse_undefined) if active is None else (active.decode_row, active.row)

    def _decode_uncommon(self, offset: int, raw: bytes) -> Any:
        """Decode an event that the fast decoder refused: not a row, another envelope version, or not for
        this unit.

        Raises UnitStoppedError if it is not an event, has a newer major version, belongs to another
        table, or does not fit the definition.
        """
        active, topic = self._active, self._topic
        try:
            event = decode_any(raw) if active is None else active.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise build_event_error(topic, offset, raw, error) from error
        source = decode_full_event(topic, offset, raw).source  # checks the version
        if active is not None and (source.db, source.table) != (active.source.db, active.source.name):
            raise UnitStoppedError(
                f"{topic} offset {offset}: the topic of {active.source.db}.{active.source.name} "
                f"has an event of {source.db}.{source.table}, and rows of two tables in one "
                "topic cannot be distinguished",
                START_OVER,
            )
        return event

    def _collect_undecodable(self, offset: int, raw: bytes, event: Any, changes: list[RowChange]) -> None:
        """Collect a row with undecodable values.

        It is refused if the row after the change has one of them.
        """
        active, source, marked = self._active, event.source, event.undecodable
        if active is None:
            raise build_undefined_error(self._topic)
        undecodable.check_key(active, marked, f"{self._topic} offset {offset}")
        if self._dedup.judge_record(offset, source.position, source.prev, source.gen):
            self.dropped += 1
            return
        table, row = active.written, active.row
        before = (
            None
            if event.before is None
            else undecodable.clear_undecodable(row(event.before), table, marked.before)
        )
        after = (
            None
            if event.after is None
            else undecodable.clear_undecodable(row(event.after), table, marked.after)
        )
        refused = undecodable.explain_undecodable(table, marked.after) if marked.after else None
        place = (source.position, source.gen, source.ts_ms)
        read = event.op == SNAPSHOT_READ
        changes.append(RowChange((offset, 0), before, after, *place, raw, refused, read))

    def _refuse_undefined(self, _image: Any) -> Row:
        raise build_undefined_error(self._topic)

    def _build_barrier(self, offset: int, raw: bytes) -> ReaderItem:
        event = decode_full_event(self._topic, offset, raw)
        source = event.source
        self._mark = (offset, source.position, source.gen, source.ts_ms)
        match event.op:
            case "t":
                return Truncated(self._mark)
            case "p":
                return RowsRemoved(self._mark, event)
            case "k" if event.copy is not None:
                return KeySweepBegun(self._mark)
            case "k":
                active = self._active
                if active is None or not active.is_key_given:
                    return KeysRead(self._mark, ())
                return KeysRead(self._mark, active.convert_keys(event.keys or ()))
        return TopicNotice(self._mark, event)


def build_undefined_error(topic: str) -> CopyNeededError:
    """Return the error of a row without an active definition."""
    return CopyNeededError(
        (
            f"{topic}: the first events are rows without a table definition before them: the "
            "beginning of the topic was deleted"
        ),
        cause="gap",
    )
