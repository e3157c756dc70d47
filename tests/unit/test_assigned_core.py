"""The core of a pipeline's assigned units: any order of instructions, answers and trouble leaves no unit in two hands.

`World` plays hands, workers and Spark at random; after every event the rules are checked, and once the trouble is over
everything that was started must be applied by a query, and everything that was stopped must have ended.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.assigned.core import NEAR_LOOKS, SMALL, State, step
from consumer.assigned.queries import APART_S, LEFTOVER_S
from consumer.assigned.units import (
    Abort,
    Effect,
    Event,
    Failed,
    Fence,
    Fenced,
    Kind,
    Looked,
    Open,
    Phase,
    Post,
    QueryFailed,
    QueryLost,
    QueryUp,
    Reported,
    Say,
    Start,
    StartQuery,
    Stop,
    StopQuery,
    Take,
    Tick,
    Took,
    Warm,
    Warmed,
)
from consumer.reports import Report

TOPICS = ("a", "b", "c")


@dataclass
class World:
    """What the shell knows. `rows`: topic → [epoch, offset] in the target; `ends`: next offsets in Kafka."""

    rng: random.Random
    trouble: bool = True
    now: float = 0.0
    state: State = field(default_factory=State)
    asked: list[Warm | Take | Fence | StartQuery] = field(default_factory=list)
    boards: dict[int, dict[str, int]] = field(default_factory=dict)
    queries: dict[int, StartQuery] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=lambda: {t: [0, -1] for t in TOPICS})
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    said: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    wanted: dict[str, int] = field(default_factory=dict)
    number: int = 0

    def do(self, event: Event) -> None:
        self.now += self.rng.choice([0.0, 0.01, 0.3])
        self.state, effects = step(self.state, event, self.now)
        for effect in effects:
            self.take(effect)
            self.check_boards()

    def take(self, effect: Effect) -> None:
        match effect:
            case Warm() | Take() | Fence():
                writing = {each.unit.topic for each in self.asked if isinstance(each, Take | Fence)}
                assert effect.unit.topic not in writing, "one hand a unit; one that only looks may be late"
                if isinstance(effect, Fence):
                    topics = [topic for board in self.boards.values() for topic in board]
                    assert effect.unit.topic not in topics, "off the boards before the fence"
                self.asked.append(effect)
            case StartQuery():
                assert effect.starting
                assert not any(isinstance(e, StartQuery) and e.kind is effect.kind for e in self.asked)
                self.asked.append(effect)
            case Post(number, epochs):
                about = {unit.topic: (unit.topic_id, unit.real) for unit in self.queries[number].units}
                assert epochs.keys() <= about.keys(), "a query applies only what it reads"
                self.boards[number] = dict(epochs)
            case StopQuery(number):
                del self.queries[number]
                self.boards.pop(number, None)
            case Say(topic, _, assignment, what):
                self.said[topic, assignment, what] += 1
                if what == "ended" and self.wanted.get(topic) == assignment:
                    del self.wanted[topic]
            case Abort():
                pass

    def check_boards(self) -> None:
        held = Counter(entry for board in self.boards.values() for entry in board.items())
        assert not held or max(held.values()) == 1, f"on two boards: {self.boards}"

    # what may happen

    def random_event(self) -> None:
        rng = self.rng
        for topic in TOPICS:
            self.ends[topic] += rng.choice([0, 0, 1, 50, SMALL * 3 if rng.random() < 0.05 else 0])
        choices = [self.instruct, self.answer, self.answer, self.work, self.look]
        if self.trouble and rng.random() < 0.1:
            choices = [self.lose_query, self.bad_report]
        rng.choice(choices)()

    def instruct(self) -> None:
        topic = self.rng.choice(TOPICS)
        assignment = self.wanted.get(topic)
        if assignment is None and not any(unit.topic == topic for unit in self.state.units.values()):
            self.number += 1
            self.wanted[topic] = self.number
            self.do(Open(topic, "s", self.number))
        elif assignment is not None:
            self.do(Start(topic, assignment) if self.rng.random() < 0.8 else Stop(topic, assignment))

    def answer(self) -> None:
        if not self.asked:
            return self.do(Tick())
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        bad = self.trouble and self.rng.random() < 0.2
        match asked:
            case StartQuery(number, kind):
                if bad:
                    return self.do(QueryFailed(kind, "no"))
                self.queries[number] = asked
                if (
                    asked.kind is Kind.CATCHING_UP
                ):  # its backlog has been handed over by now, to whom it was for
                    for topic, epoch in asked.epochs.items():
                        if self.rows[topic][0] == epoch:
                            self.rows[topic][1] = max(self.rows[topic][1], self.ends[topic] - 1)
                self.boards[number] = dict(asked.epochs)
                about = {unit.topic: (unit.topic_id, unit.real) for unit in asked.units}
                return self.do(QueryUp(number, kind, about))
            case Warm(unit):
                if bad:
                    return self.do(Failed(unit.topic, unit.assignment, "no topic", again=True))
                return self.do(Warmed(unit.topic, unit.assignment, "id", self.rng.choice([b"", b"t"])))
            case Take(unit, above):
                if bad:
                    again = self.rng.random() < 0.7
                    return self.do(Failed(unit.topic, unit.assignment, "no", again=again))
                row = self.rows[unit.topic]
                row[0] = max(row[0], above, unit.assignment << 16) + 1
                if self.rng.random() < 0.8 and self.ends[unit.topic] - row[1] < SMALL * 4:
                    row[1] = self.ends[unit.topic] - 1
                behind = row[1] + 1 < self.ends[unit.topic]
                return self.do(Took(unit.topic, unit.assignment, row[0], row[1], behind))
            case Fence(unit):
                row = self.rows[unit.topic]
                row[0] += 1
                return self.do(Fenced(unit.topic, unit.assignment, row[1]))

    def work(self) -> None:
        """A worker's attempt on whatever board, if the row has its epoch."""
        held = [
            (number, topic, epoch) for number, board in self.boards.items() for topic, epoch in board.items()
        ]
        if not held:
            return None
        number, topic, epoch = self.rng.choice(held)
        row = self.rows[topic]
        if row[0] != epoch:
            return self.do(Reported([(number, Report(topic=topic, state="fenced", epoch=epoch, offset=-1))]))
        row[1] = max(row[1], self.ends[topic] - 1)
        if self.rng.random() < 0.9 or not self.trouble:
            self.do(Reported([(number, Report(topic=topic, state="ok", epoch=epoch, offset=row[1]))]))
        return None

    def look(self) -> None:
        for number, query in list(self.queries.items()):
            ends = {topic: self.ends[topic] for topic in query.starting}
            self.do(Looked(number, self.rng.randrange(5), ends, idle=True))

    def lose_query(self) -> None:
        if self.queries:
            self.do(QueryLost(self.rng.choice(list(self.queries)), "died"))

    def bad_report(self) -> None:
        held = [(unit.home or 0, unit) for unit in self.state.units.values() if unit.phase is Phase.RUNNING]
        if held:
            number, unit = self.rng.choice(held)
            state = self.rng.choice(["behind", "fenced", "stopped"])
            report = Report(topic=unit.topic, state=state, epoch=unit.epoch, offset=0, message="why")
            self.do(Reported([(self.rng.choice([number, number + 1]), report)]))

    def settle(self) -> None:
        """No more trouble: everything answers, time passes."""
        self.trouble = False
        for _ in range(60):
            while self.asked:
                self.answer()
            self.work()
            self.now += 1.0
            self.look()
            self.do(Tick())


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.integers(5, 150))
def test_any_order_of_events(seed: int, steps: int) -> None:
    world = World(random.Random(seed))
    for _ in range(steps):
        world.random_event()
    world.settle()
    for topic, assignment in list(world.wanted.items()):
        world.do(Start(topic, assignment))
    world.settle()
    units = world.state.units
    assert set(units) == set(world.wanted), "what has not been stopped and has not ended is here"
    on_board = {topic: epoch for board in world.boards.values() for topic, epoch in board.items()}
    assert on_board == {unit.topic: unit.epoch for unit in units.values()}, "and is applied"
    assert all(world.rows[topic][0] == epoch for topic, epoch in on_board.items())
    assert all(world.rows[topic][1] == world.ends[topic] - 1 for topic in units), "completely"
    assert len(world.queries) <= 1, "by the live query alone"
    for topic, assignment in list(world.wanted.items()):
        world.do(Stop(topic, assignment))
    world.settle()
    assert not world.state.units
    assert not world.queries, "which ends when nobody needs it"
    for topic, assignment, what in world.said:
        assert what == "ready" or world.said[topic, assignment, "ended"] == 1
        assert world.said[topic, assignment, what] == 1
    assert sum(1 for _, _, what in world.said if what == "ended") == world.number


