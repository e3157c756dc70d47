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
from producer.resume.started import Started
from producer.resume.topic_recovery import Tail
from producer.snapshot import chunks
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.jobs import ReaderLanes, SnapshotJob, rows_at_once
from producer.snapshot.resume import resume_point
from producer.snapshot.snapshot_tables import SnapshotTables
from producer.source import ChunkQueue
from producer.sources.binlog.mysql_gtids import GtidSet
from producer.sources.chunk_data import ChunkRefused, EmitChunk, LogMark, ReadChunk
from producer.tables import TableName, TableState, dotted
from schemas.table.model import Key, same_definition
from schemas.wire.position import LogPoint, binlog_file_number

_log = structlog.get_logger("capture")

#: Tables whose chunks are read at the same time.
AT_ONCE = 3


class Snapshots:
    """All snapshots of a run. Every method is called from the thread that reads the stream.

    `wanted`: whether the source's tables are snapshotted at all. `open_reader`, `chunk_rows`: see Ports.
    `delivered`: the set, still empty, of the GTIDs that the stream brings, where LOW is such a set. `tables`: how far each is. `refused`:
    (table, reason) of copies whose condition the source does not take. `sender`: what sends their chunks.
    """

    def __init__(
        self,
        started: Started,
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
        self._tails: dict[TableName, Tail] = started.tails
        self._delivered = delivered
        record = started.record
        begin = (binlog_file_number(record.file), record.pos)
        self._lanes = ReaderLanes(lambda: open_reader(begin))
        self._file = record.file
        self._goes_on = False
        self.refused: list[tuple[TableName, str]] = []
        for state in started.captured.tables.values():
            self.add(state)

    # --- what capture asks

    @property
    def ready(self) -> bool:
        """Tell whether there is a table that can go on at once. Never without a table: `advance` is not called then."""
        return self._goes_on and self.tables.active

    # --- what capture tells

    def add(self, state: TableState) -> None:
        """Take up a table, where its topic says that its snapshot or its copy stands."""
        if (self._wanted or state.begun is not None) and state.ignored is None:
            self.tables.waiting[state.name] = state

    def copy(self, state: TableState) -> None:
        """A copy of the table has begun in its topic."""
        self.tables.forget(state.name)
        self.tables.waiting[state.name] = state

    def delivered(self, gtid: str | None) -> None:
        """A transaction of the stream is over."""
        if self._delivered is not None and gtid is not None:
            self._delivered.add(gtid)

    def rows_seen(self, state: TableState, mark: LogMark, keys: Sequence[Key]) -> None:
        """Rows of a table that is `under_way` passed."""
        job = self.tables.jobs[state.name]
        job.state, _ = job.machine.step(job.state, chunks.RowsSeen(mark, keys), self._clock.seconds())

    def table_changed(self, state: TableState, mark: LogMark) -> None:
        """The table's rows or form changed by a statement; a table new to capture is taken up."""
        job = self.tables.jobs.get(state.name)
        if state.ignored is not None:
            self.tables.forget(state.name)
        elif job is not None:
            self._job_changed(job, mark)
        elif dotted(state.name) not in self.tables.done and not self.tables.goes_on(state.name):
            self.add(state)

    def _job_changed(self, job: SnapshotJob, mark: LogMark) -> None:
        was, now = job.state.table, job.table.table
        if self._copies.states.fulfilled(job.table) is not None and not same_definition(was, now):
            del self.tables.jobs[job.table.name]
            self._copies.altered(dotted(job.table.name))
        elif was.key.columns != now.key.columns:
            del self.tables.jobs[job.table.name]
            self.tables.unbegun[job.table.name] = job.table
        else:
            self._step(job, chunks.TableChanged(mark, now))

    def advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions at `file`, `pos`: take in answers, emit what is due, begin what waits."""
        point = (binlog_file_number(file), pos)
        self._file = file
        self._goes_on = self._take_answers()
        for job in list(self.tables.jobs.values()):
            self._step(job, chunks.StreamAt(point, self._delivered))
        while len(self.tables.jobs) < AT_ONCE:
            due = self.tables.due(lambda topic: self.sender.passed(topic, point))
            if due is None:
                break
            self._begin(due, point)

    def close(self) -> None:
        """Stop reading; waits for a SELECT in flight."""
        self._lanes.close()

    # --- inside

    def _begin(self, state: TableState, point: LogPoint) -> None:
        resume = resume_point(state, self._tails.get(state.name), self._copies.states)
        asked = self._copies.states.fulfilled(state)
        if resume is None:
            self.tables.unbegun[state.name] = state
            return
        job = SnapshotJob(state, chunks.SnapshotMachine(rows_at_once(self._chunk_rows, asked)))
        job.state, effects = job.machine.start(
            state.table, point, self._delivered, resume, self._clock.seconds()
        )
        job.lane = self._lanes.free(self.tables.jobs.values())
        self.tables.jobs[state.name] = job
        if not resume.done:
            _log.info("snapshot goes on", table=dotted(state.name), chunk=resume.number)
        elif asked is not None:  # its last marker was the last that the process before did
            self._copies.ended(dotted(state.name), asked.id, self._clock.now_ms())
        self._carry_out(job, effects)

    def _step(self, job: SnapshotJob, event: chunks.Event) -> None:
        job.machine.chunk_rows = rows_at_once(self._chunk_rows, self._copies.states.fulfilled(job.table))
        job.state, effects = job.machine.step(job.state, event, self._clock.seconds())
        if effects:
            self._carry_out(job, effects)

    def _carry_out(self, job: SnapshotJob, effects: list[chunks.Effect]) -> None:
        for effect in effects:
            match effect:
                case ReadChunk():
                    job.lane.asked.append(job)
                    job.lane.reader.submit(job.paced(effect, self._copies.states.fulfilled(job.table)))
                case EmitChunk():
                    self.sender.send(job, effect, self._file)
                case chunks.SnapshotDone():
                    name = job.table.name
                    self.tables.finish(name)
                    _log.info("snapshot complete", source=self._context.name, table=dotted(name))

    def _take_answers(self) -> bool:
        """Feed what was read to whom it is for; returns whether there was anything."""
        taken = False
        for job, answer in self._lanes.answers():
            if self.tables.jobs.get(job.table.name) is not job:
                continue
            taken = True
            if isinstance(answer, ChunkRefused):
                del self.tables.jobs[job.table.name]
                self.refused.append((job.table.name, answer.reason))
            else:
                self._step(job, answer)
        return taken
