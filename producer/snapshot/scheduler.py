"""Drives the snapshots of all tables between the transactions of the stream (design.md §5).

The rules are in producer/snapshot/chunks.py; here is what they leave to the shell: which tables are under way at once, reading on
helper threads, the position rows of snapshot events, and sending. A table's snapshot does not begin before the stream
has passed everything that its topic already holds: readers would drop its rows as old. A copy of a table (docs/adr/0025) is a
snapshot whose begin event is in the topic already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import structlog
from msgspec.structs import replace

from producer.copies.book import CopyBook
from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.errors import TableStoppedError
from producer.kafka.control_events import encode_whole_chunk
from producer.kafka.settings import fitting
from producer.ports import Clock, EventWriter
from producer.resume.startup import Started
from producer.resume.topic_recovery import Marker, Tail
from producer.snapshot import chunks
from producer.source import ChunkQueue
from producer.sources.binlog.mysql_gtids import GtidSet
from producer.sources.chunk_data import (
    ChunkFailed,
    ChunkRead,
    ChunkRefused,
    EmitChunk,
    LogMark,
    LogPoint,
    ReadChunk,
)
from producer.stops import too_large
from producer.tables import TableName, TableState, TopicState, dotted
from schemas.table.model import Key, Table, same_definition
from schemas.wire.copies import CopyMark
from schemas.wire.position import FIRST_SNAPSHOT_ROW, Position, binlog_file_number

_log = structlog.get_logger("capture")

#: Tables whose chunks are read at the same time.
AT_ONCE = 3
_ROWS_PER_GEN = 1 << 32
_GENS = 1 << 20


Answer = ChunkRead | ChunkFailed | ChunkRefused


class _Lane:
    """A reader of chunks, and for whom its answers are, in order."""

    def __init__(self, reader: ChunkQueue) -> None:
        self.reader = reader
        self.asked: deque[_Job] = deque()

    def answer(self) -> Answer | None:
        """Return the next answer, if there is one. Raises what the reading raised; that was the answer then."""
        try:
            return self.reader.poll()
        except TableStoppedError:
            self.asked.popleft()
            raise


class _Job:
    """One table's snapshot under way. `since`: offset of the last marker of a copy that is in the topic; `due`: when the next chunk may be
    read."""

    __slots__ = ("due", "lane", "machine", "since", "state", "table")

    def __init__(self, table: TableState, machine: chunks.SnapshotMachine) -> None:
        self.table = table
        self.machine = machine
        self.since = table.marker_offset
        self.due = 0.0
        self.state: chunks.ChunkState
        self.lane: _Lane

    def mark(self) -> CopyMark | None:
        """Return what the next marker says of the copy."""
        begun = self.table.begun
        if begun is None:
            return None
        since = begun.offset if self.since is None else self.since
        return replace(begun.mark, begins=begun.offset, since=since)


class Snapshots:
    """All snapshots of a run. Every method is called from the thread that reads the stream.

    `wanted`: whether the source's tables are snapshotted at all. `open_reader`, `chunk_rows`: see Ports.
    `delivered`: the set, still empty, of the GTIDs that the stream brings, where LOW is such a set. `unbegun`: tables of which a copy
    has to begin before they go on. `refused`: (table, reason) of copies whose condition the source does not take.
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
        self._server_id = started.record.identity.server_id
        self._writer = writer
        self._open_reader = open_reader
        self._clock = clock
        self._chunk_rows = chunk_rows
        self._copies: CopyBook = started.copies
        self._wanted = wanted
        self._tails: dict[TableName, Tail] = started.tails
        self._waiting: dict[TableName, TableState] = {}
        self._jobs: dict[TableName, _Job] = {}
        self._delivered = delivered
        record = started.record
        self._started = (binlog_file_number(record.file), record.pos)
        self._lanes: list[_Lane] = []
        self._next_row: dict[str, int] = {}
        self._file = record.file
        self._goes_on = False
        self.done: set[str] = set()
        self.unbegun: dict[TableName, TableState] = {}
        self.refused: list[tuple[TableName, str]] = []
        for state in started.captured.tables.values():
            self.add(state)

    # --- what capture asks

    @property
    def pending(self) -> set[str]:
        """ "db.table" of the tables that are not completely in their topics, copies that were asked for aside."""
        waiting = (
            state
            for state in self._waiting.values()
            if self._copies.states.fulfilled(dotted(state.name), state.begun) is None
        )
        running = (
            job.table
            for job in self._jobs.values()
            if self._copies.states.fulfilled(dotted(job.table.name), job.table.begun) is None
        )
        return {dotted(state.name) for state in (*waiting, *running, *self.unbegun.values())}

    def goes_on(self, name: TableName) -> bool:
        """Tell whether the table's snapshot or copy is not all sent."""
        return name in self._jobs or name in self._waiting or name in self.unbegun

    @property
    def ready(self) -> bool:
        """Tell whether there is a table that can go on at once. Never without a table: `advance` is not called then."""
        return self._goes_on and self.active

    @property
    def active(self) -> bool:
        """Tell whether any table is under way or waits."""
        return bool(self._jobs or self._waiting)

    # --- what capture tells

    def add(self, state: TableState) -> None:
        """Take up a table, where its topic says that its snapshot or its copy stands."""
        if (self._wanted or state.begun is not None) and state.ignored is None:
            self._waiting[state.name] = state

    def copy(self, state: TableState) -> None:
        """A copy of the table has begun in its topic."""
        self.forget(state.name)
        self._waiting[state.name] = state

    def delivered(self, gtid: str | None) -> None:
        """A transaction of the stream is over."""
        if self._delivered is not None and gtid is not None:
            self._delivered.add(gtid)

    def rows_seen(self, state: TableState, mark: LogMark, keys: Sequence[Key]) -> None:
        """Rows of a table that is `under_way` passed."""
        job = self._jobs[state.name]
        job.state, _ = job.machine.step(job.state, chunks.RowsSeen(mark, keys), self._clock.seconds())

    def under_way(self, name: TableName) -> bool:
        return name in self._jobs

    def table_changed(self, state: TableState, mark: LogMark) -> None:
        """The table's rows or form changed by a statement; a table new to capture is taken up."""
        job = self._jobs.get(state.name)
        if state.ignored is not None:
            self.forget(state.name)
        elif job is not None:
            self._job_changed(job, mark)
        elif dotted(state.name) not in self.done and not self.goes_on(state.name):
            self.add(state)

    def _job_changed(self, job: _Job, mark: LogMark) -> None:
        was, now = job.state.table, job.table.table
        if self._copies.states.fulfilled(
            dotted(job.table.name), job.table.begun
        ) is not None and not same_definition(was, now):
            del self._jobs[job.table.name]
            self._copies.altered(dotted(job.table.name))
        elif was.key.columns != now.key.columns:
            del self._jobs[job.table.name]
            self.unbegun[job.table.name] = job.table
        else:
            self._step(job, chunks.TableChanged(mark, now))

    def forget(self, name: TableName) -> None:
        """The table is stopped, or its copy given up: what was read of it is not emitted."""
        self._jobs.pop(name, None)
        self._waiting.pop(name, None)
        self.unbegun.pop(name, None)

    def advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions at `file`, `pos`: take in answers, emit what is due, begin what waits."""
        point = (binlog_file_number(file), pos)
        self._file = file
        self._goes_on = self._take_answers()
        for job in list(self._jobs.values()):
            self._step(job, chunks.StreamAt(point, self._delivered))
        while self._waiting and len(self._jobs) < AT_ONCE:
            due = next((name for name, state in self._waiting.items() if self._passed(state, point)), None)
            if due is None:
                break
            self._begin(self._waiting.pop(due), point)

    def close(self) -> None:
        """Stop reading; waits for a SELECT in flight."""
        for lane in self._lanes:
            lane.reader.close()
        self._lanes.clear()

    # --- inside

    def _passed(self, state: TableState, point: LogPoint) -> bool:
        """Tell whether snapshot rows at `point` would stand above everything in the topic."""
        ceiling = state.topic.ceiling
        return ceiling is None or (self._context.epoch, *point, self.next_row(state.topic)) > ceiling

    def _begin(self, state: TableState, point: LogPoint) -> None:
        resume, asked = self._resume(state), self._copies.states.fulfilled(dotted(state.name), state.begun)
        if resume is None:
            self.unbegun[state.name] = state
            return
        rate = asked.max_rows_per_second if asked is not None else None
        limit = min(self._chunk_rows, rate) if rate else self._chunk_rows
        job = _Job(state, chunks.SnapshotMachine(limit))
        job.state, effects = job.machine.start(
            state.table, point, self._delivered, resume, self._clock.seconds()
        )
        job.lane = self._lane()
        self._jobs[state.name] = job
        if not resume.done:
            _log.info("snapshot goes on", table=dotted(state.name), chunk=resume.number)
        elif asked is not None:  # its last marker was the last that the process before did
            self._copies.ended(dotted(state.name), asked.id, self._clock.now_ms())
        self._carry_out(job, effects)

    def _resume(self, state: TableState) -> chunks.ResumePoint | None:
        """Return the place where the snapshot goes on by the topic's markers; None: a copy has to begin first."""
        tail, begun = self._tails.get(state.name), state.begun
        again = chunks.FROM_START._replace(repeated=begun is not None)
        if begun is not None and not self._copies.states.resumes(dotted(state.name), begun):
            return again._replace(done=True)
        if tail is None or not tail.markers or tail.begun != begun:
            return again
        resume = resume_after(tail, state.table)
        return None if resume == chunks.FROM_START._replace(repeated=True) else resume

    def _step(self, job: _Job, event: chunks.Event) -> None:
        job.state, effects = job.machine.step(job.state, event, self._clock.seconds())
        if effects:
            self._carry_out(job, effects)

    def _carry_out(self, job: _Job, effects: list[chunks.Effect]) -> None:
        for effect in effects:
            match effect:
                case ReadChunk():
                    job.lane.asked.append(job)
                    job.lane.reader.submit(self._paced(job, effect))
                case EmitChunk():
                    self._emit(job, effect)
                case chunks.SnapshotDone():
                    self._finish(job)

    def _finish(self, job: _Job) -> None:
        name = dotted(job.table.name)
        if self._jobs.pop(job.table.name, None) is not None:
            self.done.add(name)
            _log.info("snapshot complete", source=self._context.name, table=name)

    def _paced(self, job: _Job, request: ReadChunk) -> ReadChunk:
        """Return what is to be read, as the copy was asked for."""
        asked = self._copies.states.fulfilled(dotted(job.table.name), job.table.begun)
        if asked is None:
            return request
        return request._replace(where=asked.where, not_before=max(request.not_before, job.due))

    def _lane(self) -> _Lane:
        """Return a lane that no table uses, made if there is none."""
        used = {id(job.lane) for job in self._jobs.values()}
        lane = next((lane for lane in self._lanes if id(lane) not in used), None)
        if lane is None:
            lane = _Lane(self._open_reader(self._started))
            self._lanes.append(lane)
        return lane

    def _take_answers(self) -> bool:
        """Feed what was read to whom it is for; returns whether there was anything."""
        taken = False
        for lane in self._lanes:
            while lane.asked and (answer := lane.answer()) is not None:
                job = lane.asked.popleft()
                if self._jobs.get(job.table.name) is not job:
                    continue
                taken = True
                if isinstance(answer, ChunkRefused):
                    del self._jobs[job.table.name]
                    self.refused.append((job.table.name, answer.reason))
                else:
                    self._step(job, answer)
        return taken

    def _emit(self, job: _Job, effect: EmitChunk) -> None:
        state, (number, pos) = job.table, effect.at
        transaction = TransactionContext(
            id=f"snapshot:{self._file}:{pos}", gtid=None, file=self._file, file_number=number, pos=pos,
            ts_ms=self._clock.now_ms(), server_id=self._server_id, made_ms=self._clock.now_ms(),
        )  # fmt: skip
        first, before = self.next_row(state.topic), state.topic.tail.last
        records = encode_whole_chunk(
            effect, self._context, state.topic.tail, transaction, first_row=first, copy=job.mark()
        )
        fit, size = fitting(records)
        if fit < len(records):
            state.topic.tail.last = before
            key, value = records[fit]
            raise too_large(state.name, key, len(key) + len(value))
        self.take_row(state.topic, len(records))
        *rows, (key, value) = records
        self._writer.send_all(state.topic.name, rows, size - len(key) - len(value))
        self._writer.send(state.topic.name, key, value, self._when_stored(job, last=effect.upto is None))
        if (asked := self._copies.states.fulfilled(dotted(state.name), state.begun)) is not None:
            if asked.max_rows_per_second:
                job.due = max(job.due, self._clock.seconds()) + len(effect.rows) / asked.max_rows_per_second
            self._copies.states.sent(dotted(state.name), asked.id, len(effect.rows))

    def _when_stored(self, job: _Job, *, last: bool) -> Callable[[int], None]:
        """Return what is done once a marker is in the topic. The copy may be another one by then."""
        state, begun = job.table, job.table.begun

        def stored(offset: int) -> None:
            if state.begun != begun:
                return
            state.marker_offset = job.since = offset
            if last and begun is not None:
                self._copies.ended(dotted(state.name), begun.mark.id, self._clock.now_ms())

        return stored

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