class Script:
    """Steps by hand: returns what each event comes to."""

    def __init__(self) -> None:
        self.state, self.now = State(), 0.0

    def __call__(self, event: Event, wait: float = 0.0) -> list[Effect]:
        self.now += wait
        self.state, effects = step(self.state, event, self.now)
        return effects

    def running(self, *topics: str) -> Script:
        """Open and start `topics`, in one live query."""
        for topic in topics:
            self(Open(topic, "s", 1))
        for topic in topics:
            self(Warmed(topic, 1, "id"))
        (query,) = [effect for effect in self(Tick(), 0.3) if isinstance(effect, StartQuery)] or [None]
        assert query is None or query.kind is Kind.LIVE
        self(QueryUp(1, Kind.LIVE, dict.fromkeys(topics, ("id", b""))))
        for topic in topics:
            self(Start(topic, 1))
            self(Took(topic, 1, 10, 99))
        return self


def test_many_opens_are_one_query_and_a_later_one_takes_its_place_beside_it() -> None:
    run = Script()
    for topic in "abcdef":
        assert run(Open(topic, "s", 1)) == [Warm(run.state.units[topic].about)]
    started = [effect for topic in "abcdef" for effect in run(Warmed(topic, 1, "id"))]
    (query,) = started
    assert isinstance(query, StartQuery)
    assert query.starting == dict.fromkeys("abcdef", -1)
    said = run(QueryUp(query.number, Kind.LIVE, dict.fromkeys("abcdef", ("id", b""))))
    assert [effect.what for effect in said if isinstance(effect, Say)] == ["ready"] * 6
    run(Start("a", 1))
    assert run(Took("a", 1, 10, 99)) == [Post(1, {"a": 10})]
    run(Open("g", "s", 1), APART_S)
    (second,) = run(Warmed("g", 1, "id"))
    assert isinstance(second, StartQuery)
    assert second.starting == {**dict.fromkeys("bcdefg", -1), "a": 100}
    effects = run(QueryUp(2, Kind.LIVE, dict.fromkeys("abcdefg", ("id", b""))))
    assert effects[:3] == [Post(1, {}), Post(2, {"a": 10}), StopQuery(1)], "off the one board, onto the other"


