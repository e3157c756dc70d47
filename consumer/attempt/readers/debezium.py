"""The reader of a topic that Debezium writes.

It differs from the reader of rowlock's own topics: every event goes through Debezium's decoder, snapshot
rows have no position of their own, no event in the topic defines the table, and neither a gap nor a
replaced connector is visible. One sign of a replaced connector is checked: a repeated position must
belong to the same event; otherwise the connector reads another log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consumer.attempt.readers.reader import (
    ReaderItem,
    RecordReader,
    RecordSlice,
    SnapshotEnd,
    Truncated,
    build_undefined_error,
)
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.dedup import DuplicateVerdict
from consumer.ordering.model import LaneProgress, RowChange
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import SNAPSHOT_READ
from schemas.errors import EnvelopeError
from schemas.findings import START_OVER
from schemas.table.model import Row
from schemas.wire.debezium import DebeziumChange
from schemas.wire.position import Position

LOG_REPEAT_MS = 60_000
"""Tolerance in ms for clocks that differ: a repeated event was committed before the last applied one, by
the source's clock."""
MAX_REMEMBERED = 1000
"""Number of rows of one log event that are kept, to check whether events that repeat their positions are
the same."""


class DebeziumReader(RecordReader):
    """Reads the topics that Debezium writes.

    Commit times only rise, so the highest one shows how far the log is read. `_last`: the offset of the
    last row of the snapshot with which the unit continues; None if there is no snapshot.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._newest = 0
        self._last: int | None = None

    def begin_reading(self, rows: Sequence[LaneProgress], active: ActiveDefinition | None) -> None:
        super().begin_reading(rows, active)
        if self._dedup.gen:
            raise UnitStoppedError(
                f"{self._topic}: rowlock captured this source itself before, in the same topics",
                f"give the source another name, or {START_OVER}",
            )
        self._newest = max(self._newest, *(row.commit_ts_ms for row in rows))
        snapshot = None if active is None else active.stored.snapshot
        self._last = None if snapshot is None else snapshot[1]
        self._event_at: tuple[int, ...] = ()
        self._rows_there: dict[Position, tuple[str, Row | None, Row | None]] = {}

    def read_slice(self, records: RecordSlice) -> Iterator[ReaderItem]:
        changes: list[RowChange] = []
        offset = self._mark[0]
        try:
            for offset, raw in records:
                if raw is None:
                    continue  # the tombstone after a delete
                if offset == self._last:
                    yield self._build_row_batch(changes, offset - 1)
                    changes = []
                    yield SnapshotEnd(self._mark)
                event = self._decode_event(offset, raw)
                if verdict := self._dedup.judge_record(offset, event.source.position, None, 0):
                    if verdict == DuplicateVerdict.DUPLICATE:
                        self._check_again(offset, event)
                    self.dropped += 1
                    continue
                self._note_event(event)
                if event.op == "t":
                    yield self._build_row_batch(changes, offset - 1)
                    changes = []
                    self._mark = (offset, self._dedup.position, 0, self._newest)
                    yield Truncated(self._mark)
                else:
                    changes.append(self._build_change(offset, event, raw))
        except UnitStoppedError:
            yield self._build_row_batch(changes, offset - 1)
            raise
        yield self._build_row_batch(changes, offset)

    def _decode_event(self, offset: int, raw: bytes) -> DebeziumChange:
        """Decode a record.

        Raises UnitStoppedError if it does not fit the table's definition, or there is none.
        """
        active, topic = self._active, self._topic
        if active is None:
            raise UnitStoppedError(f"{topic}: no definition of the table is active", "restart rowlock")
        return decode_debezium_record(topic, active, offset, raw)

    def _build_change(self, offset: int, event: DebeziumChange, raw: bytes) -> RowChange:
        if self._active is None:
            raise build_undefined_error(self._topic)
        row = self._active.row
        before = None if event.before is None else row(event.before)
        after = None if event.after is None else row(event.after)
        read = event.op == SNAPSHOT_READ
        return RowChange((offset, 0), before, after, self._dedup.position, 0, self._newest, raw, None, read)

    def _note_event(self, event: DebeziumChange) -> None:
        """Remember an accepted event of the log."""
        place = event.source
        if place.position is None:
            return
        self._newest = max(self._newest, place.ts_ms)
        if place.position[:3] != self._event_at:
            self._event_at = place.position[:3]
            self._rows_there.clear()
        if len(self._rows_there) < MAX_REMEMBERED:
            self._rows_there[place.position] = (event.op, event.before, event.after)

    def _check_again(self, offset: int, event: DebeziumChange) -> None:
        """Raise UnitStoppedError if an event that would be dropped as a duplicate cannot be one."""
        place, at = event.source, f"{self._topic} offset {offset}"
        if place.ts_ms > self._newest + LOG_REPEAT_MS:
            raise UnitStoppedError(
                f"{at}: the event was committed after everything that was applied, but its log position "
                f"{place.position} is not above {self._dedup.position}: the source's log was reset, or "
                "Debezium reads another server",
                START_OVER,
            )
        known = self._rows_there.get(place.position) if place.position is not None else None
        if known not in (None, (event.op, event.before, event.after)):
            raise CopyNeededError(
                (f"{at}: two different events have the log position {place.position}, because Debezium "
"gives all events of a compressed transaction the same position"),
                cause="event", after=offset, first="set binlog_transaction_compression=OFF at the source",
            )  # fmt: skip


def decode_debezium_record(topic: str, active: ActiveDefinition, offset: int, raw: bytes) -> DebeziumChange:
    """Return the change in a record.

    Raises CopyNeededError if it does not fit the active definition, UnitStoppedError if it belongs to
    another table.
    """
    try:
        event: DebeziumChange = active.decode_row(raw)
    except EnvelopeError as error:
        problem = error.problem
        raise CopyNeededError(
            f"{topic} offset {offset}: {problem.what}", cause="event", after=offset, first=problem.remedy
        ) from error
    table, place = active.source, event.source
    if (place.db, place.table) != (table.db, table.name):
        raise UnitStoppedError(
            f"{topic} offset {offset}: the topic of {table.db}.{table.name} has an event of "
            f"{place.db}.{place.table}",
            "let the connector write each table to a topic of its own",
        )
    return event
