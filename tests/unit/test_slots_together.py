"""Slots, their plan and a pipeline's core together, over streams that delay messages and break.

`World` runs the product's own machines: the core (consumer.units), the plan, and a schedule in each slot. A
slot whose stream is cut goes on until it notices. The target accepts an attempt only under the fencing token
of the last takeover. Rules: no two attempts run at a unit under one fencing token; no attempt begins after
its unit was released; and once the trouble is over, everything is applied.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.slots import plan as plans
from consumer.slots.messages import (
    PipelineRefused,
    ReleaseUnit,
    ServeUnit,
    SlotCommand,
    UnitPlace,
    UnitReleased,
    decode_slot_answer,
    decode_slot_command,
    encode_slot_message,
)
from consumer.slots.plan import PlanEffect, SendCommand, SlotPlan, UnitLost
from consumer.slots.schedule import (
    MAX_WAITING_RECORDS,
    FollowTopic,
    LeaveTopic,
    ServedUnit,
    SlotEffect,
    SlotSchedule,
    Turn,
)
from consumer.units.decisions import PipelineState, step_pipeline
from consumer.units.messages import (
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEvent,
    PipelineTick,
    PlaceUnit,
    PrepareTarget,
    PrepareUnit,
    ProbeStopped,
    RemoveUnit,
    ReportEvent,
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
from schemas.units import WorkerEnded

TOPICS = ("a", "b", "c")
OWN = 0


@dataclass
class Row:
    """A unit in the target."""

    epoch: int = 0
    offset: int = -1
    attempt: int = 0


@dataclass
class Running:
    turn: Turn
    attempt: int
    upto: int


@dataclass
class Slot:
    """A slot; `connected` is False once its stream is cut, `noticed` True once it knows. `has_secrets`: of
    the pipeline."""

    schedule: SlotSchedule = field(default_factory=SlotSchedule)
    commands: deque[bytes] = field(default_factory=deque)
    answers: deque[PipelineRefused | UnitReleased | Report] = field(default_factory=deque)
    running: list[Running] = field(default_factory=list)
    followed: dict[UnitPlace, tuple[int, int]] = field(default_factory=dict)
    """Place → (number, next offset)."""
    released: set[tuple[UnitPlace, int]] = field(default_factory=set)
    connected: bool = True
    noticed: bool = False
    has_secrets: bool = True


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now, self.trouble = 0.0, True
        self.core, self.plan = PipelineState(), SlotPlan(OWN)
        self.slots: dict[int, Slot] = {}
        self.lost: list[Slot] = []
        self.rows = {topic: Row() for topic in TOPICS}
        self.ends = dict.fromkeys(TOPICS, 0)
        self.asked: list[PrepareTarget | TakeOver | ProbeStopped | CheckTable | FenceUnit] = []
        self.expected: dict[str, int] = {}
        self.number = self.opened = 0
        self.open_slot(OWN)

    # -- the apply process

    def do(self, event: PipelineEvent) -> None:
        self.now += self.rng.choice([0.0, 0.01, 0.3])
        self.core, effects = step_pipeline(self.core, event, self.now)
        for effect in effects:
            match effect:
                case PlaceUnit(unit, taken):
                    serve = ServeUnit(
                        "r", unit.topic, "s", unit.assignment, "id", taken.epoch, taken.offset, taken.end
                    )
                    self.plan_effects(self.plan.serve_unit(serve))
                case WithdrawUnit(topic):
                    self.plan_effects(self.plan.withdraw_unit(("r", topic)))
                case ReportEvent(topic, _, assignment, what):
                    if what is WorkerEnded and self.expected.get(topic) == assignment:
                        del self.expected[topic]
                case PrepareTarget() | TakeOver() | ProbeStopped() | CheckTable() | FenceUnit():
                    self.asked.append(effect)
                case LogWaiting() | _:
                    pass

    def plan_effects(self, effects: list[PlanEffect]) -> None:
        for effect in effects:
            match effect:
                case SendCommand(slot, command):
                    self.slots[slot].commands.append(encode_slot_message(command))
                case UnitLost((_, topic), epoch):
                    self.do(SlotLost(topic, epoch))

    def open_slot(self, number: int | None = None) -> None:
        if number is None:
            self.opened += 1
            number = self.opened
        self.slots[number] = Slot()
        self.plan_effects(self.plan.open_slot(number))

    def cut(self) -> None:
        """Break the stream of a slot. Both sides notice, at any time."""
        others = [number for number in self.slots if number != OWN]
        if others:
            number = self.rng.choice(others)
            slot = self.slots.pop(number)
            slot.connected = False
            self.lost.append(slot)
            self.plan_effects(self.plan.lose_slot(number))

    # -- slots

    def carry_out(self, slot: Slot, effects: list[SlotEffect]) -> None:
        for effect in effects:
            match effect:
                case FollowTopic(place, offset, number):
                    slot.followed[place] = number, offset
                case LeaveTopic(place):
                    slot.followed.pop(place, None)
                case UnitReleased():
                    slot.released.add(((effect.run, effect.topic), effect.epoch))
                    slot.answers.append(decode_slot_answer(encode_slot_message(effect)))  # type: ignore[arg-type]

    def take_command(self, slot: Slot) -> None:
        if not slot.commands:
            return
        command: SlotCommand = decode_slot_command(slot.commands.popleft())
        match command:
            case ServeUnit() if not slot.has_secrets:
                slot.answers.append(PipelineRefused("r", "no file"))
                where = command.offset, command.end
                slot.answers.append(UnitReleased("r", command.topic, command.epoch, *where, command.trial))
            case ServeUnit():
                slot.released.discard((command.place, command.epoch))
                self.carry_out(slot, slot.schedule.add_unit(command, self.now))
            case ReleaseUnit(run, topic):
                self.carry_out(slot, slot.schedule.release_unit((run, topic)))

    def bring_records(self, slot: Slot) -> None:
        for place, (number, offset) in list(slot.followed.items()):
            end = self.ends[place[1]]
            if offset < end:
                records: RecordSlice = [(each, b"x") for each in range(offset, end)]
                slot.followed[place] = number, end
                self.carry_out(slot, slot.schedule.add_records(place, number, records, self.now))
            elif self.trouble and self.rng.random() < 0.05:
                self.carry_out(slot, slot.schedule.lose_records(place, number, self.now))

    def begin(self, slot: Slot) -> None:
        turn = slot.schedule.take_turn(self.now)
        if turn is None:
            return
        serve, row = turn.unit.serve, self.rows[turn.unit.serve.topic]
        assert (serve.place, serve.epoch) not in slot.released, "no attempt after the release"
        for other in (*self.slots.values(), *self.lost):
            for each in other.running:
                same = each.turn.unit.serve.place == serve.place and each.turn.unit.serve.epoch == serve.epoch
                assert not same, "two attempts under one fencing token"
        upto = turn.records[-1][0] if turn.records else turn.start - 1
        if turn.records is None:
            upto = self.rng.choice([self.ends[serve.topic] - 1, turn.start])
            upto = min(upto, self.ends[serve.topic] - 1)
        if row.epoch == serve.epoch:
            row.attempt += 1
        slot.running.append(Running(turn, row.attempt, upto))

    def end(self, slot: Slot) -> None:
        if not slot.running:
            return
        running = slot.running.pop(self.rng.randrange(len(slot.running)))
        serve, row = running.turn.unit.serve, self.rows[running.turn.unit.serve.topic]
        state = "ok"
        if row.epoch != serve.epoch or row.attempt != running.attempt:
            state = "fenced"
        elif self.trouble and self.rng.random() < 0.05:
            state = self.rng.choice(["behind", "stopped"])
        else:
            assert row.offset < running.turn.start or not running.turn.records or row.offset <= running.upto
            row.offset = max(row.offset, running.upto)
        report = Report(serve.topic, state, serve.epoch, row.offset if state == "ok" else -1, message="why")  # type: ignore[arg-type]
        slot.answers.append(report)
        end = self.ends[serve.topic] if running.turn.records is None else 0
        self.carry_out(slot, slot.schedule.end_turn(running.turn, report, end, self.now))

    def take_answer(self, number: int) -> None:
        slot = self.slots[number]
        if not slot.answers:
            return
        answer = slot.answers.popleft()
        if isinstance(answer, UnitReleased):
            self.plan_effects(self.plan.record_release(number, answer))
        elif isinstance(answer, PipelineRefused):
            self.plan_effects(self.plan.refuse_pipeline(number, answer.run))
        else:
            self.do(AttemptsReported([answer]))
            left = self.rng.choice([0, 0, plans.LAG_EVENTS + 1])
            self.plan_effects(self.plan.record_left(number, ("r", answer.topic), left))

    def lose_secrets(self, number: int) -> None:
        """Let a slot's host lack the secrets of the pipeline, or have them again."""
        self.slots[number].has_secrets = number == OWN or not self.slots[number].has_secrets

    def notice(self, slot: Slot) -> None:
        """The slot finds its stream broken: it begins nothing more."""
        slot.noticed = True
        for unit in slot.schedule.units:
            self.carry_out(slot, slot.schedule.release_unit(unit.place))

    # -- what may happen

    def step(self) -> None:
        rng = self.rng
        for topic in TOPICS:
            self.ends[topic] += rng.choice(
                [0, 0, 1, 50, MAX_WAITING_RECORDS * 2 if rng.random() < 0.02 else 0]
            )
        number = rng.choice(list(self.slots))
        slot = rng.choice([self.slots[number], *self.lost])
        actions: list[Callable[[], None]] = [
            self.instruct, self.answer, self.answer,
            lambda: self.take_command(slot), lambda: self.take_command(slot),
            lambda: self.bring_records(slot), lambda: self.begin(slot), lambda: self.end(slot),
            lambda: self.end(slot), lambda: self.take_answer(number), lambda: self.take_answer(number),
        ]  # fmt: skip
        if self.trouble and rng.random() < 0.1:
            actions = [
                self.cut, self.open_slot, lambda: self.notice(slot) if slot in self.lost else None,
                lambda: self.plan_effects(self.plan.begin_trouble(number)),
                lambda: self.plan_effects(self.plan.end_trouble(number)), lambda: self.lose_secrets(number),
            ]  # fmt: skip
        rng.choice(actions)()
        for each in (*self.slots.values(), *self.lost):
            for unit in each.schedule.units:
                assert not is_forgotten(each.schedule, unit), "nothing would ever bring an attempt at it"

    def instruct(self) -> None:
        topic = self.rng.choice(TOPICS)
        assignment = self.expected.get(topic)
        if assignment is None and topic not in self.core.units:
            self.number += 1
            self.expected[topic] = self.number
            self.do(PrepareUnit(topic, "s", self.number))
        elif assignment is not None:
            self.do(
                StartUnit(topic, assignment) if self.rng.random() < 0.9 else RemoveUnit(topic, assignment)
            )

    def answer(self) -> None:
        if not self.asked:
            return self.do(PipelineTick())
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        unit, bad = asked.unit, self.trouble and self.rng.random() < 0.1
        row = self.rows[unit.topic]
        match asked:
            case PrepareTarget():
                return self.do(TargetPrepared(unit.topic, unit.assignment, "id"))
            case TakeOver():
                row.epoch = max(row.epoch, asked.above, unit.assignment << 16) + 1
                if bad:
                    return self.do(
                        OperationFailed(unit.topic, unit.assignment, "no", should_retry=True, epoch=row.epoch)
                    )
                return self.do(
                    UnitTakenOver(unit.topic, unit.assignment, row.epoch, row.offset, self.ends[unit.topic])
                )
            case ProbeStopped():
                seen = self.rng.choice(["x", "y"])
                return self.do(StoppedProbed(unit.topic, unit.assignment, seen, "id"))
            case CheckTable():
                return self.do(TableChecked(unit.topic, unit.assignment, asked.epoch))
            case FenceUnit():
                row.epoch += 1
                return self.do(UnitFenced(unit.topic, unit.assignment, row.offset))

    def settle(self) -> None:
        """No more trouble: everything answers, time passes."""
        self.trouble = False
        for slot in self.lost:
            self.notice(slot)
        for slot in self.slots.values():
            slot.has_secrets = True
        for _ in range(80):
            for number in list(self.slots):
                self.plan_effects(self.plan.end_trouble(number))
            while self.asked:
                self.answer()
            for slot in (*self.slots.values(), *self.lost):
                while slot.commands and slot.connected:
                    self.take_command(slot)
                self.bring_records(slot)
                for _ in range(4):
                    self.begin(slot)
                while slot.running:
                    self.end(slot)
            for number in list(self.slots):
                while self.slots[number].answers:
                    self.take_answer(number)
            self.now += 25.0
            self.do(PipelineTick())