def test_a_stop_takes_the_unit_off_its_board_and_then_fences_it() -> None:
    run = Script().running("a", "b")
    post, fence = run(Stop("a", 1))
    assert post == Post(1, {"b": 10})
    assert isinstance(fence, Fence)
    assert (fence.above, fence.stopped) == (10, None)
    assert run(Fenced("a", 1, 120)) == [Say("a", "s", 1, "ended", 120)]
    assert run(Stop("a", 1)) == [Say("a", "", 1, "ended")], "asked again, it says so again"


def test_a_unit_stopped_while_a_hand_is_at_it_is_fenced_afterwards() -> None:
    run = Script().running("a")
    run(Reported([(1, Report(topic="a", state="behind", epoch=10, offset=99))]))
    (take,) = run(Tick(), 1.0)
    assert isinstance(take, Take)
    assert run(Stop("a", 1)) == [Abort("a", 1)]
    (fence,) = run(Took("a", 1, 11, 99))
    assert isinstance(fence, Fence)
    assert fence.above == 11


def test_what_the_target_stops_ends_with_the_reason_and_stays_marked() -> None:
    run = Script().running("a")
    report = Report(topic="a", state="stopped", epoch=10, offset=99, message="gap")
    effects = run(Reported([(1, report)]))
    assert effects[0] == Post(1, {})
    assert isinstance(effects[1], Fence)
    assert effects[1].stopped == "gap"
    (said,) = run(Fenced("a", 1, 99))
    assert isinstance(said, Say)
    assert said.error == "gap"


def test_displaced_rows_add_up_over_hands_and_workers() -> None:
    run = Script().running("a")
    run(Reported([(1, Report(topic="a", state="ok", epoch=10, offset=100, displaced=2))]))
    run(Reported([(1, Report(topic="a", state="fenced", epoch=10, offset=100, displaced=1))]))
    run(Took("a", 1, 11, 110, displaced=4))
    assert run.state.units["a"].watched.displaced == 7


def test_trouble_of_a_query_that_the_unit_has_left_is_no_trouble() -> None:
    run = Script().running("a")
    run(Reported([(7, Report(topic="a", state="fenced", epoch=10, offset=150))]))
    assert run.state.units["a"].phase is Phase.RUNNING
    run(Reported([(1, Report(topic="a", state="fenced", epoch=9, offset=150))]))
    assert run.state.units["a"].phase is Phase.RUNNING
    run(Reported([(1, Report(topic="a", state="fenced", epoch=10, offset=150))]))
    assert run.state.units["a"].phase is Phase.TAKING


