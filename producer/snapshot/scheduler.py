"""Drives the snapshots of all tables between the transactions of the stream.

The rules are in producer/snapshot/chunks.py, and the progress of each table is in `SnapshotTables`.
This module decides which snapshots run at once. Chunks are read on helper threads (jobs.py), and sent
with position rows of their own (chunk_sender.py). A table's snapshot does not begin before the stream
has passed everything that its topic already holds: readers would drop its rows as old. A copy of a table
(docs/adr/0025) is a snapshot with a begin event that is in the topic already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from producer.copies.book import CopyBook
from producer.copies.states import CopyStates
from producer.decoders.row_codec import SourceContext
from producer.ports import Clock, EventWriter
from producer.snapshot import chunks
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.chunks import FROM_START, ResumePoint
from producer.snapshot.jobs import (
    ChunkReaderLanes,
    SnapshotJob,
    compute_chunk_rows,
    select_read_table,
)
from producer.sources.chunk_data import ChunkRefused, EmitChunk, LogMark, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.protocols import ChunkQueue
from producer.start.started import StartedCapture
from producer.start.topic_recovery import ChunkMarker, TableTail
from producer.tables import TableName, TableState, TopicState, format_table_name
from schemas.table.model import Key, Table, is_same_definition
from schemas.wire.position import LogPoint, parse_binlog_file_number


class SnapshotTables:
    """The tables with a snapshot or copy that is not complete.

    A table is in one of `waiting`, `jobs` (running) and `unbegun` (a copy has to begin before it
    continues), or in none. `done`: "db.table" of those with a snapshot that this run completed.
    `copies`: the requested copies.
    """

    def __init__(self, copies: CopyStates) -> None:
        self._copies = copies
        self.waiting: dict[TableName, TableState] = {}
        self.jobs: dict[TableName, SnapshotJob] = {}
        self.unbegun: dict[TableName, TableState] = {}
        self.done: set[str] = set()

    @property
    def pending(self) -> set[str]:
        """The tables ("db.table") that are not completely in their topics, without requested copies."""
        running = (job.table for job in self.jobs.values())
        own = [
            state
            for state in (*self.waiting.values(), *running)
            if self._copies.find_fulfilled_request(state) is None
        ]
        return {format_table_name(state.name) for state in (*own, *self.unbegun.values())}

    @property
    def active(self) -> bool:
        """True if any table is running or waiting."""
        return bool(self.jobs or self.waiting)

    def goes_on(self, name: TableName) -> bool:
        """Return whether the table's snapshot or copy is not completely sent."""
        return name in self.jobs or name in self.waiting or name in self.unbegun

    def is_under_way(self, name: TableName) -> bool:
        return name in self.jobs

    def take_due_table(self, passed: Callable[[TopicState], bool]) -> TableState | None:
        """Remove and return a waiting table with a topic that the stream has `passed`.

        None: there is none.
        """
        name = next((name for name, state in self.waiting.items() if passed(state.topic)), None)
        return None if name is None else self.waiting.pop(name)

    def finish_table(self, name: TableName) -> None:
        """Record that all chunks of a running table are sent."""
        del self.jobs[name]
        self.done.add(format_table_name(name))

    def forget_table(self, name: TableName) -> None:
        """Forget a table that was stopped, or its copy given up: the chunks that were read are not
        emitted.
        """
        self.jobs.pop(name, None)
        self.waiting.pop(name, None)
        self.unbegun.pop(name, None)


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
        job.apply_event(chunks.RowsPassed(mark, keys), self._clock.seconds())

    def handle_table_change(self, state: TableState, mark: LogMark) -> None:
        """Record that a statement changed the table's rows or form. Add a table that is new."""
        job = self.tables.jobs.get(state.name)
        if state.ignored is not None:
            self.tables.forget_table(state.name)
        elif job is not None:
            self._handle_job_change(job, mark)
        elif state.name in self.tables.waiting and state.reads_keys and is_redefined(state):
            del self.tables.waiting[state.name]
            self._copies.mark_table_altered(format_table_name(state.name))
        elif format_table_name(state.name) not in self.tables.done and not self.tables.goes_on(state.name):
            self.add_table(state)

    def _handle_job_change(self, job: SnapshotJob, mark: LogMark) -> None:
        was, now = job.state.table, select_read_table(job.table)
        requested = self._copies.states.find_fulfilled_request(job.table) is not None
        if requested and not is_same_definition(job.began_with, job.table.table):
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
        machine = chunks.SnapshotMachine(compute_chunk_rows(self._chunk_rows, asked, state))
        first, effects = machine.start_snapshot(
            select_read_table(state), point, self._delivered, resume, self._clock.seconds()
        )
        lane = self._lanes.find_free_lane(self.tables.jobs.values())
        job = self.tables.jobs[state.name] = SnapshotJob(state, machine, first, lane)
        if not resume.done:
            event = "snapshot began" if resume.after is None else "snapshot continued"
            _log.info(event, table=format_table_name(state.name), chunk=resume.number)
        elif asked is not None:  # the earlier process ended after its last marker
            self._copies.mark_copy_ended(format_table_name(state.name), asked.id, self._clock.now_ms())
        self._carry_out(job, effects)

    def _step_job(self, job: SnapshotJob, event: chunks.SnapshotEvent) -> None:
        job.limit_chunks(self._chunk_rows, self._copies.states.find_fulfilled_request(job.table))
        if effects := job.apply_event(event, self._clock.seconds()):
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
                    if effects != [effect]:  # alone, it means that nothing was left to be read
                        _log.info(
                            "snapshot completed", source=self._context.name, table=format_table_name(name)
                        )

    def take_refused(self) -> list[tuple[TableName, str]]:
        """Return the tables with conditions that the source has rejected since the last call, and why."""
        refused, self.refused = self.refused, []
        return refused

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