def first_row(gen: int, ceiling: Position | None) -> int:
    """Return the position row of a run's first snapshot event in a topic that ends at `ceiling`.

    It is above all that any run before can have used. The generations' stretches begin anew after 2^20 of them, which is
    17 minutes where a generation is a coordinator's time in milliseconds: so a topic that ends in a snapshot row goes on behind it, or
    on an idle source, where all stand at one place of the log, the rows would be too low, and the snapshot would wait for ever.
    """
    row = FIRST_SNAPSHOT_ROW + (gen - 1) % _GENS * _ROWS_PER_GEN
    return row if ceiling is None or ceiling[3] >= 0 else max(row, ceiling[3] + 1)


def resume_after(tail: Tail, table: Table) -> chunks.ResumePoint:
    """Return where the snapshot of a table stands by its markers, in topic order; the first one may be any of a chain.

    It is there because a position record named it as the last one that counted (`Anchor`), so it needs no proof. `table`: the
    definition in force now. Where a chunk of another key ended says nothing about this one's order: all is read again.
    """
    at: chunks.ResumePoint | None = None
    last: Marker | None = None
    for marker in tail.markers:
        chunk = marker.chunk
        begins = chunk.number == 1 and chunk.after is None
        follows = at is not None and not at.done and (chunk.number, chunk.after) == (at.number, at.after)
        if at is None or begins or follows:
            at = chunks.ResumePoint(chunk.last, chunk.number + 1, chunk.upto, chunk.repeated)
            last = marker
    if at is None or last is None:
        return chunks.FROM_START
    return at if at.done or _of_its_key(tail, last, table) else chunks.FROM_START._replace(repeated=True)


def _of_its_key(tail: Tail, marker: Marker, table: Table) -> bool:
    """Tell whether the marker's keys are of the table's key: by the definition it stands under, else (`tail` begins later) by form."""
    under = max((position for position in tail.definitions if position <= marker.position), default=None)
    if under is not None:
        return tail.definitions[under].key.columns == table.key.columns
    return len(marker.chunk.upto or ()) == len(table.key.parts)
