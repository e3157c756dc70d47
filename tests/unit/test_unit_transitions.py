"""The life of a unit in the apply process: random events keep to the table of its transitions, and to the
invariants that stand beside the table. Each broken twin of a function is found.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumer.attempt.reports import Report
from consumer.units import decisions, transitions
from consumer.units.decisions import PipelineState, step_pipeline
from consumer.units.messages import (
    AbortOperation,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PipelineTick,
    PlaceUnit,
    PrepareTarget,
    PrepareUnit,
    ProbeStopped,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    SlotLost,
    StartUnit,
    StoppedProbed,
    TableChecked,
    TakeOver,
    TargetPrepared,
    UnitFenced,
    UnitTakenOver,
    WithdrawUnit,
)
from consumer.units.transitions import LocalUnitEvent, UnitStep
from consumer.units.unit import (
    NOT_PROBED,
    Aborting,
    Applying,
    Fencing,
    LocalUnit,
    Stopped,
    TakingOver,
    UnitRef,
)
from schemas.units import WorkerEnded
from tools.docs.unit_life import ENDED, TransitionRow, fill_page, read_rows

TOPICS = ("a", "b")
ROWS = read_rows()
Operation = PrepareTarget | TakeOver | ProbeStopped | CheckTable | FenceUnit


class World:
    """Slots, operations and the target of one pipeline, which answer at random."""

    def __init__(self, seed: int, *, has_table: bool) -> None:
        self.has_table = has_table
        self.rng, self.now, self.state = random.Random(seed), 0.0, PipelineState()
        self.seen: set[TransitionRow] = set()
        self.running: list[Operation] = []
        self.placed: dict[str, int] = {}
        self.current: dict[str, int] = {}
        """The last assignment of each topic."""
        self.known = Counter[tuple[str, int]]()
        """The highest fencing token that an answer has named, by topic and assignment."""
        self.told_to_end: set[tuple[str, int]] = set()
        self.taken: set[tuple[str, int]] = set()
        self.fenced: set[tuple[str, int]] = set()
        self.ended = Counter[tuple[str, int]]()
        self.number = 0

    def step(self, event: PipelineEvent) -> None:
        with patch.object(decisions, "step_unit", self.step_unit):
            self.state, effects = step_pipeline(self.state, event, self.now)
        for effect in effects:
            self.take_effect(effect)

    def step_unit(
        self, unit: LocalUnit, event: LocalUnitEvent, now: float, probe_interval_s: float
    ) -> UnitStep:
        """Compare a step with the table."""
        after, effects = transitions.step_unit(unit, event, now, probe_interval_s)
        assert getattr(event, "assignment", unit.ref.assignment) == unit.ref.assignment, "a late result"
        if after is unit and not effects:
            return after, effects
        if isinstance(event, Report | SlotLost | TableChecked):
            is_known = event.epoch == unit.epoch or getattr(event, "state", "") == "waiting"
            assert is_known, "a report of another fencing token"
        name = ENDED if after is None else type(after.state).__name__
        found = [row for row in ROWS if is_row(row, unit, event, name, effects)]
        assert found or not self.has_table, f"not in the table: {type(unit.state)} {event} → {name} {effects}"
        self.seen.update(found)
        return after, effects

    def take_effect(self, effect: PipelineEffect) -> None:
        """Check an effect by the invariants."""
        match effect:
            case PrepareTarget(unit) | TakeOver(unit) | ProbeStopped(unit) | FenceUnit(unit):
                self.check_operation(effect, unit)
                self.running.append(effect)
            case CheckTable(unit, epoch):
                assert self.placed[unit.topic] == epoch
                self.running.append(effect)
            case PlaceUnit(unit, taken):
                assert (unit.topic, unit.assignment) not in self.told_to_end, "not once it is to end"
                assert unit.topic not in self.placed
                assert not self.find_running(unit), "no operation works on it"
                self.placed[unit.topic] = taken.epoch
            case WithdrawUnit(topic):
                del self.placed[topic]
            case AbortOperation(topic, assignment):
                place = topic, assignment
                assert any(
                    isinstance(each, TakeOver) for each in self.find_running(UnitRef(topic, "s", assignment))
                )
                self.told_to_end.add(place)
            case ReportEvent(topic, _, assignment, what) if what is WorkerEnded:
                place = topic, assignment
                self.ended[place] += 1
                assert self.ended[place] == 1, "a unit ends once"
                assert topic not in self.placed
                assert place not in self.taken or place in self.fenced, "fenced before its end"
            case LogWaiting(topic):
                assert isinstance(self.state.units[topic].state, Stopped | Fencing)

    def check_operation(self, effect: Operation, unit: UnitRef) -> None:
        place = unit.topic, unit.assignment
        others = self.find_running(unit)
        assert all(isinstance(each, ProbeStopped) for each in others), "one operation at a time"
        assert not others or isinstance(effect, FenceUnit), "one probe at a time"
        assert unit.topic not in self.placed, "withdrawn first"
        if isinstance(effect, TakeOver | FenceUnit):
            assert effect.above == self.known[place], "higher than every known token"
        if isinstance(effect, TakeOver):
            assert place not in self.told_to_end
            self.taken.add(place)
        if isinstance(effect, FenceUnit):
            assert place not in self.fenced
            self.told_to_end.add(place)

    def find_running(self, unit: UnitRef) -> list[Operation]:
        """Return the unit's operations, but for checks of its table."""
        place = unit.topic, unit.assignment
        return [
            each
            for each in self.running
            if (each.unit.topic, each.unit.assignment) == place and not isinstance(each, CheckTable)
        ]

    # -- what may happen

    def act(self) -> None:
        self.now += self.rng.choice([0.0, 0.01, 0.5, 11.0])
        self.rng.choice([self.instruct, self.answer, self.answer, self.report, self.report_late])()

    def instruct(self) -> None:
        topic = self.rng.choice(TOPICS)
        if topic not in self.state.units:
            self.number += 1
            self.current[topic] = self.number
            return self.step(PrepareUnit(topic, "s", self.number))
        if self.rng.random() < 0.01:
            return self.step(SecretsReplaced())
        if self.rng.random() < 0.8:
            return self.step(StartUnit(topic, self.current[topic]))
        return self.remove(topic)

    def remove(self, topic: str) -> None:
        self.told_to_end.add((topic, self.current[topic]))
        self.step(RemoveUnit(topic, self.current[topic]))

    def answer(self) -> None:
        if not self.running:
            return self.step(PipelineTick())
        asked = self.running.pop(self.rng.randrange(len(self.running)))
        unit = asked.unit
        place = unit.topic, unit.assignment
        is_bad = self.rng.random() < 0.3
        match asked:
            case PrepareTarget() | TakeOver() if is_bad:
                return self.step(self.fail(asked))
            case PrepareTarget():
                return self.step(TargetPrepared(*place, "id", self.rng.choice([b"", b"t"])))
            case TakeOver(_, above):
                self.known[place] = above + 1
                return self.step(UnitTakenOver(*place, above + 1, 5, self.rng.choice([6, 9])))
            case ProbeStopped():
                seen = None if is_bad else self.rng.choice(["x", "x", "y"])
                return self.step(StoppedProbed(*place, seen, "id", begun=self.rng.random() < 0.1))
            case CheckTable(_, epoch):
                return self.step(TableChecked(*place, epoch, "triggers" if is_bad else None))
            case FenceUnit():
                self.fenced.add(place)
                return self.step(UnitFenced(*place, 5))

    def fail(self, asked: PrepareTarget | TakeOver) -> OperationFailed:
        place = asked.unit.topic, asked.unit.assignment
        choices = [(True, False), (False, False)]
        if isinstance(asked, TakeOver):
            choices.append((False, True))
            self.known[place] = asked.above + self.rng.choice([0, 1])
        retried, waits = self.rng.choice(choices)
        why = self.rng.choice(["gap", "no right"])
        return OperationFailed(*place, why, should_retry=retried, waits=waits, epoch=self.known[place])

    def report(self) -> None:
        """A slot reports, or is lost, also of an earlier fencing token."""
        topic = self.rng.choice(TOPICS)
        unit = self.state.units.get(topic)
        epoch = (unit.epoch if unit else 1) - self.rng.choice([0, 0, 0, 1])
        if self.rng.random() < 0.1:
            return self.step(SlotLost(topic, epoch))
        state: Any = self.rng.choice(["ok", "ok", "behind", "fenced", "stopped", "waiting"])
        return self.step(AttemptsReported([Report(topic, state, epoch, 7, applied=1, message="why")]))

    def report_late(self) -> None:
        """An operation of an earlier assignment answers."""
        topic = self.rng.choice(TOPICS)
        place = topic, self.current.get(topic, 0) - 1
        self.step(
            self.rng.choice(
                [
                    TargetPrepared(*place, "old"),
                    UnitTakenOver(*place, 99, 5, 6),
                    OperationFailed(*place, "old", should_retry=False),
                    UnitFenced(*place, 5),
                    StoppedProbed(*place, "old"),
                    TableChecked(*place, 99, "old"),
                ]
            )
        )

    def finish(self) -> None:
        """Remove everything, and answer until it has ended."""
        for topic in list(self.state.units):
            self.remove(topic)
        for _ in range(100):
            if self.running:
                self.answer()
        assert not self.state.units
        assert not self.placed
        assert sum(self.ended.values()) == self.number, "every unit has ended"


