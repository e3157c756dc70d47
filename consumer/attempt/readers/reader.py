"""From Kafka records to row changes and barriers: decode, judge duplicates, collect. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from consumer.attempt.readers.kafka_reader import Record
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.dedup import Deduplicator
from consumer.ordering.model import LaneProgress, RowChange
from consumer.ordering.progress import Mark
from consumer.tables import undecodable
from consumer.tables.definition import InForce
from consumer.tables.event_decoder import (
    ROW_OPS,
    SNAPSHOT_READ,
    Decode,
    bad_event,
    decode_any,
    decode_none,
    full_event,
)
from schemas.findings import START_OVER
from schemas.table.model import Row
from schemas.wire.event import Event

Slice = list[Record]
"""Records of one topic in offset order."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Row changes in offset order; with them everything up to `mark` is taken."""

    changes: list[RowChange]
    mark: Mark


@dataclass(frozen=True, slots=True)
class Emptied:
    """The source's table was emptied: a barrier at `mark`."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class TopicNotice:
    """An event that is neither row nor truncate (definition, stop, chunk marker): a barrier at `mark`."""

    mark: Mark
    event: Event


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The next record is the last row of a snapshot of Debezium's with which the unit goes on (consumer.attempt.copies.snapshots): a barrier at `mark`."""

    mark: Mark


Taken = Rows | Emptied | TopicNotice | SnapshotEnd


class RecordReader(ABC):
    """Turns the records of one topic into the events that are applied. `dropped`: records that were not new."""

    def __init__(self, topic: str) -> None:
        self.dropped = 0
        self._topic = topic

    def begin(self, rows: Sequence[LaneProgress], in_force: InForce | None) -> None:
        """An attempt begins, or goes on with another definition or layout: judge from the lane rows on."""
        lowest = min(rows, key=lambda row: row.offset)
        self._dedup = Deduplicator(rows)
        self._in_force = in_force
        self._mark: Mark = (lowest.offset, lowest.position, lowest.gen, lowest.commit_ts_ms)

    @abstractmethod
    def read(self, records: Slice) -> Iterator[Taken]:
        """Yield what `records` come to, in order; `begin` may be called behind a barrier.

        Raises UnitStoppedError at an event that cannot be applied, behind the rows before it.
        """

    def _rows(self, changes: list[RowChange], upto: int) -> Rows:
        """Everything up to the offset `upto` is taken; where nothing was applied, positions and times stay."""
        _, position, _, commit_ts_ms = self._mark
        if changes:
            position, commit_ts_ms = changes[-1].position, changes[-1].ts_ms
        self._mark = (upto, position, self._dedup.gen, commit_ts_ms)
        return Rows(changes, self._mark)


class EnvelopeReader(RecordReader):
    """Reads the topics that rowlock captures (design.md §4)."""

    def read(self, records: Slice) -> Iterator[Taken]:
        """The hot loop: no calls it can do without."""
        changes: list[RowChange] = []
        offset = self._mark[0]
        decode, row = self._tools()
        judge = self._dedup.judge
        try:
            for offset, raw in records:
                if raw is None:
                    continue
                is_row = True
                try:
                    event = decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    event = self._uncommon(offset, raw)
                    is_row = event.op in ROW_OPS
                    if event.undecodable is not None and is_row:
                        self._marked(offset, raw, event, changes)
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
                    yield self._rows(changes, offset - 1)
                    changes = []
                    yield self._barrier(offset, raw)
                    decode, row = self._tools()
                    judge = self._dedup.judge
        except UnitStoppedError as error:
            if self._in_force is None and isinstance(error, CopyNeededError) and error.table is None and raw:
                source = full_event(self._topic, offset, raw).source
                error.table = source.db, source.table
            yield self._rows(changes, offset - 1)
            raise
        yield self._rows(changes, offset)

    def _tools(self) -> tuple[Decode, Callable[[Any], Row]]:
        """Return the decoder of row events and the row function of the definition in force; without one, no row passes."""
        in_force = self._in_force
        return (decode_none, self._no_definition) if in_force is None else (in_force.decode_row, in_force.row)

    def _uncommon(self, offset: int, raw: bytes) -> Any:
        """Decode an event that the fast decoder refused: not a row, of another envelope version, or not for this unit.

        Raises UnitStoppedError: not an event, a newer major version, another table, not what the definition says.
        """
        in_force, topic = self._in_force, self._topic
        try:
            event = decode_any(raw) if in_force is None else in_force.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_event(topic, offset, raw, error) from error
        source = full_event(topic, offset, raw).source  # looks at the version
        if in_force is not None and (source.db, source.table) != (in_force.source.db, in_force.source.name):
            raise UnitStoppedError(
                f"{topic} offset {offset}: an event of {source.db}.{source.table} in the topic of "
                f"{in_force.source.db}.{in_force.source.name}, and rows of two tables cannot be told apart there: {START_OVER}"
            )
        return event

    def _marked(self, offset: int, raw: bytes, event: Any, changes: list[RowChange]) -> None:
        """Collect a row with values that cannot be decoded: it is refused if it would leave one of them."""
        in_force, source, marked = self._in_force, event.source, event.undecodable
        if in_force is None:
            raise undefined(self._topic)
        undecodable.check_key(in_force, marked, f"{self._topic} offset {offset}")
        if self._dedup.judge(offset, source.position, source.prev, source.gen):
            self.dropped += 1
            return
        table, row = in_force.written, in_force.row
        before = (
            None if event.before is None else undecodable.without(row(event.before), table, marked.before)
        )
        after = None if event.after is None else undecodable.without(row(event.after), table, marked.after)
        refused = undecodable.refusal(table, marked.after) if marked.after else None
        place = (source.position, source.gen, source.ts_ms)
        read = event.op == SNAPSHOT_READ
        changes.append(RowChange((offset, 0), before, after, *place, raw, refused, read))

    def _no_definition(self, _image: Any) -> Row:
        raise undefined(self._topic)

    def _barrier(self, offset: int, raw: bytes) -> Taken:
        event = full_event(self._topic, offset, raw)
        source = event.source
        self._mark = (offset, source.position, source.gen, source.ts_ms)
        return Emptied(self._mark) if event.op == "t" else TopicNotice(self._mark, event)


def undefined(topic: str) -> CopyNeededError:
    """Return why rows without a definition stop the unit."""
    return CopyNeededError(
        f"{topic}: rows before any definition of the table: the beginning of the topic is missing",
        cause="gap",
    )
