"""Sends the chunks of snapshots to the tables' topics, and numbers the position rows of snapshot events."""

from __future__ import annotations

from collections.abc import Callable

from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.kafka.control_events import encode_whole_chunk
from producer.ports import Clock, EventWriter
from producer.snapshot.jobs import SnapshotJob
from producer.sources.chunk_data import EmitChunk
from producer.start.started import StartedCapture
from producer.stops import build_oversized_row_stop
from producer.tables import TopicState, format_table_name
from schemas.wire.position import FIRST_SNAPSHOT_ROW, LogPoint, Position

_ROWS_PER_GEN = 1 << 32
CHUNK_S = 1.0
"""Seconds that a chunk of a copy with a rate may take. A chunk that was read before the rate fell would
take longer.
"""
_GENS = 1 << 20


class ChunkSender:
    """Sends the chunks of a run, each with rows and marker, and updates the copies
    (`StartedCapture.copies`).
    """

    def __init__(self, started: StartedCapture, writer: EventWriter, clock: Clock) -> None:
        self._context: SourceContext = started.context
        self._server_id = started.record.identity.server_id
        self._copies = started.copies
        self._limits = started.limits
        self._writer = writer
        self._clock = clock
        self._next_row: dict[str, int] = {}

    def reserve_row(self, topic: TopicState) -> int:
        """Return the next position row of the topic's snapshot events."""
        row = self._next_row.get(topic.name)
        if row is None:
            row = compute_first_row(self._context.gen, topic.ceiling)
            self._next_row[topic.name] = row
        return row

    def take_row(self, topic: TopicState, rows: int = 1) -> None:
        """Mark the next `rows` position rows as used."""
        self._next_row[topic.name] = self.reserve_row(topic) + rows

    def has_passed_topic(self, topic: TopicState, point: LogPoint) -> bool:
        """Return whether the position of snapshot rows at `point` would be above everything in the
        topic.
        """
        ceiling = topic.ceiling
        return ceiling is None or (self._context.epoch, *point, self.reserve_row(topic)) > ceiling

    def send_chunk(self, job: SnapshotJob, chunk: EmitChunk, file: str) -> None:
        """Send a chunk's rows and its marker, at its place in `file` of the log.

        Raises TableStoppedError if Kafka rejects a row as too large.
        """
        state, (number, pos) = job.table, chunk.at
        transaction = TransactionContext(
            id=f"snapshot:{file}:{pos}", gtid=None, file=file, file_number=number, pos=pos,
            ts_ms=self._clock.now_ms(), server_id=self._server_id, made_ms=self._clock.now_ms(),
        )  # fmt: skip
        first, before = self.reserve_row(state.topic), state.topic.tail.last
        records = encode_whole_chunk(
            chunk, self._context, state.topic.tail, transaction, first_row=first, copy=job.build_copy_mark()
        )
        topic = state.topic.name
        fit, size = self._limits.count_fitting(topic, records)
        if fit < len(records):
            state.topic.tail.last = before
            raise build_oversized_row_stop(state.name, records[fit], topic, self._limits.get_limit(topic))
        self.take_row(state.topic, len(records))
        *rows, (key, value) = records
        self._writer.send_all(topic, rows, size - len(key) - len(value))
        self._writer.send(topic, key, value, self._make_stored_callback(job, last=chunk.upto is None))
        if (asked := self._copies.states.find_fulfilled_request(state)) is not None:
            if asked.max_rows_per_second:
                took = len(chunk.rows) / asked.max_rows_per_second
                job.delay_next_chunk(min(took, CHUNK_S), self._clock.seconds())
            self._copies.states.add_sent_rows(format_table_name(state.name), asked.id, len(chunk.rows))

    def _make_stored_callback(self, job: SnapshotJob, *, last: bool) -> Callable[[int], None]:
        """Return the callback for a marker that is in the topic. Another copy may have begun by then."""
        state, begun = job.table, job.table.begun

        def record_marker(offset: int) -> None:
            if state.begun != begun:
                return
            state.record_marker(offset)
            if last and begun is not None:
                self._copies.mark_copy_ended(
                    format_table_name(state.name), begun.mark.id, self._clock.now_ms()
                )

        return record_marker


def compute_first_row(gen: int, ceiling: Position | None) -> int:
    """Return the position row of a run's first snapshot event in a topic that ends at `ceiling`.

    It is above all that any earlier run can have used. The ranges of the gens repeat after 2^20 gens,
    which is 17 minutes where a gen is a coordinator's time in milliseconds. So in a topic that ends in a
    snapshot row the numbers continue after it. Otherwise, on an idle source, where all events have one
    place of the log, the rows would be too low, and the snapshot would wait for ever.
    """
    row = FIRST_SNAPSHOT_ROW + (gen - 1) % _GENS * _ROWS_PER_GEN
    return row if ceiling is None or ceiling[3] >= 0 else max(row, ceiling[3] + 1)