def test_a_backlog_goes_to_a_query_of_its_own_and_comes_back() -> None:
    run = Script().running("a", "b")
    run(Open("c", "s", 1))
    run(Warmed("c", 1, "id"))
    run(Tick(), 5)
    run(QueryUp(2, Kind.LIVE, dict.fromkeys("abc", ("id", b""))))
    run(Start("c", 1))
    (query,) = run(Took("c", 1, 20, 99, behind=True), APART_S)
    assert isinstance(query, StartQuery)
    assert (query.kind, query.starting, query.epochs) == (Kind.CATCHING_UP, {"c": 100}, {"c": 20})
    assert run(QueryUp(3, Kind.CATCHING_UP, {"c": ("id", b"")})) == []
    ends = {"a": 0, "b": 0, "c": 100 + SMALL * 9}
    assert run(Looked(2, 1, ends, idle=True)) == []
    run(Reported([(3, Report(topic="c", state="ok", epoch=20, offset=SMALL * 9))]))
    for _ in range(NEAR_LOOKS):  # near: perhaps it gets there
        assert run(Looked(2, 2, ends, idle=True)) == []
    assert run(Looked(2, 2, ends, idle=True)) == [Post(3, {}), Post(2, {"a": 10, "b": 10, "c": 20})]
    assert run(Tick(), 1.0) == []
    assert run(Tick(), APART_S) == [StopQuery(3)]


def test_records_handed_over_before_the_unit_was_on_the_board_are_noticed() -> None:
    """By two looks, and not while a batch is under way that may be applying them."""
    run = Script().running("a")
    ends = {"a": 107}
    for finished in (4, 4, 5):
        assert run(Looked(1, finished, ends, idle=False)) == []
    assert run(Looked(1, 6, ends, idle=False)) == []
    assert run.state.units["a"].suspect == 107
    (post,) = run(Looked(1, 6, ends, idle=False))
    assert post == Post(1, {})
    assert run.state.units["a"].phase is Phase.TAKING
    again = Script().running("a")
    again(Looked(1, 4, ends, idle=True))
    again(Looked(1, 4, ends, idle=True))
    again(Reported([(1, Report(topic="a", state="ok", epoch=10, offset=106))]))
    assert again(Looked(1, 4, ends, idle=True)) == []
    assert again.state.units["a"].phase is Phase.RUNNING


def test_a_unit_that_the_new_query_does_not_know_yet_waits_for_one_that_does() -> None:
    run = Script().running("a", "b")
    run(Stop("b", 1))
    run(Fenced("b", 1, 99))
    (query,) = [e for wait in (0.0, LEFTOVER_S + 1) for e in run(Tick(), wait) if isinstance(e, StartQuery)]
    run(Open("b", "s", 2))  # while a query without b is on its way; the old one still reads it
    run(Warmed("b", 2, "id"))
    run(Start("b", 2))
    run(Took("b", 2, 30, 99))
    assert run.state.units["b"].home == 1
    effects = run(QueryUp(query.number, Kind.LIVE, {"a": ("id", b"")}))
    assert effects[:3] == [Post(1, {}), Post(query.number, {"a": 10}), StopQuery(1)]
    (third,) = run(Tick(), APART_S + 1)
    assert isinstance(third, StartQuery)
    assert third.starting == {"a": 100, "b": 100}


def test_a_query_does_not_read_for_nobody_for_ever() -> None:
    run = Script().running("a", "b")
    run(Stop("b", 1))
    run(Fenced("b", 1, 99))
    assert run(Tick(), LEFTOVER_S - 1) == []
    (query,) = run(Tick(), 2)
    assert isinstance(query, StartQuery)
    assert query.starting == {"a": 100}


def test_instructions_for_another_assignment() -> None:
    run = Script().running("a")
    (said,) = run(Open("a", "s", 2))
    assert isinstance(said, Say)
    assert "still here under the assignment 1" in str(said.error)
    assert run(Open("a", "s", 1)) == []
    (said,) = run(Start("a", 2))
    assert isinstance(said, Say)
    assert said.what == "ended"
    assert run(Stop("a", 2)) == [Say("a", "", 2, "ended")]
    assert run.state.units["a"].phase is Phase.RUNNING
