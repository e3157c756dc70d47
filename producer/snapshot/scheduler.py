"""Drives the snapshots of all tables between the transactions of the stream (design.md §5).

The rules are in producer/snapshot/chunks.py, and how far each table is in snapshot_tables.py; here is which are under way at once. Chunks are read on helper threads (jobs.py),
and sent with position rows of their own (chunk_sender.py). A table's snapshot does not begin before the stream
has passed everything that its topic already holds: readers would drop its rows as old. A copy of a table (docs/adr/0025) is a
snapshot whose begin event is in the topic already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from producer.copies.book import CopyBook
from producer.decoders.row_codec import SourceContext
from producer.ports import Clock, EventWriter
from producer.resume.started import StartedCapture
from producer.resume.topic_recovery import TableTail
from producer.snapshot import chunks
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.jobs import ChunkReaderLanes, SnapshotJob, compute_chunk_rows
from producer.snapshot.resume import resume_point
from producer.snapshot.snapshot_tables import SnapshotTables
from producer.source import ChunkQueue
from producer.sources.binlog.mysql_gtids import GtidSet
from producer.sources.chunk_data import ChunkRefused, EmitChunk, LogMark, ReadChunk
from producer.tables import TableName, TableState, format_table_name
from schemas.table.model import Key, is_same_definition
from schemas.wire.position import LogPoint, parse_binlog_file_number

_log = structlog.get_logger("capture")

#: Tables whose chunks are read at the same time.
MAX_CONCURRENT_SNAPSHOTS = 3


class SnapshotScheduler:
    """All snapshots of a run. Every method is called from the thread that reads the stream.

    `wanted`: whether the source's tables are snapshotted at all. `open_reader`, `chunk_rows`: see Ports.
    `delivered`: the set, still empty, of the GTIDs that the stream brings, where LOW is such a set. `tables`: how far each is. `refused`:
    (table, reason) of copies whose condition the source does not take. `sender`: what sends their chunks.
    """

    def __init__(
        self,
        started: StartedCapture,
        writer: EventWriter,
        open_reader: Callable[[LogPoint], ChunkQueue],
        clock: Clock,
        chunk_rows: int,
        *,
        wanted: bool,
        delivered: GtidSet | None,
    ) -> None:
        self._context: SourceContext = started.context
        self.tables = SnapshotTables(started.copies.states)
        self.sender = ChunkSender(started, writer, clock)
        self._clock = clock
        self._chunk_rows = chunk_rows
        self._copies: CopyBook = started.copies
        self._wanted = wanted
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

    # --- what capture asks

    @property
    def ready(self) -> bool:
        """Tell whether there is a table that can go on at once. Never without a table: `advance` is not called then."""
        return self._goes_on and self.tables.active

    # --- what capture tells

    def add_table(self, state: TableState) -> None:
        """Take up a table, where its topic says that its snapshot or its copy stands."""
        if (self._wanted or state.begun is not None) and state.ignored is None:
            self.tables.waiting[state.name] = state

    def add_copy(self, state: TableState) -> None:
        """A copy of the table has begun in its topic."""
        self.tables.forget_table(state.name)
        self.tables.waiting[state.name] = state

    def record_delivered(self, gtid: str | None) -> None:
        """A transaction of the stream is over."""
        if self._delivered is not None and gtid is not None:
            self._delivered.add(gtid)

    def handle_rows(self, state: TableState, mark: LogMark, keys: Sequence[Key]) -> None:
        """Rows of a table that is `under_way` passed."""
        job = self.tables.jobs[state.name]
        job.state, _ = job.machine.apply_event(
            job.state, chunks.RowsPassed(mark, keys), self._clock.seconds()
        )

    def handle_table_change(self, state: TableState, mark: LogMark) -> None:
        """The table's rows or form changed by a statement; a table new to capture is taken up."""
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
        """The stream stands between transactions at `file`, `pos`: take in answers, emit what is due, begin what waits."""
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
        elif asked is not None:  # its last marker was the last that the process before did
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
        """Feed what was read to whom it is for; returns whether there was anything."""
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
