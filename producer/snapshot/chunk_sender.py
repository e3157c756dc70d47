"""Sends the chunks of snapshots to the tables' topics, and counts the position rows of snapshot events."""

from __future__ import annotations

from collections.abc import Callable

from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.kafka.control_events import encode_whole_chunk
from producer.kafka.settings import fitting
from producer.ports import Clock, EventWriter
from producer.resume.started import Started
from producer.snapshot.jobs import SnapshotJob
from producer.sources.chunk_data import EmitChunk
from producer.stops import too_large
from producer.tables import TopicState, dotted
from schemas.wire.position import FIRST_SNAPSHOT_ROW, LogPoint, Position

_ROWS_PER_GEN = 1 << 32
CHUNK_S = 1.0
"""The time that a chunk of a copy with a rate may take; one that was read before the rate fell would take longer."""
_GENS = 1 << 20


class ChunkSender:
    """Sends the chunks of a run, each with rows and marker; the copies (`Started.copies`) learn what was sent."""

    def __init__(self, started: Started, writer: EventWriter, clock: Clock) -> None:
        self._context: SourceContext = started.context
        self._server_id = started.record.identity.server_id
        self._copies = started.copies
        self._writer = writer
        self._clock = clock
        self._next_row: dict[str, int] = {}

    def next_row(self, topic: TopicState) -> int:
        """Return the next position row of the topic's snapshot events."""
        row = self._next_row.get(topic.name)
        if row is None:
            row = first_row(self._context.gen, topic.ceiling)
            self._next_row[topic.name] = row
        return row

    def take_row(self, topic: TopicState, rows: int = 1) -> None:
        """The next `rows` of them have an event."""
        self._next_row[topic.name] = self.next_row(topic) + rows

    def passed(self, topic: TopicState, point: LogPoint) -> bool:
        """Tell whether snapshot rows at `point` would stand above everything in the topic."""
        ceiling = topic.ceiling
        return ceiling is None or (self._context.epoch, *point, self.next_row(topic)) > ceiling

    def send(self, job: SnapshotJob, chunk: EmitChunk, file: str) -> None:
        """Send a chunk's rows and its marker, at its place in `file` of the log. Raises TableStoppedError where Kafka takes no such row."""
        state, (number, pos) = job.table, chunk.at
        transaction = TransactionContext(
            id=f"snapshot:{file}:{pos}", gtid=None, file=file, file_number=number, pos=pos,
            ts_ms=self._clock.now_ms(), server_id=self._server_id, made_ms=self._clock.now_ms(),
        )  # fmt: skip
        first, before = self.next_row(state.topic), state.topic.tail.last
        records = encode_whole_chunk(
            chunk, self._context, state.topic.tail, transaction, first_row=first, copy=job.mark()
        )
        fit, size = fitting(records)
        if fit < len(records):
            state.topic.tail.last = before
            key, value = records[fit]
            raise too_large(state.name, key, len(key) + len(value))
        self.take_row(state.topic, len(records))
        *rows, (key, value) = records
        self._writer.send_all(state.topic.name, rows, size - len(key) - len(value))
        self._writer.send(state.topic.name, key, value, self._when_stored(job, last=chunk.upto is None))
        if (asked := self._copies.states.fulfilled(state)) is not None:
            if asked.max_rows_per_second:
                took = len(chunk.rows) / asked.max_rows_per_second
                job.due = max(job.due, self._clock.seconds()) + min(took, CHUNK_S)
            self._copies.states.sent(dotted(state.name), asked.id, len(chunk.rows))

    def _when_stored(self, job: SnapshotJob, *, last: bool) -> Callable[[int], None]:
        """Return what is done once a marker is in the topic. The copy may be another one by then."""
        state, begun = job.table, job.table.begun

        def stored(offset: int) -> None:
            if state.begun != begun:
                return
            state.marker_offset = job.since = offset
            if last and begun is not None:
                self._copies.ended(dotted(state.name), begun.mark.id, self._clock.now_ms())

        return stored


def first_row(gen: int, ceiling: Position | None) -> int:
    """Return the position row of a run's first snapshot event in a topic that ends at `ceiling`.

    It is above all that any run before can have used. The generations' stretches begin anew after 2^20 of them, which is
    17 minutes where a generation is a coordinator's time in milliseconds: so a topic that ends in a snapshot row goes on behind it, or
    on an idle source, where all stand at one place of the log, the rows would be too low, and the snapshot would wait for ever.
    """
    row = FIRST_SNAPSHOT_ROW + (gen - 1) % _GENS * _ROWS_PER_GEN
    return row if ceiling is None or ceiling[3] >= 0 else max(row, ceiling[3] + 1)