def is_redefined(state: TableState) -> bool:
    """Return whether the table was defined anew after its last copy had begun."""
    return state.begun is not None and state.defined_at > state.begun.position


def resume_point(state: TableState, tail: TableTail | None, copies: CopyStates) -> ResumePoint | None:
    """Return the place where a table's snapshot or copy continues; None: a copy has to begin first.

    `tail`: the table's part of its topic at the start.
    """
    begun = state.begun
    restart = FROM_START._replace(repeated=begun is not None)
    if begun is not None and not copies.should_resume(format_table_name(state.name), begun):
        return restart._replace(done=True)
    if tail is None or not tail.markers or tail.begun != begun:
        return restart
    resume = _resume_after(tail, state.table)
    return None if resume == FROM_START._replace(repeated=True) else resume


def _resume_after(tail: TableTail, table: Table) -> ResumePoint:
    """Return the place of a table's snapshot by its markers, in topic order.

    The first marker may be any of a chain.

    A position record named that marker as the last valid one (`Anchor`), so it needs no proof. `table`:
    the active definition. The end of a chunk by another key is no place in this key's order; everything
    is then read again.
    """
    at = FROM_START
    last: ChunkMarker | None = None
    for marker in tail.markers:
        chunk = marker.chunk
        follows = not at.done and (chunk.number, chunk.after) == (at.number, at.after)
        if last is None or chunk.number == 1 or follows:
            at, last = ResumePoint(chunk.last, chunk.number + 1, chunk.upto, chunk.repeated), marker
    if last is None or at.done or _has_key_of_table(tail, last, table):
        return at
    return FROM_START._replace(repeated=True)


def _has_key_of_table(tail: TableTail, marker: ChunkMarker, table: Table) -> bool:
    """Return whether the marker's key values belong to the table's key.

    That is decided by the definition at the marker, or by the number of values if `tail` begins later.
    """
    under = max((position for position in tail.definitions if position <= marker.position), default=None)
    if under is not None:
        return tail.definitions[under].key.columns == table.key.columns
    return len(marker.chunk.upto or ()) == len(table.key.parts)