def is_forgotten(schedule: SlotSchedule, unit: ServedUnit) -> bool:
    """Return whether nothing would ever bring an attempt at the unit."""
    is_awaited = unit.waits_since is not None or unit.place in schedule._timed
    has_nothing_to_do = unit.follow_number is not None and not unit.records and unit.trial_at is None
    return not (unit.running or unit.releasing or is_awaited or has_nothing_to_do)


def run(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.settle()
    for topic, assignment in list(world.expected.items()):
        world.do(StartUnit(topic, assignment))
    world.settle()
    for topic in world.core.units:
        assert world.rows[topic].offset == world.ends[topic] - 1, "everything is applied"
        place = ("r", topic)
        assert world.plan.get_slot(place) is not None
        assert (world.plan.get_slot(place) == OWN) == (len(world.slots) == 1), (
            "in a task of Spark, if there is one"
        )
    for topic, assignment in list(world.expected.items()):
        world.do(RemoveUnit(topic, assignment))
    world.settle()
    assert not world.core.units
    assert all(world.plan.get_slot(("r", topic)) is None for topic in TOPICS)
    return world


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.integers(10, 400))
def test_any_order_of_messages_and_losses(seed: int, steps: int) -> None:
    run(seed, steps)


def _place_after_loss(plan: SlotPlan, slot: int) -> list[PlanEffect]:
    """The plan's loss of a slot, but the units go to another slot under the same fencing token."""
    for place in sorted(plan._slots.pop(slot, ())):
        unit = plan._units[place]
        unit.take_away()
        plan._keep_or_forget(place, unit)
    return plan._place_homeless()


