"""One topic in one task attempt: from Kafka records to committed lanes (design.md §6), as a machine of effects.

begin (fence, read) → from the lowest lane's offset + 1, whatever the batch holds → decode → drop duplicates →
barriers (definition, truncate, chunk marker) → applier → at the end every lane, also an idle one, at the batch's end.

What ends an attempt never fails the Spark batch: progress is where it is, the report says why, and the next attempt
(the next batch, or the driver's restart) goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import structlog

from consumer.attempt.applier import Applier, SignalsFor
from consumer.attempt.copies.begin import at_a_copy, begin_of
from consumer.attempt.copies.copies import Copies, chunk_of_copy
from consumer.attempt.copies.snapshots import before_snapshot, begun, ended
from consumer.attempt.debezium import DebeziumReader
from consumer.attempt.effects import (
    Begin,
    CloseHeldBefore,
    Define,
    DropSession,
    Explain,
    LoseOthers,
    Machine,
    NextSlice,
    NotLost,
    Operation,
    Prepare,
    ReadMissing,
    ReadTable,
    StopUnit,
    Truncate,
    WriteUnit,
    ask,
)
from consumer.attempt.evolution.in_target import routed_table
from consumer.attempt.evolution.machine import TableChanges, stop_of
from consumer.attempt.reader import (
    Emptied,
    EnvelopeReader,
    RecordReader,
    Rows,
    Slice,
    SnapshotEnd,
    Taken,
    TopicNotice,
    undefined,
)
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec, initial_layout
from consumer.attempt.transactions import Progress, retried
from consumer.attempt.trouble import AttemptFigures, InputLostError, Trouble, report_of, trouble_of
from consumer.errors import (
    CopyNeededError,
    MissingGrantError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.fold import refolded
from consumer.ordering.layout import Layout, keys_fingerprint
from consumer.ordering.model import Held, LaneProgress, RowChange, UnitState
from consumer.ordering.progress import Mark, ResumePlan, advanced, plan, relaid
from consumer.tables.definition import InForce
from consumer.tables.evolution.decisions import Adopt, Gone, Pass
from consumer.tables.stored import Stored, since_behind
from schemas.findings import START_OVER
from schemas.table.model import Table
from schemas.wire.event import Event
from schemas.wire.records import place_of_topic

log = structlog.get_logger(__name__)


class Attempt:
    """The state of one attempt. Its methods are machines; `run` is the whole of it."""

    def __init__(self, spec: UnitSpec, signals: SignalsFor) -> None:
        """`signals`: how the lanes share state under this attempt's driver."""
        self.spec = spec
        topic = spec.unit.topic
        self._signals = signals
        self._reader: RecordReader = EnvelopeReader(topic) if spec.debezium is None else DebeziumReader(topic)
        self._progress = Progress(())
        self._changes = TableChanges(spec, lambda: self._progress)
        self._copies = Copies(spec)
        self._applier: Applier | None = None
        self._in_force: InForce | None = None
        self._held: Sequence[Held] = ()
        self._plan = ResumePlan(0, wanted_layout(spec, None))
        self._mark: Mark | None = None
        self._given = 0  # behind the records that the driver has given
        self._figures = AttemptFigures()

    # --- the attempt

    def run(self) -> Machine[Report]:
        """Apply the slices that the driver has, and end with what became of it. Raises InputLostError alone: whatever else
        happens, of whatever class, is the unit's own trouble and touches no other unit."""
        try:
            yield from self.begin()
            yield from self.consume()
        except InputLostError:
            raise
        except Exception as error:  # see consumer.attempt.trouble
            trouble = trouble_of(self.spec.unit.topic, error)
            if trouble.fault:
                log.error("a unit failed by a fault of rowlock", topic=self.spec.unit.topic, exc_info=True)
            if isinstance(error, TargetConfigError) and not isinstance(error, MissingGrantError):
                trouble = yield from explained(self.spec.unit.topic, self._in_force, trouble)
            return (yield from self._ended(trouble))
        return report_of(self.spec, self._progress, self._figures, Trouble("ok", ""), self._reader.dropped)

    def begin(self) -> Machine[None]:
        """Begin an attempt: fence, read, choose the layout."""
        rows, state, self._held = yield from retried(lambda: ask(Begin()))
        check_state(self.spec, rows[0].topic_id, state)
        self._progress = Progress(rows)
        if state.ddl is not None:
            yield from self._changes.recover(state)
            yield from self.begin()
            return
        self._in_force = yield from self._changes.restore(state.definition)
        stored = Layout.decode(rows[0].layout)
        self._plan = plan(
            self._progress.rows, stored if self._changes.unfit else wanted_layout(self.spec, self._in_force)
        )
        self._copies.begun()
        if self._plan.switch_now:
            yield from self._switch()
            return
        lowest = self._progress.lowest
        self._reader.begin(self._progress.rows, self._in_force)
        self._mark = (lowest.offset, lowest.position, lowest.gen, lowest.commit_ts_ms)
        self._applier = self._new_applier()

    def define(self, table: Table) -> Machine[None]:
        """Begin, and put the first definition in force where the topic carries none; one that is in force stays."""
        yield from self.begin()
        if self._in_force is None:
            yield from self._put_in_force(Stored(table), self._progress.rows, first=True)
        yield from self._close_applier()

    def _new_applier(self) -> Applier | None:
        in_force = self._in_force
        if in_force is None:
            return None
        return Applier(
            self.spec.unit,
            self._progress,
            self._plan.layout,
            in_force.target,
            wanted=in_force.wanted,
            held=refolded(self._held, in_force.target),
            limits=self.spec.limits,
            replace=self.spec.replace,
            unfit=in_force.unfit,
            small_batch=self.spec.small_batch,
            signals=self._signals,
        )

    def _switch(self) -> Machine[None]:
        """All lanes stand equal: write the wanted layout, and begin anew with it."""
        rows = relaid(self._progress.rows, wanted_layout(self.spec, self._in_force))
        yield from retried(lambda: self._progress.relayout(rows))
        yield from self.begin()

    # --- its end

    def _ended(self, trouble: Trouble) -> Machine[Report]:
        """Say what became of an attempt that ended in trouble; in the target, too, if the unit waits for a person."""
        if trouble.fault:  # whatever state its connections are in
            for lane in range(self.spec.lanes):
                yield DropSession(lane)
        if trouble.state != "stopped":
            return report_of(self.spec, self._progress, self._figures, trouble, self._reader.dropped)
        try:
            yield from retried(lambda: ask(StopUnit(trouble.message)))
        except TransientError as failure:
            return report_of(
                self.spec,
                self._progress,
                self._figures,
                Trouble("behind", str(failure)),
                self._reader.dropped,
            )
        except Exception as failure:  # noqa: BLE001  # the stop holds here, though the target does not take its record
            log.error("a stop cannot be recorded", topic=self.spec.unit.topic, error=str(failure)[:300])
        return report_of(self.spec, self._progress, self._figures, trouble, self._reader.dropped)

    # --- records

    def consume(self) -> Machine[None]:
        """Apply the driver's slices; afterwards every lane stands at the last record, or this raises with progress where it is."""
        try:
            while (stop := (yield from self._taken())) is not None:
                yield from self._drain()  # what came before the event that stops the unit is applied
                if not isinstance(stop, CopyNeededError):
                    raise stop
                stood = self._progress.lowest.offset
                if not (yield from self._at_a_copy(stop)):
                    raise stop.instead or stop
                if self._changes.unfit is not None and self._progress.lowest.offset == stood:
                    break  # it stood in front of the begin already, which was not given: the next attempt is
            yield from self._drain()
        except Exception as error:
            yield from self._close_applier(error)
            raise
        yield from self._close_applier()

    def _at_a_copy(self, error: CopyNeededError) -> Machine[bool]:
        """Go on where a copy of the table begins behind what cannot be followed. Ends with whether there is one."""
        spec, in_force = self.spec, self._in_force
        error.told(
            place_of_topic(spec.unit.topic)
            if in_force is None
            else (in_force.source.db, in_force.source.name),
            self._progress.lowest.offset + 1,
            debezium=spec.debezium is not None,
        )
        yield from self._close_applier()
        if spec.debezium is not None:
            again = yield from begun(spec, self._progress, self._changes.before, error)
            if again is not None:
                self._changes.before = again[0]
                mark = before_snapshot(self._progress.rows, again[1])
                yield from self._adopt(again[1].table, Adopt(rewrite=True), mark)
            return again is not None
        if not (yield from at_a_copy(spec, self._progress, error)):
            return False
        log.info("a unit goes on where a copy begins", topic=spec.unit.topic, skipped=error.seen[:300])
        yield from self.begin()
        return True

    def _taken(self) -> Machine[UnitStoppedError | None]:
        """Take every slice. Ends with what keeps the unit from going on."""
        try:
            yield from self._take_all()
        except UnitStoppedError as error:
            return error
        return self._changes.unfit

    def _take_all(self) -> Machine[None]:
        """Take every slice from the first record that the lowest lane lacks; what the batch does not hold of it is read first."""
        first, start = True, self._plan.start if self._mark is None else self._mark[0] + 1
        if start < self._given:  # of what was given before the unit went on at a copy
            yield from self._take_missing(start, self._given)
            start = self._given
        while (records := (yield NextSlice())) is not None:
            self._given = records[-1][0] + 1
            if first and start < records[0][0]:
                yield from self._take_missing(start, records[0][0])
            elif records[-1][0] < start:
                self._figures.dropped += len(records)
                continue
            elif records[0][0] < start:
                records = [record for record in records if record[0] >= start]
            first = False
            yield from self._take(records)

    def _take_missing(self, start: int, upto: int) -> Machine[None]:
        while (records := (yield ReadMissing(start, upto))) is not None:
            yield from self._take(records)

    def _take(self, records: Slice) -> Machine[None]:
        """Take a slice; at the offset where the stored layout ends, all lanes stand equal and the layout is changed."""
        finish = self._plan.finish
        if finish is None or records[-1][0] < finish:
            yield from self._read(records)
            return
        yield from self._read([record for record in records if record[0] <= finish])
        yield from self._drain()
        yield from self._close_applier()
        yield from self._switch()
        if rest := [record for record in records if record[0] > finish]:
            yield from self._take(rest)

    def _read(self, records: Slice) -> Machine[None]:
        if self._changes.unfit is not None and begin_of(records[0][1] or b"") is None:
            raise self._changes.unfit
        for taken in self._reader.read(records):
            self._copies.note(taken)
            if isinstance(taken, Rows):
                yield from self._submit(taken.changes)
            elif isinstance(taken, SnapshotEnd):
                yield from self._drain()
                yield from self._close_applier()
                yield from ended(self.spec, self._in_force, self._progress)
                yield from self.begin()
            else:
                yield from self._barrier(taken)
                self._figures.applied += 1
            self._mark = taken.mark

    def _submit(self, changes: list[RowChange]) -> Machine[None]:
        if not changes:
            return
        if self._applier is None:  # no reader gives rows then; if one did, they must not pass for applied
            raise undefined(self.spec.unit.topic)
        yield from self._applier.submit(changes)
        self._figures.applied += len(changes)

    def _drain(self) -> Machine[None]:
        mark = self._mark
        if mark is None:
            return
        if self._applier is not None:
            yield from self._applier.drain(mark)
        else:
            yield from self._progress.move_idle(self._progress.behind(mark), mark)

    def _close_applier(self, error: BaseException | None = None) -> Machine[None]:
        applier, self._applier = self._applier, None
        if applier is not None:
            try:
                yield from applier.close(error)
            finally:  # what is committed counts, whatever ended the lanes
                self._figures.held += applier.held
                self._figures.displaced += applier.displaced

    # --- barriers

    def _barrier(self, taken: Taken) -> Machine[None]:
        """Carry out a definition, truncate or chunk marker event: all lanes stand at its predecessor before."""
        if isinstance(taken, Emptied):
            yield from self._drain()
            yield from self._truncate(taken.mark)
        elif isinstance(taken, TopicNotice):
            if taken.event.chunk is None:
                yield from self._define(taken.event, taken.mark)
            elif taken.event.chunk.repeated:  # the marker of a first one says nothing that the rows do not
                yield from self._copied(taken.event, taken.mark)

    def _truncate(self, mark: Mark) -> Machine[None]:
        in_force = self._in_force
        if in_force is None:
            return
        operations: list[Operation] = [
            Truncate(in_force.target, in_force.routed.where),
            CloseHeldBefore(mark[0], f"the source's table was emptied at offset {mark[0]}"),
        ]
        lanes = self._progress.behind(mark)
        yield from retried(lambda: self._progress.move(lanes, mark, operations))
        yield from self._close_applier()  # its lanes remember keys that are held no more
        self._held = [entry for entry in self._held if entry.offset >= mark[0]]
        self._applier = self._new_applier()

    def _copied(self, event: Event, mark: Mark) -> Machine[None]:
        """Carry out the marker of a chunk of a copy."""
        in_force, chunk = self._in_force, chunk_of_copy(self.spec.unit.topic, event)
        if in_force is None or chunk is None or not chunk.sweeps(in_force):
            return
        yield from self._drain()
        held = yield from self._copies.marker(chunk, mark, in_force, self._progress)
        if held is not None:
            yield from self._close_applier()
            self._held, self._applier = held, self._new_applier()

    def _define(self, event: Event, mark: Mark) -> Machine[None]:
        """Do what follows from an event that says something of the table itself."""
        in_force, table = self._in_force, event.definition
        verdict = yield from self._changes.judge(event)
        if isinstance(verdict, Pass) and verdict.learnt is None:
            return
        yield from self._drain()
        if isinstance(verdict, Gone) and in_force is not None:
            yield from self._changes.gone(in_force, mark)
        if table is None or not isinstance(verdict, Pass | Adopt):
            raise stop_of(verdict, event, f"{self.spec.unit.topic} offset {mark[0]}")
        yield from self._close_applier()
        try:
            yield from self._adopt(table, verdict, mark)
        except (MissingGrantError, CopyNeededError):
            raise
        except (UnitStoppedError, TargetConfigError, RefusedError) as error:
            why = str(error)  # a copy that begins behind it helps, for what was altered back since
            raise CopyNeededError(why, cause="definition", after=mark[0], instead=error) from error

    def _adopt(self, table: Table, verdict: Pass | Adopt, mark: Mark) -> Machine[None]:
        """Put a definition in force; no lane is busy."""
        before = self._changes.before
        lanes = [advanced(row, mark) for row in self._progress.rows]
        if before is None or isinstance(verdict, Pass):
            stored = Stored(table, since=mark[0]) if before is None else replace(before, table=table)
            yield from self._put_in_force(stored, lanes, first=before is None)
        elif routed_table(self.spec, table).topic is not None:  # nothing is altered: its readers are told
            since = since_behind(before, verdict.columns, mark[0], rewrite=verdict.rewrite)
            stored = replace(before.followed_by(table), since=since)
            yield from self._put_in_force(stored, lanes, first=verdict.rewrite)
        elif verdict.rewrite and (yield from retried(lambda: ask(ReadTable(table)))) is None:
            stored = replace(before.followed_by(table), since=mark[0])
            yield from self._put_in_force(stored, lanes, first=True)
        else:
            yield from self._changes.adopt(before, table, verdict, mark)
            yield from self.begin()

    def _put_in_force(self, stored: Stored, lanes: Sequence[LaneProgress], *, first: bool) -> Machine[None]:
        """Store the definition with the layout that follows from it, all lanes standing as `lanes`; and begin anew.

        `first`: every row comes behind it, and the target table may have to be made.
        """
        shared = not self.spec.batches and bool(routed_table(self.spec, stored.table).added)
        if first and shared:  # before the table is there again: a crash in between leaves nothing unsaid
            yield from self._progress.guarded([LoseOthers(stored.table)])
        in_force: InForce = yield from retried(lambda: ask(Prepare(stored, first)))
        rows = relaid(lanes, wanted_layout(self.spec, in_force))
        state = UnitState(definition=in_force.text, ddl=None, stopped=None)
        yield from self._close_applier()
        operations: list[Operation] = (
            [WriteUnit(state)] if first or not shared else [NotLost(), WriteUnit(state)]
        )
        if in_force.target.topic is not None:
            operations.append(Define(in_force.target, in_force.source, anew=first))
        yield from retried(lambda: self._progress.relayout(rows, operations))
        yield from self.begin()