def is_row(
    row: TransitionRow, unit: LocalUnit, event: LocalUnitEvent, after: str, effects: list[PipelineEffect]
) -> bool:
    """Return whether a step is one of the row. A cause that is known is not logged again."""
    names = tuple(type(each).__name__ for each in effects)
    unlogged = tuple(name for name in row.effects if name != "LogWaiting")
    return (
        (row.state, row.after) == (type(unit.state).__name__, after)
        and type(event).__name__ in row.events
        and names in {row.effects, unlogged}
    )


def play(seed: int, steps: int = 120, *, has_table: bool = True) -> World:
    """`has_table`: whether steps are compared with the table, too."""
    world = World(seed, has_table=has_table)
    for _ in range(steps):
        world.act()
    world.finish()
    return world


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(5, 200))
def test_any_order_of_events_keeps_to_table_and_invariants(seed: int, steps: int) -> None:
    play(seed, steps)


def test_every_row_of_the_table_happens() -> None:
    seen: set[TransitionRow] = set()
    for seed in range(60):
        seen |= play(seed).seen
    assert set(ROWS) - seen == set()


def test_the_page_shows_the_table_that_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/apply.md").read_text(encoding="utf-8")
    assert fill_page(page) == page, "→ python -m tools.docs.unit_life docs/explanation/apply.md"


