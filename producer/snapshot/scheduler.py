"""Drives the snapshots of all tables between the transactions of the stream.

The rules are in producer/snapshot/chunks.py, and the progress of each table is in snapshot_tables.py.
This module decides which snapshots run at once. Chunks are read on helper threads (jobs.py), and sent
with position rows of their own (chunk_sender.py). A table's snapshot does not begin before the stream
has passed everything that its topic already holds: readers would drop its rows as old. A copy of a table
(docs/adr/0025) is a snapshot with a begin event that is in the topic already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from producer.copies.book import CopyBook
from producer.decoders.row_codec import SourceContext
from producer.ports import Clock, EventWriter
from producer.snapshot import chunks
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.jobs import ChunkReaderLanes, SnapshotJob, compute_chunk_rows
from producer.snapshot.resume import resume_point
from producer.snapshot.snapshot_tables import SnapshotTables
from producer.sources.chunk_data import ChunkRefused, EmitChunk, LogMark, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.protocols import ChunkQueue
from producer.start.started import StartedCapture
from producer.start.topic_recovery import TableTail
from producer.tables import TableName, TableState, format_table_name
from schemas.table.model import Key, is_same_definition
from schemas.wire.position import LogPoint, parse_binlog_file_number

_log = structlog.get_logger("capture")

#: Tables with chunks that are read at the same time.
MAX_CONCURRENT_SNAPSHOTS = 3


class SnapshotScheduler:
    """All snapshots of a run. Every method is called from the thread that reads the stream.

    `enabled`: whether the source's tables get snapshots at all. `open_reader`, `chunk_rows`: see Ports.
    `delivered`: the set, initially empty, of the GTIDs that the stream delivers, where LOW is such a
    set. `tables`: the progress of each. `refused`: (table, reason) of copies with a condition that the
    source rejects. `sender`: sends their chunks.
    """

    def __init__(
        self,
        started: StartedCapture,
        writer: EventWriter,
        open_reader: Callable[[LogPoint], ChunkQueue],
        clock: Clock,
        chunk_rows: int,
        *,
        enabled: bool,
        delivered: GtidSet | None,
    ) -> None:
        self._context: SourceContext = started.context
        self.tables = SnapshotTables(started.copies.states)
        self.sender = ChunkSender(started, writer, clock)
        self._clock = clock
        self._chunk_rows = chunk_rows
        self._copies: CopyBook = started.copies
        self._enabled = enabled
        self._tails: dict[TableName, TableTail] = started.tails
        self._delivered = delivered
        record = started.record
        begin = (parse_binlog_file_number(record.file), record.pos)
        self._lanes = ChunkReaderLanes(lambda: open_reader(begin))
        self._file = record.file
        self._goes_on = False
        self.refused: list[tuple[TableName, str]] = []
        for state in started.captured.tables.values():
            self.add_table(state)

    # --- queries

    @property
    def ready(self) -> bool:
        """True if a table can continue at once.

        False without a table: `advance_snapshots` is not called then.
        """
        return self._goes_on and self.tables.active

    # --- events

    def add_table(self, state: TableState) -> None:
        """Add a table at the place where its topic has its snapshot or its copy."""
        if (self._enabled or state.begun is not None) and state.ignored is None:
            self.tables.waiting[state.name] = state

    def add_copy(self, state: TableState) -> None:
        """Record that a copy of the table has begun in its topic."""
        self.tables.forget_table(state.name)
        self.tables.waiting[state.name] = state

    def record_delivered(self, gtid: str | None) -> None:
        """Record the end of a transaction of the stream."""
        if self._delivered is not None and gtid is not None:
            self._delivered.add(gtid)

    def handle_rows(self, state: TableState, mark: LogMark, keys: Sequence[Key]) -> None:
        """Record rows of a table with a running snapshot."""
        job = self.tables.jobs[state.name]
        job.state, _ = job.machine.apply_event(
            job.state, chunks.RowsPassed(mark, keys), self._clock.seconds()
        )

    def handle_table_change(self, state: TableState, mark: LogMark) -> None:
        """Record that a statement changed the table's rows or form. Add a table that is new."""
        job = self.tables.jobs.get(state.name)
        if state.ignored is not None:
            self.tables.forget_table(state.name)
        elif job is not None:
            self._handle_job_change(job, mark)
        elif format_table_name(state.name) not in self.tables.done and not self.tables.goes_on(state.name):
            self.add_table(state)

    def _handle_job_change(self, job: SnapshotJob, mark: LogMark) -> None:
        was, now = job.state.table, job.table.table
        if self._copies.states.find_fulfilled_request(job.table) is not None and not is_same_definition(
            was, now
        ):
            del self.tables.jobs[job.table.name]
            self._copies.mark_table_altered(format_table_name(job.table.name))
        elif was.key.columns != now.key.columns:
            del self.tables.jobs[job.table.name]
            self.tables.unbegun[job.table.name] = job.table
        else:
            self._step_job(job, chunks.TableChanged(mark, now))

    def advance_snapshots(self, file: str, pos: int) -> None:
        """Process answers, emit what is due and begin waiting snapshots, between transactions at `file`,
        `pos`.
        """
        point = (parse_binlog_file_number(file), pos)
        self._file = file
        self._goes_on = self._take_answers()
        for job in list(self.tables.jobs.values()):
            self._step_job(job, chunks.StreamReached(point, self._delivered))
        while len(self.tables.jobs) < MAX_CONCURRENT_SNAPSHOTS:
            due = self.tables.take_due_table(lambda topic: self.sender.has_passed_topic(topic, point))
            if due is None:
                break
            self._begin_snapshot(due, point)

    def close(self) -> None:
        """Stop reading; waits for a SELECT in flight."""
        self._lanes.close()

    # --- inside

    def _begin_snapshot(self, state: TableState, point: LogPoint) -> None:
        resume = resume_point(state, self._tails.get(state.name), self._copies.states)
        asked = self._copies.states.find_fulfilled_request(state)
        if resume is None:
            self.tables.unbegun[state.name] = state
            return
        job = SnapshotJob(state, chunks.SnapshotMachine(compute_chunk_rows(self._chunk_rows, asked)))
        job.state, effects = job.machine.start_snapshot(
            state.table, point, self._delivered, resume, self._clock.seconds()
        )
        job.lane = self._lanes.find_free_lane(self.tables.jobs.values())
        self.tables.jobs[state.name] = job
        if not resume.done:
            _log.info("snapshot continued", table=format_table_name(state.name), chunk=resume.number)
        elif asked is not None:  # the earlier process ended after its last marker
            self._copies.mark_copy_ended(format_table_name(state.name), asked.id, self._clock.now_ms())
        self._carry_out(job, effects)

    def _step_job(self, job: SnapshotJob, event: chunks.SnapshotEvent) -> None:
        job.machine.chunk_rows = compute_chunk_rows(
            self._chunk_rows, self._copies.states.find_fulfilled_request(job.table)
        )
        job.state, effects = job.machine.apply_event(job.state, event, self._clock.seconds())
        if effects:
            self._carry_out(job, effects)

    def _carry_out(self, job: SnapshotJob, effects: list[chunks.SnapshotEffect]) -> None:
        for effect in effects:
            match effect:
                case ReadChunk():
                    job.lane.asked.append(job)
                    job.lane.reader.submit(
                        job.apply_pace(effect, self._copies.states.find_fulfilled_request(job.table))
                    )
                case EmitChunk():
                    self.sender.send_chunk(job, effect, self._file)
                case chunks.SnapshotDone():
                    name = job.table.name
                    self.tables.finish_table(name)
                    _log.info("snapshot completed", source=self._context.name, table=format_table_name(name))

    def _take_answers(self) -> bool:
        """Give each answer to its job. Return whether there was any."""
        taken = False
        for job, answer in self._lanes.yield_answers():
            if self.tables.jobs.get(job.table.name) is not job:
                continue
            taken = True
            if isinstance(answer, ChunkRefused):
                del self.tables.jobs[job.table.name]
                self.refused.append((job.table.name, answer.reason))
            else:
                self._step_job(job, answer)
        return taken