def wanted_layout(spec: UnitSpec, in_force: InForce | None) -> Layout:
    """Return the layout that a unit shall have under its configuration and the definition in force (None: none yet)."""
    layout = initial_layout(spec.routes, spec.lanes)
    return (
        layout
        if in_force is None
        else msgspec.structs.replace(layout, keys=keys_fingerprint([in_force.target]))
    )


def explained(topic: str, in_force: InForce | None, trouble: Trouble) -> Machine[Trouble]:
    """Say it in the words of `check` where the target table itself is the cause: the server's say what failed, not why."""
    if in_force is None:
        return trouble
    try:
        why: str | None = yield Explain(in_force.stored)
    except Exception as error:  # noqa: BLE001  # then the server's words must do
        log.info("a target table cannot be looked at", topic=topic, error=str(error)[:300])
        return trouble
    if why is None:
        return trouble
    log.info("the target refused a statement", topic=topic, said=trouble.message[:300], why=why)
    return replace(trouble, message=why)


def check_state(spec: UnitSpec, topic_id: str, state: UnitState) -> None:
    """Raise UnitStoppedError if what the target says of the unit keeps it from going on. `topic_id`: that its progress speaks of."""
    topic = spec.unit.topic
    if state.stopped is not None:
        raise UnitStoppedError(state.stopped)
    if topic_id != spec.topic_id:
        raise UnitStoppedError(recreated(topic))


def recreated(topic: str) -> str:
    """Return the message for a topic that is not the one the progress speaks of."""
    return (
        f"{topic}: the Kafka topic was deleted and made again: its offsets mean something else now: "
        f"{START_OVER}"
    )
