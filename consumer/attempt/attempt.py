"""One attempt to apply a unit, from Kafka records to committed lanes, as generators of effects.

An attempt fences the unit and reads its progress, starts at the lowest lane's offset + 1 whatever records
it is given, decodes, drops duplicates, handles barriers (definition, truncate, chunk marker) and applies the
changes. At the end every lane, also an idle one, is at the last record's offset.

An error that ends an attempt never ends its slot: the progress stays valid, the report has the
cause, and the next attempt continues from there.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from consumer.attempt.applier import SignalsFor
from consumer.attempt.attempt_state import AttemptState
from consumer.attempt.copies.begin import decode_copy_begin, move_to_copy_begin
from consumer.attempt.copies.copies import build_definition_after_copy
from consumer.attempt.copies.marker import build_copy_chunk, build_removed_rows_error, can_sweep_keys
from consumer.attempt.copies.new_topic import move_to_new_topic
from consumer.attempt.copies.snapshots import begin_snapshot, compute_mark_before_snapshot, finish_snapshot
from consumer.attempt.effects import (
    DropSession,
    ExplainMisfit,
    Machine,
    NextSlice,
    ReadMissing,
    StopUnit,
    ask_driver,
)
from consumer.attempt.evolution.in_target import resolve_target
from consumer.attempt.evolution.next_definition import DefinitionSwitch
from consumer.attempt.operations import (
    CloseQuarantineBefore,
    ForgetKeptRows,
    Operation,
    TruncateTarget,
    WriteUnit,
)
from consumer.attempt.readers.reader import (
    KeysRead,
    KeySweepBegun,
    ReaderItem,
    RecordSlice,
    RowBatch,
    RowsRemoved,
    SnapshotEnd,
    TopicNotice,
    Truncated,
)
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import retry_transient
from consumer.attempt.unit_errors import (
    AttemptFigures,
    Trouble,
    build_attempt_report,
    classify_error,
)
from consumer.errors import (
    CopyNeededError,
    MissingGrantError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.model import UnitState
from consumer.ordering.progress import LaneMark
from consumer.tables.definition import ActiveDefinition
from consumer.tables.evolution.decisions import AdoptDefinition
from consumer.tables.stored import StoredDefinition
from schemas.problems import Problem, encode_problem
from schemas.table.model import Table
from schemas.wire.copies import RemovedRows
from schemas.wire.event import EventEnvelope

log = structlog.get_logger(__name__)


class Attempt:
    """One attempt to apply a unit's events. Its methods are generators of effects, which a driver carries
    out; `run` is the whole attempt.
    """

    def __init__(self, spec: UnitSpec, signals: SignalsFor) -> None:
        """`signals` returns the mutex and wake-ups that the lanes of this attempt share."""
        self.spec = spec
        self._figures = AttemptFigures()
        self._state = AttemptState(spec, signals, self._figures)
        self._next = DefinitionSwitch(self._state)
        self._given = 0  # the offset after the records that the driver has given

    # --- the attempt

    def run(self) -> Machine[Report]:
        """Apply the driver's slices, and return a report.

        Never raises: an error of any class concerns this unit alone and is in its report.
        """
        try:
            yield from self._state.begin_attempt()
            yield from self.consume_slices()
        except Exception as error:  # see consumer.attempt.unit_errors
            trouble = classify_error(self.spec.unit.topic, error)
            if trouble.fault:
                log.error("unit failed by an internal error", topic=self.spec.unit.topic, exc_info=True)
            if isinstance(error, TargetConfigError) and not isinstance(error, MissingGrantError):
                trouble = yield from explain_trouble(
                    self.spec.unit.topic, self._state.active_definition, trouble
                )
            return (yield from self._record_trouble(trouble))
        return self._build_report(Trouble("ok", Problem("")))

    def define_initially(self, table: Table) -> Machine[None]:
        """Begin the attempt, and activate `table` as the first definition if the topic carries none.

        An active definition stays.
        """
        state = self._state
        yield from state.begin_attempt()
        if state.active_definition is None:
            yield from self._next.activate_definition(
                StoredDefinition(table), state.progress.rows, first=True
            )
        yield from state.close()

    def continue_in_topic(self, topic_id: str, lost: CopyNeededError) -> Machine[None]:
        """Begin the attempt, and move the progress to a copy in the topic `topic_id`, which has other
        offsets than the progress.

        The topic id of `spec` must be that of the progress: a schema change that an earlier attempt left
        unfinished is completed by it. Raises `lost` if no copy has begun there.
        """
        state = self._state
        yield from state.begin_attempt()
        stored = state.changes.before if state.active_definition is None else state.active_definition.stored
        lost.add_context(None if stored is None else (stored.table.db, stored.table.name), -1)
        yield from state.close()
        yield from move_to_new_topic(self.spec, state.progress, stored, lost, topic_id)
        log.info(
            "unit continues with a copy of its whole table",
            topic=self.spec.unit.topic,
            reason=lost.seen[:300],
        )

    # --- the attempt's end

    def _record_trouble(self, trouble: Trouble) -> Machine[Report]:
        """Return the report of a failed attempt. A stop is also recorded in the target."""
        if trouble.fault:  # the state of its connections is unknown
            for lane in range(self.spec.lanes):
                yield DropSession(lane)
        if trouble.state != "stopped":
            return self._build_report(trouble)
        try:
            yield from retry_transient(lambda: ask_driver(StopUnit(encode_problem(trouble.problem))))
        except TransientError as failure:
            return self._build_report(Trouble("behind", failure.problem))
        except Exception as failure:  # noqa: BLE001  # the stop is valid although the target cannot record it
            log.warning("stop of a unit not recorded", topic=self.spec.unit.topic, error=str(failure)[:300])
        return self._build_report(trouble)

    def _build_report(self, trouble: Trouble) -> Report:
        state = self._state
        return build_attempt_report(
            self.spec,
            state.progress,
            self._figures,
            trouble,
            state.reader.dropped,
            trial_in_s=state.trial_in_s,
        )

    # --- records

    def consume_slices(self) -> Machine[None]:
        """Apply the driver's slices.

        Afterwards every lane is at the last record. If this raises, the progress is at the last commit.
        """
        state = self._state
        try:
            while (stop := (yield from self._take_all_slices())) is not None:
                yield from state.drain()  # the events before the one that stops the unit are applied
                if not isinstance(stop, CopyNeededError):
                    raise stop
                stood = state.progress.lowest.offset
                if not (yield from self._move_to_copy(stop)):
                    raise stop.instead or stop
                if state.changes.unfit is not None and state.progress.lowest.offset == stood:
                    break  # already at a begin that the driver has not given: the next attempt reads it
            yield from state.drain()
            yield from state.compare_passed_ranges()
        except Exception as error:
            yield from state.close(error)
            raise
        yield from state.close()

    def _move_to_copy(self, error: CopyNeededError) -> Machine[bool]:
        """Continue at a copy of the table that begins after the event that cannot be followed; return
        whether there is one.
        """
        spec, state = self.spec, self._state
        stored = state.changes.before if state.active_definition is None else state.active_definition.stored
        error.add_context(
            None if stored is None else (stored.table.db, stored.table.name),
            state.progress.lowest.offset + 1,
            debezium=spec.debezium is not None,
        )
        yield from state.close()
        if spec.debezium is not None:
            snapshot_begin = yield from begin_snapshot(spec, state.progress, state.changes.before, error)
            if snapshot_begin is not None:
                state.changes.before = snapshot_begin[0]
                mark = compute_mark_before_snapshot(state.progress.rows, snapshot_begin[1])
                yield from self._next.adopt_definition(
                    snapshot_begin[1].table, AdoptDefinition(rewrite=True), mark
                )
            return snapshot_begin is not None
        keeps = stored is not None and resolve_target(spec, stored.table).keeps_removed_rows
        if not (yield from move_to_copy_begin(spec, state.progress, error, stored, keeps=keeps)):
            return False
        log.info("unit skips to a copy", topic=spec.unit.topic, skipped=error.seen[:300])
        yield from state.begin_attempt()
        return True

    def _take_all_slices(self) -> Machine[UnitStoppedError | None]:
        """Take every slice; return the error that stops the unit, if any."""
        try:
            yield from self._take_all()
        except UnitStoppedError as error:
            return error
        return self._state.changes.unfit

    def _take_all(self) -> Machine[None]:
        """Take every slice from the first record that the lowest lane lacks.

        Records missing in the batch are read first.
        """
        state = self._state
        first, start = True, state.plan.start
        if start < self._given:  # given before the unit continued at a copy
            yield from self._take_missing(start, self._given)
            start = self._given
        while (records := (yield from ask_driver(NextSlice()))) is not None:
            self._given = records[-1][0] + 1
            if first and start < records[0][0]:
                yield from self._take_missing(start, records[0][0])
            elif records[-1][0] < start:
                self._figures.add_counts(dropped=len(records))
                continue
            elif records[0][0] < start:
                records = [record for record in records if record[0] >= start]
            first = False
            yield from self._take_slice(records)

    def _take_missing(self, start: int, upto: int) -> Machine[None]:
        while (records := (yield from ask_driver(ReadMissing(start, upto)))) is not None:
            yield from self._take_slice(records)

    def _take_slice(self, records: RecordSlice) -> Machine[None]:
        """Take one slice of records.

        At the offset where the stored layout ends, all lanes are at one offset and the layout is
        changed.
        """
        state = self._state
        finish = state.plan.finish
        if finish is None or records[-1][0] < finish:
            yield from self._read_slice(records)
            return
        yield from self._read_slice([record for record in records if record[0] <= finish])
        yield from state.drain()
        yield from state.close()
        yield from state.switch_layout()
        if rest := [record for record in records if record[0] > finish]:
            yield from self._take_slice(rest)

    def _read_slice(self, records: RecordSlice) -> Machine[None]:
        state = self._state
        if state.changes.unfit is not None and decode_copy_begin(records[0][1] or b"") is None:
            raise state.changes.unfit
        for taken in state.reader.read_slice(records):
            if isinstance(taken, Truncated) or (isinstance(taken, TopicNotice) and taken.event.chunk is None):
                yield from state.end_passed_ranges()
            state.copies.note_taken(taken, state.active_definition)
            if isinstance(taken, RowBatch):
                yield from state.submit(taken.changes)
            elif isinstance(taken, KeysRead):
                pass  # noted for the chunk's marker
            elif isinstance(taken, SnapshotEnd):
                yield from state.drain()
                yield from state.close()
                yield from finish_snapshot(self.spec, state.active_definition, state.progress)
                yield from state.begin_attempt()
            else:
                yield from self._apply_barrier(taken)
                self._figures.add_counts(applied=1)
            state.record_read(taken.mark)

    # --- barriers

    def _apply_barrier(self, taken: ReaderItem) -> Machine[None]:
        """Apply a definition, truncate or chunk marker event, after all lanes have reached the event
        before it.
        """
        if isinstance(taken, Truncated):
            yield from self._state.drain()
            yield from self._truncate_target(taken.mark)
        elif isinstance(taken, RowsRemoved):
            yield from self._note_removed_rows(taken.event, taken.mark)
        elif isinstance(taken, KeySweepBegun):
            yield from self._begin_key_sweep(taken.mark)
        elif isinstance(taken, TopicNotice):
            if taken.event.chunk is None:
                yield from self._next.apply_table_event(taken.event, taken.mark)
            elif taken.event.chunk.repeated:  # the marker of a first snapshot adds nothing to the rows
                yield from self._apply_chunk_marker(taken.event, taken.mark)

    def _truncate_target(self, mark: LaneMark) -> Machine[None]:
        state, active = self._state, self._state.active_definition
        if active is None:
            return
        why = f"the source's table was emptied at offset {mark[0]}"
        operations: list[Operation] = [CloseQuarantineBefore(mark[0], why)]
        if active.stored.has_kept_rows and active.routed.keeps_removed_rows:
            yield from state.copies.remove_all_rows(active, state.progress)
        else:
            operations.insert(0, TruncateTarget(active.target, active.routed.where))
            if active.stored.has_kept_rows:
                operations.append(ForgetKeptRows())
        lanes = state.progress.list_lanes_below(mark)
        yield from retry_transient(lambda: state.progress.move_lanes(lanes, mark, operations))
        held = [entry for entry in state.quarantine if entry.offset >= mark[0]]
        yield from state.set_quarantine(held)

    def _note_removed_rows(self, event: EventEnvelope, mark: LaneMark) -> Machine[None]:
        """Note the unit's debt: the target keeps rows that a statement removed, until a key sweep or a copy
        has ended.

        Raises CopyNeededError if the target cannot be swept by keys.
        """
        state, active, topic = self._state, self._state.active_definition, self.spec.unit.topic
        source = event.source
        removed = RemovedRows.build_from_statement(
            (source.position[0], source.file, source.pos),
            event.ddl or "",
            offset=mark[0],
            since_ms=source.ts_ms,
        )
        if active is None:
            return
        if not can_sweep_keys(active, batches=self.spec.batches):
            raise build_removed_rows_error(topic, active, mark[0], removed.ddl)
        yield from state.drain()
        stored = active.stored.add_debt(removed, kept=active.routed.keeps_removed_rows)
        log.info("rows removed at the source", pipeline=self.spec.unit.pipeline, topic=topic, sql=removed.ddl)
        operations: list[Operation] = [WriteUnit(UnitState(stored.encode(), None, None))]
        lanes = state.progress.list_lanes_below(mark)
        yield from retry_transient(lambda: state.progress.move_lanes(lanes, mark, operations))
        yield from state.close()
        yield from state.begin_attempt()

    def _begin_key_sweep(self, mark: LaneMark) -> Machine[None]:
        """Let what the key sweep that begins at `mark` brings be compared with the target between batches."""
        state, active = self._state, self._state.active_definition
        if active is None or not can_sweep_keys(active, batches=self.spec.batches):
            return
        yield from state.drain()
        if active.stored.sweep_since is None:
            stored = replace(active.stored, sweep_since=mark[0])
            operations: list[Operation] = [WriteUnit(UnitState(stored.encode(), None, None))]
            lanes = state.progress.list_lanes_below(mark)
            yield from retry_transient(lambda: state.progress.move_lanes(lanes, mark, operations))
            state.replace_stored(stored)
            state.copies.begin_key_sweep(mark[0], active)

    def _apply_chunk_marker(self, event: EventEnvelope, mark: LaneMark) -> Machine[None]:
        """Apply the marker of a copy's chunk.

        Raises CopyNeededError at the end of a key sweep that would pay the unit's debt, but cannot, because
        the target's key has got more columns since.
        """
        state = self._state
        active, chunk = state.active_definition, build_copy_chunk(self.spec.unit.topic, event)
        if active is None or chunk is None or not chunk.can_sweep(active):
            return
        debt = active.stored.removed
        if chunk.keys and active.stored.sweep_since is not None:
            return  # its keys are compared later
        if chunk.keys and not can_sweep_keys(active, batches=self.spec.batches):
            if chunk.last and debt is not None and active.stored.is_debt_paid(chunk.begins):
                raise build_removed_rows_error(self.spec.unit.topic, active, mark[0], debt.ddl)
            return
        yield from state.drain()
        held = yield from state.copies.apply_chunk_marker(chunk, mark, active, state.progress)
        if held is not None and build_definition_after_copy(active, chunk.begins) != active.stored:
            yield from state.close()
            yield from state.begin_attempt()
        elif held is not None:
            yield from state.set_quarantine(held)


def explain_trouble(topic: str, active: ActiveDefinition | None, trouble: Trouble) -> Machine[Trouble]:
    """Return `trouble` with the message of `check` if the target table itself is the cause.

    The server's message names the failed statement, but not the reason.
    """
    if active is None:
        return trouble
    try:
        misfit = yield from ask_driver(ExplainMisfit(active.stored))
    except Exception as error:  # noqa: BLE001  # the server's message is kept
        log.info("target table not inspected", topic=topic, error=str(error)[:300])
        return trouble
    if misfit is None:
        return trouble
    log.info(
        "statement refused by the target", topic=topic, error=str(trouble.problem)[:300], reason=str(misfit)
    )
    return replace(trouble, problem=misfit)