def _release_at_once(plan: SlotPlan, place: UnitPlace, unit: plans._PlannedUnit) -> list[PlanEffect]:
    """The plan's release, but without waiting for the slot."""
    if unit.held is None:
        return []
    slot = unit.held.slot
    unit.take_away()
    plan._slots[slot].discard(place)
    plan._keep_or_forget(place, unit)
    return [SendCommand(slot, ReleaseUnit(*place)), *plan._place_homeless()]


def _answer_at_once(schedule: SlotSchedule, place: UnitPlace) -> list[SlotEffect]:
    """The schedule's release, but it does not wait for the running attempt."""
    unit = schedule._units.get(place)
    return [] if unit is None else [*unit.leave(), schedule._forget(unit)]


def _count_failed_release(serve: ServeUnit, released: UnitReleased) -> ServeUnit:
    return structs.replace(serve, offset=released.end, end=released.end)


def _lose_silently(plan: SlotPlan, slot: int) -> list[PlanEffect]:
    plan._slots.pop(slot, None)
    return []


def _forget_refused(plan: SlotPlan, slot: int, run: str) -> list[PlanEffect]:
    """The plan's refusal, but the units count as released already."""
    for place in plan.list_units(slot):
        plan._slots[slot].discard(place)
        plan._units[place].take_away()
        plan._keep_or_forget(place, plan._units[place])
    plan._refused.add((slot, run))
    return plan._place_homeless()


BROKEN: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a lost slot's units are placed at once": (SlotPlan, "lose_slot", _place_after_loss),
    "a release is not awaited": (SlotPlan, "_release", _release_at_once),
    "a running attempt is not awaited": (SlotSchedule, "release_unit", _answer_at_once),
    "a move skips what is left": (plans, "_continue_after", _count_failed_release),
    "a lost slot's units are not taken over": (SlotPlan, "lose_slot", _lose_silently),
    "a slot that lacks a secret is not waited for": (SlotPlan, "refuse_pipeline", _forget_refused),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_rules_find_what_is_broken(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    owner, name, broken = BROKEN[what]
    monkeypatch.setattr(owner, name, broken)

    def failures() -> Iterator[int]:
        for seed in range(150):
            try:
                run(seed, 300)
            except (AssertionError, KeyError):
                yield seed

    assert next(failures(), None) is not None
