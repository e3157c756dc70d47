"""The core of a pipeline's assigned units: any order of instructions, answers and trouble leaves no unit in
two hands.

`RandomShell` plays operations and slots at random; after every event the rules are checked, and once the
trouble is over everything that was started must be applied by the slots, and everything that was stopped must
have ended.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.attempt.reports import AttemptOutcome as ReportState
from consumer.attempt.reports import LaneFigures, Report
from consumer.units.decisions import (
    CHECK_S,
    MAX_FAST_PROBES,
    PROBE_INTERVAL_S,
    PipelineState,
    step_pipeline,
)
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
from consumer.units.transitions import STOPPED_RETRY_S
from consumer.units.unit import Applying, Fencing, Stopped, TakingOver
from schemas.units import Prepared, WorkerEnded

TOPICS = ("a", "b", "c")
Asked = PrepareTarget | TakeOver | ProbeStopped | CheckTable | FenceUnit


@dataclass
class RandomShell:
    """What the shell knows. `rows`: topic → [epoch, offset] in the target; `ends`: next offsets in Kafka;
    `placed`: topic → fencing token, of the units that the slots have."""

    rng: random.Random
    trouble: bool = True
    now: float = 0.0
    state: PipelineState = field(default_factory=PipelineState)
    asked: list[Asked] = field(default_factory=list)
    placed: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=lambda: {t: [0, -1] for t in TOPICS})
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    reported: Counter[tuple[str, int, type[Prepared | WorkerEnded]]] = field(default_factory=Counter)
    expected: dict[str, int] = field(default_factory=dict)
    number: int = 0

    def do(self, event: PipelineEvent) -> None:
        self.now += self.rng.choice([0.0, 0.01, 0.3])
        self.state, effects = step_pipeline(self.state, event, self.now)
        for effect in effects:
            self.take(effect)

    def take(self, effect: PipelineEffect) -> None:
        match effect:
            case PrepareTarget() | TakeOver() | FenceUnit() | ProbeStopped():
                writing = {each.unit.topic for each in self.asked if isinstance(each, TakeOver | FenceUnit)}
                assert effect.unit.topic not in writing, "one hand a unit; one that only looks may be late"
                if not isinstance(effect, PrepareTarget):
                    assert effect.unit.topic not in self.placed, "withdrawn first"
                self.asked.append(effect)
            case PlaceUnit(unit, taken):
                assert unit.topic not in self.placed
                assert not [
                    each
                    for each in self.asked
                    if each.unit.topic == unit.topic and isinstance(each, TakeOver)
                ]
                self.placed[unit.topic] = taken.epoch
            case WithdrawUnit(topic):
                del self.placed[topic]
            case ReportEvent(topic, _, assignment, what):
                self.reported[topic, assignment, what] += 1
                if what is WorkerEnded and self.expected.get(topic) == assignment:
                    del self.expected[topic]
            case LogWaiting(topic):
                assert isinstance(self.state.units[topic].state, Stopped | Fencing)
            case CheckTable():
                self.asked.append(effect)
            case AbortOperation():
                pass

    # what may happen

    def random_event(self) -> None:
        rng = self.rng
        for topic in TOPICS:
            self.ends[topic] += rng.choice([0, 0, 1, 50])
        choices = [self.instruct, self.answer, self.answer, self.work]
        if self.trouble and rng.random() < 0.1:
            choices = [self.lose_slot, self.bad_report]
        rng.choice(choices)()

    def instruct(self) -> None:
        topic = self.rng.choice(TOPICS)
        assignment = self.expected.get(topic)
        if assignment is None and topic not in self.state.units:
            self.number += 1
            self.expected[topic] = self.number
            self.do(PrepareUnit(topic, "s", self.number))
        elif assignment is not None:
            self.do(
                StartUnit(topic, assignment) if self.rng.random() < 0.8 else RemoveUnit(topic, assignment)
            )

    def answer(self) -> None:
        if not self.asked:
            return self.do(PipelineTick())
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        bad = self.trouble and self.rng.random() < 0.2
        match asked:
            case PrepareTarget(unit):
                if bad:
                    return self.do(
                        OperationFailed(unit.topic, unit.assignment, "no topic", should_retry=True)
                    )
                return self.do(
                    TargetPrepared(unit.topic, unit.assignment, "id", self.rng.choice([b"", b"t"]))
                )
            case TakeOver(unit, above):
                if bad:
                    again, waits = self.rng.choice([(True, False), (False, True), (False, False)])
                    return self.do(
                        OperationFailed(unit.topic, unit.assignment, "no", should_retry=again, waits=waits)
                    )
                row = self.rows[unit.topic]
                row[0] = max(row[0], above, unit.assignment << 16) + 1
                return self.do(
                    UnitTakenOver(unit.topic, unit.assignment, row[0], row[1], self.ends[unit.topic])
                )
            case ProbeStopped(unit):
                seen = None if bad else self.rng.choice(["x", "x", "y"])
                return self.do(
                    StoppedProbed(unit.topic, unit.assignment, seen, "id", self.rng.choice([b"", b"t"]))
                )
            case CheckTable(unit, epoch):
                why = "it does not fit" if bad else None
                return self.do(TableChecked(unit.topic, unit.assignment, epoch, why))
            case FenceUnit(unit):
                row = self.rows[unit.topic]
                row[0] += 1
                return self.do(UnitFenced(unit.topic, unit.assignment, row[1]))

    def work(self) -> None:
        """An attempt at a unit that the slots have."""
        if not self.placed:
            return
        topic, epoch = self.rng.choice(list(self.placed.items()))
        row = self.rows[topic]
        assert row[0] == epoch, "under the fencing token of the takeover"
        row[1] = max(row[1], self.ends[topic] - 1)
        if self.rng.random() < 0.9 or not self.trouble:
            self.do(AttemptsReported([Report(topic=topic, state="ok", epoch=epoch, offset=row[1])]))
        return

    def lose_slot(self) -> None:
        if self.placed:
            topic, epoch = self.rng.choice(list(self.placed.items()))
            self.do(SlotLost(topic, epoch - self.rng.choice([0, 0, 1])))

    def bad_report(self) -> None:
        held = [unit for unit in self.state.units.values() if isinstance(unit.state, Applying)]
        if held:
            unit = self.rng.choice(held)
            state = self.rng.choice(["behind", "fenced", "stopped"])
            epoch = unit.epoch - self.rng.choice([0, 0, 1])
            report = Report(topic=unit.ref.topic, state=state, epoch=epoch, offset=0, message="why")
            self.do(AttemptsReported([report]))

    def settle(self) -> None:
        """No more trouble: everything answers, time passes."""
        self.trouble = False
        for _ in range(60):
            while self.asked:
                self.answer()
            self.work()
            self.now += 20.0 if any(unit.stop_cause for unit in self.state.units.values()) else 1.0
            self.do(PipelineTick())


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.integers(5, 150))
def test_any_order_of_events(seed: int, steps: int) -> None:
    shell = RandomShell(random.Random(seed))
    for _ in range(steps):
        shell.random_event()
    shell.settle()
    for topic, assignment in list(shell.expected.items()):
        shell.do(StartUnit(topic, assignment))
    shell.settle()
    units = shell.state.units
    assert set(units) == set(shell.expected), "what has not been stopped and has not ended is here"
    assert shell.placed == {topic: unit.epoch for topic, unit in units.items()}, "and is applied"
    assert all(shell.rows[topic][0] == epoch for topic, epoch in shell.placed.items())
    for topic, assignment in list(shell.expected.items()):
        shell.do(RemoveUnit(topic, assignment))
    shell.settle()
    assert not shell.state.units
    assert not shell.placed
    for topic, assignment, what in shell.reported:
        assert what is Prepared or shell.reported[topic, assignment, WorkerEnded] == 1
        assert shell.reported[topic, assignment, what] == 1
    assert sum(1 for _, _, what in shell.reported if what is WorkerEnded) == shell.number


class Script:
    """Steps by hand: returns what each event comes to."""

    def __init__(self) -> None:
        self.state, self.now = PipelineState(), 0.0

    def __call__(self, event: PipelineEvent, wait: float = 0.0) -> list[PipelineEffect]:
        self.now += wait
        self.state, effects = step_pipeline(self.state, event, self.now)
        return effects

    def start(self, *topics: str) -> Script:
        """Prepare and start `topics`, whose takeovers then run."""
        for topic in topics:
            assert self(PrepareUnit(topic, "s", 1)) == [PrepareTarget(self.state.units[topic].ref)]
            (reported,) = self(TargetPrepared(topic, 1, "id"))
            assert reported == ReportEvent(topic, "s", 1, Prepared)
            (take,) = self(StartUnit(topic, 1))
            assert isinstance(take, TakeOver)
        return self

    def place_units(self, *topics: str) -> Script:
        """Prepare and start `topics`, which the slots then apply."""
        self.start(*topics)
        for topic in topics:
            taken = UnitTakenOver(topic, 1, 10, 99, 100)
            assert self(taken) == [PlaceUnit(self.state.units[topic].ref, taken)]
        return self


def test_with_other_secrets_a_unit_ends_as_soon_as_it_does_not_apply() -> None:
    run = Script().start("a", "b", "c")
    run(UnitTakenOver("a", 1, 10, 99, 100))
    run(OperationFailed("b", 1, "no entry", should_retry=False, waits=True))
    run(OperationFailed("c", 1, "password refused", should_retry=True))
    run(PrepareUnit("d", "s", 1))
    effects = run(SecretsReplaced(), 1.0)
    assert [effect.topic for effect in effects if isinstance(effect, ReportEvent)] == ["d"]
    assert [effect.unit.topic for effect in effects if isinstance(effect, FenceUnit)] == ["b", "c"]
    for topic in "bc":
        assert run(UnitFenced(topic, 1, 99)) == [ReportEvent(topic, "s", 1, WorkerEnded, 99)]
    assert isinstance(run.state.units["a"].state, Applying), "its connections still work"
    withdraw, fence = run(AttemptsReported([Report("a", "behind", 10, 99, message="connection lost")]))
    assert withdraw == WithdrawUnit("a")
    assert isinstance(fence, FenceUnit)


def test_late_reports_and_losses_of_an_earlier_fencing_token_change_nothing() -> None:
    run = Script().place_units("a")
    assert run(AttemptsReported([Report(topic="a", state="fenced", epoch=9, offset=150)])) == []
    assert run(SlotLost("a", 9)) == []
    assert run(SlotLost("x", 10)) == []
    assert isinstance(run.state.units["a"].state, Applying)
    assert run(SlotLost("a", 10))[0] == WithdrawUnit("a")
    assert isinstance(run.state.units["a"].state, TakingOver)


def test_a_unit_is_taken_over_again_after_the_loss_of_its_slot() -> None:
    run = Script().place_units("a", "b")
    withdraw, take = run(SlotLost("a", 10))
    assert withdraw == WithdrawUnit("a")
    assert isinstance(take, TakeOver)
    assert (take.unit.topic, take.above) == ("a", 10)
    taken = UnitTakenOver("a", 1, 11, 120, 130)
    assert run(taken) == [PlaceUnit(run.state.units["a"].ref, taken)]
    assert run.state.units["b"].epoch == 10


def test_repeated_losses_delay_the_takeover() -> None:
    run = Script().place_units("a")
    run(SlotLost("a", 10))
    run(UnitTakenOver("a", 1, 11, 120, 130))
    assert run(SlotLost("a", 11)) == [WithdrawUnit("a")]
    assert run(PipelineTick(), 0.9) == []
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)


def test_a_stop_withdraws_the_unit_and_then_fences_it() -> None:
    run = Script().place_units("a", "b")
    withdraw, fence = run(RemoveUnit("a", 1))
    assert withdraw == WithdrawUnit("a")
    assert isinstance(fence, FenceUnit)
    assert (fence.above, fence.stopped) == (10, None)
    assert run(UnitFenced("a", 1, 120)) == [ReportEvent("a", "s", 1, WorkerEnded, 120)]
    assert run(RemoveUnit("a", 1)) == [ReportEvent("a", "", 1, WorkerEnded)], "asked again, it says so again"


def test_a_unit_stopped_during_an_operation_is_fenced_afterwards() -> None:
    run = Script().place_units("a")
    run(AttemptsReported([Report(topic="a", state="behind", epoch=10, offset=99)]))
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)
    assert run(RemoveUnit("a", 1)) == [AbortOperation("a", 1)]
    (fence,) = run(UnitTakenOver("a", 1, 11, 99, 100))
    assert isinstance(fence, FenceUnit)
    assert fence.above == 11


def stopped(run: Script, why: str = "gap") -> list[PipelineEffect]:
    return run(AttemptsReported([Report(topic="a", state="stopped", epoch=10, offset=99, message=why)]))


def tried_once(run: Script, why: str) -> None:
    """It may have been mended before the first look: so the second one leads to a try, and that to the same
    trouble."""
    run(PipelineTick(), PROBE_INTERVAL_S)
    (take,) = (effect for effect in run(StoppedProbed("a", 1, "x", "id")) if isinstance(effect, TakeOver))
    assert take.look, "whatever was written before, the target table is judged first"
    run(OperationFailed("a", 1, why, should_retry=False, epoch=11, waits=True))
    run(StoppedProbed("a", 1, "x", "id"))


def test_a_unit_that_waits_for_a_person_stays_here_and_is_told_once() -> None:
    run = Script().place_units("a", "b")
    examine = ProbeStopped(run.state.units["a"].ref, why="gap")
    assert stopped(run) == [LogWaiting("a", "s", "gap"), WithdrawUnit("a"), examine]
    assert run(StoppedProbed("a", 1, "x", "id")) == []
    tried_once(run, "gap")
    for _ in range(20):
        effects = [
            effect
            for effect in run(PipelineTick(), PROBE_INTERVAL_S / 2)
            if not isinstance(effect, CheckTable)
        ]
        assert effects in ([], [examine]), "a look at the other unit aside"
        run(StoppedProbed("a", 1, "x", "id"))
    assert isinstance(run.state.units["a"].state, Stopped), "nothing has changed, and it is not long"
    assert (run.state.units["a"].watched.state, run.state.units["a"].watched.message) == ("stopped", "gap")


def test_a_unit_that_waits_is_tried_again_when_something_has_changed_or_after_long() -> None:
    run = Script().place_units("a")
    stopped(run)
    run(StoppedProbed("a", 1, "x", "id"))
    tried_once(run, "gap")
    run(PipelineTick(), PROBE_INTERVAL_S)
    (take,) = run(StoppedProbed("a", 1, "y", "id", b"t"))
    assert take == TakeOver(run.state.units["a"].ref, 11, look=True)
    assert run.state.units["a"].ref.real == b"t", "with the target table as it is now"
    again = run(OperationFailed("a", 1, "gap", should_retry=False, epoch=12, waits=True))
    assert again == [ProbeStopped(run.state.units["a"].ref, why="gap")], "told already"
    run(StoppedProbed("a", 1, "y", "id"))
    run(PipelineTick(), STOPPED_RETRY_S)
    (take,) = run(StoppedProbed("a", 1, "y", "id"))
    assert isinstance(take, TakeOver)
    run(UnitTakenOver("a", 1, 13, 99, 100))
    assert isinstance(run.state.units["a"].state, Applying)
    assert run.state.units["a"].watched.state == "ok"
    assert run.state.units["a"].stop_cause is None


@pytest.mark.parametrize("seen_before", [True, False])
def test_a_unit_that_could_not_be_looked_at_is_tried_when_it_can(seen_before: bool) -> None:
    """For example all rights were revoked: when they are granted again, the look is the first one, or it
    shows nothing different from before."""
    run = Script().place_units("a")
    stopped(run, "no right")
    if seen_before:
        run(StoppedProbed("a", 1, "x", "id"))
        tried_once(run, "no right")
        run(PipelineTick(), PROBE_INTERVAL_S)
    for _ in range(3):
        assert run(StoppedProbed("a", 1, None)) == [], "nothing can be seen: nothing follows"
        run(PipelineTick(), PROBE_INTERVAL_S)
    (take,) = run(StoppedProbed("a", 1, "x", "id"))
    assert isinstance(take, TakeOver)
    run(OperationFailed("a", 1, "no right", should_retry=False, epoch=12, waits=True))
    for _ in range(3):
        run(StoppedProbed("a", 1, "x", "id"))
        run(PipelineTick(), PROBE_INTERVAL_S)
    assert isinstance(run.state.units["a"].state, Stopped), "it is not hammered"


def test_running_units_are_looked_at_in_turn_and_stop_where_they_do_not_fit_any_more() -> None:
    run = Script().place_units("a", "b")
    seen: list[CheckTable] = []
    for _ in range(round(2 * CHECK_S)):
        for effect in run(PipelineTick(), 1.0):
            if isinstance(effect, CheckTable):
                seen.append(effect)
                assert run(TableChecked(effect.unit.topic, 1, effect.epoch)) == [], "it fits"
    assert [each.unit.topic for each in seen[:2]] in (["a", "b"], ["b", "a"])
    assert len(seen) in (2, 3, 4), "each once in a while"
    assert {each.epoch for each in seen} == {10}
    run(TableChecked("a", 1, 9, "has triggers: drop them"))
    assert isinstance(run.state.units["a"].state, Applying), "another epoch of it"
    effects = run(TableChecked("a", 1, 10, "has triggers: drop them"))
    assert effects[:2] == [LogWaiting("a", "s", "has triggers: drop them"), WithdrawUnit("a")]
    assert isinstance(run.state.units["a"].state, Stopped)


def test_many_units_that_wait_are_looked_at_less_often() -> None:
    """Say a right is missing in the target: hundreds wait, and the target has other things to do."""
    run = Script()
    many = MAX_FAST_PROBES * 10
    for number in range(many):
        run(PrepareUnit(f"t{number}", "s", 1))
        run(TargetPrepared(f"t{number}", 1, "id"))
    for topic in list(run.state.units):
        run(StartUnit(topic, 1))
        run(OperationFailed(topic, 1, "no right", should_retry=False, waits=True))
    for topic in list(run.state.units):
        run(StoppedProbed(topic, 1, "x", "id"))
    looks = 0
    for _ in range(100):
        effects = run(PipelineTick(), 1.0)
        looks += sum(isinstance(effect, ProbeStopped) for effect in effects)
        for effect in effects:
            if isinstance(effect, ProbeStopped):
                run(StoppedProbed(effect.unit.topic, 1, "x", "id"))
    assert many * 0.5 <= looks <= many * 1.5, "each once in ten times the usual pause"


def test_a_unit_that_waits_ends_when_it_is_told_to_and_stays_marked() -> None:
    run = Script().place_units("a")
    stopped(run)  # and a hand looks: it has to wait for its turn, the end of the unit has not
    (fence,) = run(RemoveUnit("a", 1))
    assert isinstance(fence, FenceUnit)
    assert fence.stopped == "gap"
    assert run(StoppedProbed("a", 1, "x", "id")) == []
    assert run(UnitFenced("a", 1, 99)) == [ReportEvent("a", "s", 1, WorkerEnded, 99)], (
        "no error of whoever moves it"
    )


def test_figures_add_up_over_attempts() -> None:
    """Also over a take-over in between."""
    run = Script().place_units("a", "b")
    run(AttemptsReported([Report(topic="a", state="ok", epoch=10, offset=100, applied=3, displaced=2)]))
    lanes = LaneFigures(upserted=4, open_quarantine=2)
    fenced = Report(topic="a", state="fenced", epoch=10, offset=100, held=5, displaced=1, lanes=lanes)
    run(AttemptsReported([fenced]))
    run(UnitTakenOver("a", 1, 11, 110, 111))
    more = LaneFigures(3, lock_waits=1)
    report = Report("a", "ok", 11, 120, applied=6, held=1, displaced=4, lanes=more)
    run(AttemptsReported([report]))
    watched = run.state.units["a"].watched
    assert (watched.applied, watched.held, watched.displaced) == (9, 6, 7)
    assert watched.lanes == LaneFigures(7, lock_waits=1, open_quarantine=2)
    assert run.state.units["b"].watched.displaced == 0


@pytest.mark.parametrize("state", ["behind", "fenced"])
def test_a_unit_in_trouble_is_taken_over_anew_and_the_others_go_on(state: ReportState) -> None:
    run = Script().place_units("a", "b")
    assert run(AttemptsReported([Report(topic="a", state=state, epoch=10, offset=100)])) == [
        WithdrawUnit("a")
    ]
    assert [type(unit.state) for unit in run.state.units.values()] == [TakingOver, Applying]
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)
    assert (take.unit.topic, take.above) == ("a", 10)
    taken = UnitTakenOver("a", 1, 11, 100, 101)
    assert run(taken) == [PlaceUnit(run.state.units["a"].ref, taken)]


def waits_for_lock(run: Script, message: str = "seen", epoch: int = 10) -> str:
    """Report what unit a waits for; return what the core knows then."""
    run(AttemptsReported([Report("a", "waiting", epoch, -1, message=message)]))
    return run.state.units["a"].lock_wait


def test_a_wait_for_a_row_lock_is_known_until_it_ends() -> None:
    run = Script().place_units("a", "b")
    assert waits_for_lock(run) == "seen"
    assert run.state.units["b"].lock_wait == ""
    assert (run.state.units["a"].watched.state, type(run.state.units["a"].state)) == ("ok", Applying)
    assert waits_for_lock(run, "") == ""
    assert waits_for_lock(run, epoch=9) == "", "an earlier attempt"
    run(AttemptsReported([Report("x", "waiting", 10, -1, message="seen")]))


def test_a_wait_for_a_row_lock_is_kept_while_it_is_retried() -> None:
    run = Script().place_units("a")
    waits_for_lock(run)
    run(AttemptsReported([Report("a", "behind", 10, 100, message="time-out")]))
    assert run.state.units["a"].lock_wait == "seen"
    run(PipelineTick(), 1.0)
    assert waits_for_lock(run, "by another", epoch=11) == "by another", "the takeover applies a backlog"
    run(UnitTakenOver("a", 1, 11, 100, 101))
    assert run.state.units["a"].lock_wait == ""


@pytest.mark.parametrize("state", ["ok", "stopped"])
def test_the_end_of_an_attempt_ends_its_wait_for_a_row_lock(state: ReportState) -> None:
    run = Script().place_units("a")
    waits_for_lock(run)
    run(AttemptsReported([Report("a", state, 10, 100, message="why")]))
    assert run.state.units["a"].lock_wait == ""


def test_a_stopped_unit_is_not_probed_twice_at_once() -> None:
    run = Script().place_units("a")
    examine = ProbeStopped(run.state.units["a"].ref, why="gap")
    assert examine in stopped(run)
    assert examine not in [each for _ in range(3) for each in run(PipelineTick(), PROBE_INTERVAL_S)]


def test_instructions_for_another_assignment() -> None:
    run = Script().place_units("a")
    (reported,) = run(PrepareUnit("a", "s", 2))
    assert isinstance(reported, ReportEvent)
    assert "still here under the assignment 1" in str(reported.error)
    assert run(PrepareUnit("a", "s", 1)) == []
    (reported,) = run(StartUnit("a", 2))
    assert isinstance(reported, ReportEvent)
    assert reported.event is WorkerEnded
    assert run(RemoveUnit("a", 2)) == [ReportEvent("a", "", 2, WorkerEnded)]
    assert isinstance(run.state.units["a"].state, Applying)