# twins


def _fence_before_withdrawal(unit: LocalUnit, state: Applying, event: LocalUnitEvent, now: float) -> UnitStep:
    after, effects = STEP_APPLYING(unit, state, event, now)
    return after, effects[::-1]


def _take_over_without_withdrawal(
    unit: LocalUnit, state: Applying, event: LocalUnitEvent, now: float
) -> UnitStep:
    after, effects = STEP_APPLYING(unit, state, event, now)
    return after, [each for each in effects if not isinstance(each, WithdrawUnit)]


def _place_when_told_to_end(unit: LocalUnit, state: Aborting, event: LocalUnitEvent) -> UnitStep:
    if isinstance(event, UnitTakenOver):
        return replace(unit, epoch=event.epoch, state=Applying()), [PlaceUnit(unit.ref, event)]
    return STEP_ABORTING(unit, state, event)


def _fence_while_taken_over(
    unit: LocalUnit, state: TakingOver, event: LocalUnitEvent, now: float
) -> UnitStep:
    is_end = isinstance(event, RemoveUnit)
    return STEP_TAKEOVER(unit, replace(state, run_at=now) if is_end else state, event, now)


def _end_unfenced(unit: LocalUnit, state: TakingOver, event: LocalUnitEvent, now: float) -> UnitStep:
    if isinstance(event, OperationFailed) and not event.should_retry and not event.waits:
        ref = unit.ref
        return None, [ReportEvent(ref.topic, ref.source, ref.assignment, WorkerEnded, error=event.error)]
    return STEP_TAKEOVER(unit, state, event, now)


def _report_end_twice(unit: LocalUnit, *facts: Any) -> UnitStep:
    after, effects = END(unit, *facts)
    return after, effects * 2


def _forget_token(unit: LocalUnit, event: OperationFailed) -> LocalUnit:
    return replace(RECORD_FAILURE(unit, event), epoch=unit.epoch)


def _probe_again(
    unit: LocalUnit, state: Stopped, event: LocalUnitEvent, now: float, probe_interval_s: float
) -> UnitStep:
    after, effects = STEP_STOPPED(unit, state, event, now, probe_interval_s)
    return (unit, effects) if isinstance(event, PipelineTick) else (after, effects)


