"""The state of a unit in one attempt: progress, active definition, quarantine, and lanes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from msgspec.structs import replace

from consumer.attempt.applier import Applier, SignalsFor
from consumer.attempt.copies.copies import CopyMarkers
from consumer.attempt.effects import (
    BeginAttempt,
    CheckSession,
    Machine,
    ReadClock,
    RememberKeySweep,
    ask_driver,
)
from consumer.attempt.evolution.machine import TableChanges
from consumer.attempt.operations import WriteUnit
from consumer.attempt.readers.debezium import DebeziumReader
from consumer.attempt.readers.reader import EnvelopeReader, RecordReader, build_undefined_error
from consumer.attempt.recovery import can_recover, find_untried_keys, log_foreign_entries, recover_keys
from consumer.attempt.reports import LaneFigures
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.attempt.unit_errors import AttemptFigures
from consumer.errors import CopyNeededError, TransientError, UnitStoppedError
from consumer.ordering.fold import recompute_folded_keys
from consumer.ordering.layout import Layout, compute_keys_fingerprint
from consumer.ordering.model import LaneProgress, QuarantineEntry, RowChange, UnitState
from consumer.ordering.progress import LaneMark, ResumePlan, plan_resume, relay_rows
from consumer.ordering.recovery import choose_pause, select_due_keys
from consumer.tables.definition import ActiveDefinition
from consumer.tables.stored import StoredDefinition
from schemas.problems import decode_problem
from schemas.wire.position import ZERO

SWEEP_PAUSE_S = 0.02
"""Seconds until ranges of a key sweep that are left are compared without further records."""


class AttemptState:
    """An apply unit in one attempt, as of its last transaction. Its methods are generators of effects.

    `applier`: owns the lanes; None if there is no active definition or they are closed. `quarantine`:
    the entries with which the next applier begins. `mark`: the last record that was read. `trial_in_s`:
    seconds after which keys in quarantine are to be tried, or ranges of a key sweep compared, without further
    records; 0: none waits for that.
    """

    def __init__(self, spec: UnitSpec, signals: SignalsFor, figures: AttemptFigures) -> None:
        """`signals` returns the mutex and wake-ups that the lanes of this attempt share."""
        self.spec = spec
        topic = spec.unit.topic
        self._signals, self._figures = signals, figures
        self.reader: RecordReader = EnvelopeReader(topic) if spec.debezium is None else DebeziumReader(topic)
        self.progress = AttemptProgress()
        self.changes = TableChanges(spec, self.progress)
        self.copies = CopyMarkers(spec)
        self.applier: Applier | None = None
        self._open_quarantine = 0
        self._quarantine_read_at = 0.0
        self.active_definition: ActiveDefinition | None = None
        self.quarantine: Sequence[QuarantineEntry] = ()
        self.plan = ResumePlan(0, choose_layout(spec, None))
        self.mark: LaneMark = (-1, ZERO, 0, 0)
        self.trial_in_s = 0.0

    def _fence(self) -> Machine[tuple[Sequence[LaneProgress], UnitState, Sequence[QuarantineEntry]]]:
        """Begin the attempt in the target. A connection that has failed is replaced."""
        try:
            return (yield from ask_driver(BeginAttempt()))
        except TransientError:
            yield CheckSession(0)
            raise

    def begin_attempt(self) -> Machine[None]:
        """Begin the attempt, or begin it again: fence, read the progress, choose the layout."""
        rows, state, quarantine = yield from retry_transient(self._fence)
        yield from self._note_quarantine(quarantine)
        check_state(self.spec, rows[0].topic_id, state)
        self.progress.take_rows(rows)
        if state.ddl is not None:
            yield from self.changes.recover_change(state)
            yield from self.begin_attempt()
            return
        self.active_definition = yield from self.changes.restore_definition(state.definition)
        stored = Layout.decode(rows[0].layout)
        self.plan = plan_resume(
            self.progress.rows,
            stored if self.changes.unfit else choose_layout(self.spec, self.active_definition),
        )
        yield from self.copies.begin_attempt(self.active_definition, self.progress)
        if self.plan.switch_now:
            yield from self.switch_layout()
            return
        lowest = self.progress.lowest
        self.reader.begin_reading(self.progress.rows, self.active_definition)
        self.mark = (lowest.offset, lowest.position, lowest.gen, lowest.commit_ts_ms)
        self.applier = self._make_applier()
        if self.active_definition is not None:
            log_foreign_entries(self.spec.unit, self.active_definition, self.quarantine)

    def _make_applier(self) -> Applier | None:
        active = self.active_definition
        if active is None:
            return None
        return Applier(
            self.spec.unit,
            self.progress,
            self.plan.layout,
            active.target,
            expected=active.expected,
            held=recompute_folded_keys(self.quarantine, active.target),
            limits=self.spec.limits,
            replace=self.spec.replace,
            unfit=active.unfit,
            small_batch=self.spec.small_batch,
            signals=self._signals,
        )

    def replace_stored(self, stored: StoredDefinition) -> None:
        """Continue with the stored definition `stored`, which describes the same table."""
        if self.active_definition is not None:
            self.active_definition = dataclasses.replace(
                self.active_definition, stored=stored, text=stored.encode()
            )
        self.changes.note_stored(stored)

    def compare_passed_ranges(self) -> Machine[None]:
        """Compare what the unit has passed of a key sweep with the target for a while, after all lanes have
        drained.
        """
        active = self.active_definition
        if active is None or active.stored.sweep_since is None:
            return
        if self.progress.level:  # otherwise a crash has left lanes beyond the records of this attempt
            stored, held = yield from self.copies.compare_passed_ranges(active, self.progress)
            self.replace_stored(stored)
            if held is not None:
                yield from self.set_quarantine(held)
                yield from self.drain()
            if stored.sweep_since is None:
                return
        sweep = self.copies.key_sweep
        if sweep is not None and sweep.is_full:
            yield from self.end_passed_ranges()
            return
        if sweep is None or sweep.has_work:
            self.trial_in_s = SWEEP_PAUSE_S
        if sweep is not None:
            yield RememberKeySweep(sweep)

    def end_passed_ranges(self) -> Machine[None]:
        """Compare all ranges that a key sweep has passed, before an event after which they cannot be. Ranges
        of the sweep that come later are compared at their markers.
        """
        active = self.active_definition
        if active is None or active.stored.sweep_since is None:
            return
        yield from self.drain()
        if not self.progress.level:
            raise TransientError(f"{self.spec.unit.topic}: its lanes are not at one offset")
        stored, held = yield from self.copies.compare_passed_ranges(active, self.progress, to_the_end=True)
        stored = dataclasses.replace(stored, sweep_since=None)
        yield from self.progress.commit_guarded([WriteUnit(UnitState(stored.encode(), None, None))])
        self.copies.forget_key_sweep()
        self.replace_stored(stored)
        if held is not None:
            yield from self.set_quarantine(held)

    def set_quarantine(
        self, held: Sequence[QuarantineEntry], *, resolved: int | None = None
    ) -> Machine[None]:
        """Continue with these entries of the quarantine. `resolved`: see `_note_quarantine`.

        New lanes are started, because the old ones remember freed keys.
        """
        yield from self.close()
        yield from self._note_quarantine(held, resolved)
        self.applier = self._make_applier()

    def _note_quarantine(self, held: Sequence[QuarantineEntry], resolved: int | None = None) -> Machine[None]:
        """Note all entries of the unit's quarantine, which were read just now.

        `resolved`: how many have left it since the lanes were closed; None: those that are missing.
        """
        if resolved is None:
            resolved = max(0, self._open_quarantine - len(held))
        self.quarantine, self._open_quarantine = held, len(held)
        self._quarantine_read_at = yield from ask_driver(ReadClock())
        self._figures.add_lanes(LaneFigures(open_quarantine=self._open_quarantine, resolved=resolved))

    def switch_layout(self) -> Machine[None]:
        """Write the configured layout and begin again with it. All lanes are at one offset."""
        rows = relay_rows(self.progress.rows, choose_layout(self.spec, self.active_definition))
        yield from retry_transient(lambda: self.progress.replace_lanes(rows))
        yield from self.begin_attempt()

    def submit(self, changes: list[RowChange]) -> Machine[None]:
        """Pass changes to the applier. Raises UnitStoppedError if there is no active definition."""
        if not changes:
            return
        if self.applier is None:  # no reader yields rows then; if one did, they must not count as applied
            raise build_undefined_error(self.spec.unit.topic)
        yield from self.applier.submit(changes)
        self._figures.add_counts(applied=len(changes))

    def record_read(self, mark: LaneMark) -> None:
        """Record that all records up to `mark` are read, and given to the lanes or applied."""
        self.mark = mark

    def drain(self) -> Machine[None]:
        """Wait until every lane is at the last record that was read."""
        if self.applier is not None:
            yield from self.applier.drain(self.mark)
            yield from self._recover_keys(self.applier)
        else:
            yield from self.progress.move_idle(self.progress.list_lanes_below(self.mark), self.mark)

    def _recover_keys(self, applier: Applier) -> Machine[None]:
        """Try the quarantined keys with changes that the target was not asked for.

        After a crash the lanes are at one offset again a batch later.
        """
        active, self.trial_in_s = self.active_definition, 0.0
        if active is None or not can_recover(active):
            return
        untried = find_untried_keys(active, [*self.quarantine, *applier.untried.values()], self.progress)
        if not untried:
            return
        elapsed = (yield from ask_driver(ReadClock())) - self._quarantine_read_at
        interval = self.spec.trial_interval_s
        if not self.progress.level or not select_due_keys(untried, interval, elapsed):
            self.trial_in_s = choose_pause(untried)
            return
        outcome = yield from recover_keys(
            self.spec.unit,
            active,
            self.progress,
            interval_s=interval,
            replace=self.spec.replace,
            add_displaced=applier.add_displaced,
        )
        self.trial_in_s = outcome.pause_s
        if outcome.remaining is not None:
            yield from self.set_quarantine(outcome.remaining, resolved=outcome.resolved)

    def close(self, error: BaseException | None = None) -> Machine[None]:
        """End the lanes. `error`: the error that ended the attempt."""
        applier, self.applier = self.applier, None
        if applier is not None:
            try:
                yield from applier.close(error)
            finally:  # count what is committed, whatever ended the lanes
                self._figures.add_counts(held=applier.held, displaced=applier.displaced)
                self._open_quarantine += applier.quarantine_growth
                self._figures.add_lanes(replace(applier.figures, open_quarantine=self._open_quarantine))


def choose_layout(spec: UnitSpec, active: ActiveDefinition | None) -> Layout:
    """Return the layout that a unit should have by its configuration and its active definition (None:
    none yet).
    """
    layout = build_initial_layout(spec.routes, spec.lanes)
    return layout if active is None else replace(layout, keys=compute_keys_fingerprint([active.target]))


def check_state(spec: UnitSpec, topic_id: str, state: UnitState) -> None:
    """Raise UnitStoppedError if the unit is stopped in the target, CopyNeededError if its topic was created
    again.

    `topic_id`: the topic id in the unit's progress.
    """
    topic = spec.unit.topic
    if state.stopped is not None:
        raise UnitStoppedError.from_problem(decode_problem(state.stopped))
    if topic_id != spec.topic_id:
        raise build_recreated_topic_error(topic)


def build_recreated_topic_error(topic: str) -> CopyNeededError:
    """Return the error of a topic with another id than the one in the progress."""
    return CopyNeededError(
        f"{topic}: the Kafka topic was deleted and created again: the stored offsets do not apply to it",
        cause="topic-lost", after=-1,
    )  # fmt: skip