STEP_APPLYING, STEP_ABORTING = transitions._step_applying, transitions._step_aborting
STEP_TAKEOVER, STEP_STOPPED = transitions._step_takeover, transitions._step_stopped
END, RECORD_FAILURE = transitions._end_unit, transitions._record_failure
TWINS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a unit is fenced before it is withdrawn": (transitions, "_step_applying", _fence_before_withdrawal),
    "a lost unit is not withdrawn": (transitions, "_step_applying", _take_over_without_withdrawal),
    "a unit is placed though it is to end": (transitions, "_step_aborting", _place_when_told_to_end),
    "a unit is fenced while it is taken over": (transitions, "_step_takeover", _fence_while_taken_over),
    "a failed unit ends unfenced": (transitions, "_step_takeover", _end_unfenced),
    "the end is reported twice": (transitions, "_end_unit", _report_end_twice),
    "the token of a failed takeover is forgotten": (transitions, "_record_failure", _forget_token),
    "a probe starts while one runs": (transitions, "_step_stopped", _probe_again),
    "reports of earlier tokens count": (transitions, "_is_timely", lambda *_: True),
    "results of earlier assignments count": (PipelineState, "has_unit", lambda *_: True),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_found(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the invariants alone, without the table."""
    owner, name, broken = TWINS[twin]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        deque(play(seed, has_table=False) for seed in range(50))


def test_a_step_that_is_not_in_the_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "_step_prepared", lambda unit, *_: (unit.enter(Aborting(None)), []))
    with pytest.raises(AssertionError, match="not in the table"):
        deque(play(seed) for seed in range(50))


# single steps


def step_one(unit: LocalUnit, event: LocalUnitEvent, now: float = 0.0) -> LocalUnit:
    after, _ = transitions.step_unit(unit, event, now, 10.0)
    assert after is not None
    return after


REF = UnitRef("a", "s", 1, "id")
STOP_REPORT = Report("a", "stopped", 7, 5, message="gap")
WAITS = OperationFailed("a", 1, "gap", should_retry=False, epoch=8, waits=True)


def test_a_stop_after_an_applied_unit_is_a_new_one() -> None:
    """The digest of an earlier stop does not count: the change may have happened in between."""
    unit = step_one(LocalUnit(REF, Applying(), epoch=7), STOP_REPORT)
    unit = step_one(unit, StoppedProbed("a", 1, "x", "id", begun=True))
    unit = step_one(step_one(unit, UnitTakenOver("a", 1, 8, 5, 9)), SlotLost("a", 8))
    unit = step_one(unit, WAITS)
    assert isinstance(unit.state, Stopped)
    unit = step_one(unit, StoppedProbed("a", 1, "x", "id", begun=True))
    assert isinstance(unit.state, TakingOver), "a copy has begun: it continues at once"


def play_retries(probes: list[str]) -> list[int]:
    """Return after which probes a unit is retried that stops each time with the same cause."""
    unit, retried = step_one(LocalUnit(REF, Applying(), epoch=7), STOP_REPORT), []
    for number, seen in enumerate(probes):
        unit = step_one(unit, StoppedProbed("a", 1, seen, "id"))
        if isinstance(unit.state, TakingOver):
            retried.append(number)
            unit = step_one(unit, UnitTakenOver("a", 1, unit.epoch + 1, 5, 9))
            unit = step_one(unit, Report("a", "ok", unit.epoch, 5))
            unit = step_one(unit, replace(STOP_REPORT, epoch=unit.epoch))
    return retried


def test_a_retry_that_stops_again_is_repeated_only_after_a_change() -> None:
    """A table that was dropped at the source stops at the same event each time."""
    assert play_retries(["x"] * 20) == [1]
    assert play_retries(["x", "x", "x", "y", "y", "y"]) == [1, 3]


def test_a_retry_that_applies_events_is_a_new_stop() -> None:
    unit = step_one(LocalUnit(REF, Applying(tried_with="x"), epoch=7, last_logged_cause="gap"), STOP_REPORT)
    assert isinstance(unit.state, Stopped)
    assert unit.state.stop.tried_with == "x"
    for report in (replace(STOP_REPORT, applied=1), replace(STOP_REPORT, message="another")):
        unit = step_one(LocalUnit(REF, Applying(tried_with="x"), epoch=7, last_logged_cause="gap"), report)
        assert isinstance(unit.state, Stopped)
        assert unit.state.stop.tried_with == NOT_PROBED


def test_a_unit_that_fails_after_a_stop_ends_with_the_failure() -> None:
    unit = step_one(LocalUnit(REF, Applying(), epoch=7), STOP_REPORT)
    unit = step_one(unit, StoppedProbed("a", 1, "x", "id", begun=True))
    unit = step_one(unit, OperationFailed("a", 1, "another agent has it", should_retry=False))
    assert unit.state == Fencing(None, "another agent has it")
