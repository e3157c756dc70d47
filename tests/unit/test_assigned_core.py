"""The core of a pipeline's assigned units: any order of instructions, answers and trouble leaves no unit in
two hands.

`RandomShell` plays hands, workers and Spark at random; after every event the rules are checked, and once the
trouble is over everything that was started must be applied by a query, and everything that was stopped must
have ended.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from consumer.attempt.reports import AttemptOutcome as ReportState
from consumer.attempt.reports import LaneFigures, Report
from consumer.units.decisions import (
    CHECK_S,
    MAX_FAST_PROBES,
    MAX_FAST_RANGES,
    PROBE_INTERVAL_S,
    RANGE_INTERVAL_S,
    STOPPED_RETRY_S,
    PipelineState,
    step_pipeline,
)
from consumer.units.messages import (
    AbortOperation,
    ApplyRange,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PipelineTick,
    PostActiveUnits,
    PrepareTarget,
    PrepareUnit,
    ProbeStopped,
    QueryFailed,
    QueryLost,
    QueryProgress,
    QueryUp,
    RangeApplied,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    SparkUp,
    StartQuery,
    StartUnit,
    StoppedProbed,
    StopQuery,
    TableChecked,
    TakeOver,
    TargetPrepared,
    UnitFenced,
    UnitTakenOver,
)
from consumer.units.progress_checks import MAX_LIVE_BACKLOG, NEAR_POLLS, has_caught_up
from consumer.units.queries import LEFTOVER_S, MIN_START_INTERVAL_S
from consumer.units.unit import ApplyPhase, LocalUnit, QueryKind, UnitRef
from schemas.units import Prepared, WorkerEnded

TOPICS = ("a", "b", "c")


@dataclass
class RandomShell:
    """What the shell knows. `rows`: topic → [epoch, offset] in the target; `ends`: next offsets in Kafka."""

    rng: random.Random
    trouble: bool = True
    now: float = 0.0
    state: PipelineState = field(default_factory=PipelineState)
    asked: list[
        PrepareTarget | TakeOver | ApplyRange | ProbeStopped | CheckTable | FenceUnit | StartQuery
    ] = field(default_factory=list)
    boards: dict[int, dict[str, int]] = field(default_factory=dict)
    queries: dict[int, StartQuery] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=lambda: {t: [0, -1] for t in TOPICS})
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    reported: Counter[tuple[str, int, type[Prepared | WorkerEnded]]] = field(default_factory=Counter)
    expected: dict[str, int] = field(default_factory=dict)
    number: int = 0
    spark: bool = False

    def do(self, event: PipelineEvent) -> None:
        self.now += self.rng.choice([0.0, 0.01, 0.3])
        self.state, effects = step_pipeline(self.state, event, self.now)
        for effect in effects:
            self.take(effect)
            self.check_boards()

    def take(self, effect: PipelineEffect) -> None:
        match effect:
            case PrepareTarget() | TakeOver() | ApplyRange() | FenceUnit() | ProbeStopped():
                writing = {
                    each.unit.topic
                    for each in self.asked
                    if isinstance(each, TakeOver | ApplyRange | FenceUnit)
                }
                assert effect.unit.topic not in writing, "one hand a unit; one that only looks may be late"
                if isinstance(effect, FenceUnit):
                    topics = [topic for board in self.boards.values() for topic in board]
                    assert effect.unit.topic not in topics, "off the boards before the fence"
                self.asked.append(effect)
            case StartQuery():
                assert self.spark, "no query before Spark is up"
                assert effect.starting
                followed = {each.unit.topic for each in self.asked if isinstance(each, ApplyRange)}
                assert not followed & effect.epochs.keys(), (
                    "no hand is at what the query applies from its begin on"
                )
                assert not any(isinstance(e, StartQuery) and e.kind is effect.kind for e in self.asked)
                self.asked.append(effect)
            case PostActiveUnits(number, epochs):
                about = {unit.topic: (unit.topic_id, unit.real) for unit in self.queries[number].units}
                assert epochs.keys() <= about.keys(), "a query applies only what it reads"
                self.boards[number] = dict(epochs)
            case StopQuery(number):
                del self.queries[number]
                self.boards.pop(number, None)
            case ReportEvent(topic, _, assignment, what):
                self.reported[topic, assignment, what] += 1
                if what is WorkerEnded and self.expected.get(topic) == assignment:
                    del self.expected[topic]
            case LogWaiting(topic):
                assert self.state.units[topic].query_number is None, "a unit that waits is on no board"
            case CheckTable():
                self.asked.append(effect)
            case AbortOperation():
                pass

    def on_boards(self) -> set[tuple[str, int]]:
        """(topic, epoch) that a query may be applying, or will from its first batch on."""
        coming = [each.epochs for each in self.asked if isinstance(each, StartQuery)]
        return {entry for board in (*self.boards.values(), *coming) for entry in board.items()}

    def check_boards(self) -> None:
        followed = {(each.unit.topic, each.epoch) for each in self.asked if isinstance(each, ApplyRange)}
        assert not followed & self.on_boards(), "a hand and a query, under one epoch"
        held = Counter(entry for board in self.boards.values() for entry in board.items())
        assert not held or max(held.values()) == 1, f"on two boards: {self.boards}"

    # what may happen

    def random_event(self) -> None:
        rng = self.rng
        for topic in TOPICS:
            self.ends[topic] += rng.choice([0, 0, 1, 50, MAX_LIVE_BACKLOG * 3 if rng.random() < 0.05 else 0])
        choices = [self.instruct, self.answer, self.answer, self.work, self.look]
        if not self.spark and rng.random() < 0.05:
            self.start_spark()
        if self.trouble and rng.random() < 0.1:
            choices = [self.lose_query, self.bad_report]
        rng.choice(choices)()

    def start_spark(self) -> None:
        self.spark = True
        self.do(SparkUp())

    def instruct(self) -> None:
        topic = self.rng.choice(TOPICS)
        assignment = self.expected.get(topic)
        if assignment is None and not any(unit.topic == topic for unit in self.state.units.values()):
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
            case StartQuery(number, kind):
                if bad:
                    return self.do(QueryFailed(kind, "no"))
                self.queries[number] = asked
                if (
                    asked.kind is QueryKind.CATCHING_UP
                ):  # its backlog has been handed over by now, to whom it was for
                    for topic, epoch in asked.epochs.items():
                        if self.rows[topic][0] == epoch:
                            self.rows[topic][1] = max(self.rows[topic][1], self.ends[topic] - 1)
                self.boards[number] = dict(asked.epochs)
                about = {unit.topic: (unit.topic_id, unit.real) for unit in asked.units}
                return self.do(QueryUp(number, kind, about))
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
                if self.rng.random() < 0.8 and self.ends[unit.topic] - row[1] < MAX_LIVE_BACKLOG * 4:
                    row[1] = self.ends[unit.topic] - 1
                behind = row[1] + 1 < self.ends[unit.topic]
                return self.do(UnitTakenOver(unit.topic, unit.assignment, row[0], row[1], behind))
            case ApplyRange(unit, epoch, offset):
                return self.follow(unit, epoch, offset, bad=bad)
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

    def follow(self, unit: UnitRef, epoch: int, offset: int, *, bad: bool) -> None:
        row, end = self.rows[unit.topic], self.ends[unit.topic]
        assert row[0] == epoch, "under the epoch of the takeover"
        if bad:
            again = self.rng.random() < 0.5
            return self.do(
                OperationFailed(
                    unit.topic, unit.assignment, "no", should_retry=again, epoch=epoch, waits=not again
                )
            )
        if row[1] + 1 >= end:
            return self.do(RangeApplied(unit.topic, unit.assignment))
        row[1] = min(row[1] + MAX_LIVE_BACKLOG, end - 1)
        report = Report(topic=unit.topic, state="ok", epoch=epoch, offset=row[1], applied=row[1] - offset)
        return self.do(RangeApplied(unit.topic, unit.assignment, report, end - row[1] - 1))

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
            return self.do(
                AttemptsReported([(number, Report(topic=topic, state="fenced", epoch=epoch, offset=-1))])
            )
        row[1] = max(row[1], self.ends[topic] - 1)
        if self.rng.random() < 0.9 or not self.trouble:
            self.do(AttemptsReported([(number, Report(topic=topic, state="ok", epoch=epoch, offset=row[1]))]))
        return None

    def look(self) -> None:
        for number, query in list(self.queries.items()):
            ends = {topic: self.ends[topic] for topic in query.starting}
            self.do(QueryProgress(number, self.rng.randrange(5), ends, idle=True))

    def lose_query(self) -> None:
        if self.queries:
            self.do(QueryLost(self.rng.choice(list(self.queries)), "died"))

    def bad_report(self) -> None:
        held = [
            (unit.query_number or 0, unit)
            for unit in self.state.units.values()
            if unit.phase is ApplyPhase.APPLYING
        ]
        if held:
            number, unit = self.rng.choice(held)
            state = self.rng.choice(["behind", "fenced", "stopped"])
            report = Report(topic=unit.topic, state=state, epoch=unit.epoch, offset=0, message="why")
            self.do(AttemptsReported([(self.rng.choice([number, number + 1]), report)]))

    def settle(self) -> None:
        """No more trouble: everything answers, time passes."""
        self.trouble = False
        for _ in range(60):
            while self.asked:
                self.answer()
            self.work()
            self.now += 20.0 if any(unit.waits for unit in self.state.units.values()) else 1.0
            self.look()
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
    if not shell.spark:
        assert not shell.queries
        assert all(shell.rows[topic][1] == shell.ends[topic] - 1 for topic in units), "by hands alone"
        shell.start_spark()
        shell.settle()
    on_board = {topic: epoch for board in shell.boards.values() for topic, epoch in board.items()}
    assert on_board == {unit.topic: unit.epoch for unit in units.values()}, "and is applied"
    assert all(shell.rows[topic][0] == epoch for topic, epoch in on_board.items())
    assert all(shell.rows[topic][1] == shell.ends[topic] - 1 for topic in units), "completely"
    assert len(shell.queries) <= 1, "by the live query alone"
    for topic, assignment in list(shell.expected.items()):
        shell.do(RemoveUnit(topic, assignment))
    shell.settle()
    assert not shell.state.units
    assert not shell.queries, "which ends when no unit needs it"
    for topic, assignment, what in shell.reported:
        assert what is Prepared or shell.reported[topic, assignment, WorkerEnded] == 1
        assert shell.reported[topic, assignment, what] == 1
    assert sum(1 for _, _, what in shell.reported if what is WorkerEnded) == shell.number


class Script:
    """Steps by hand: returns what each event comes to."""

    def __init__(self, *, spark: bool = True) -> None:
        self.state, self.now = PipelineState(), 0.0
        if spark:
            self(SparkUp())

    def __call__(self, event: PipelineEvent, wait: float = 0.0) -> list[PipelineEffect]:
        self.now += wait
        self.state, effects = step_pipeline(self.state, event, self.now)
        return effects

    def lock_attempt(self, *topics: str) -> Script:
        """Open and start `topics`, in one live query."""
        for topic in topics:
            self(PrepareUnit(topic, "s", 1))
        for topic in topics:
            self(TargetPrepared(topic, 1, "id"))
        (query,) = [effect for effect in self(PipelineTick(), 0.3) if isinstance(effect, StartQuery)] or [
            None
        ]
        assert query is None or query.kind is QueryKind.LIVE
        self(QueryUp(1, QueryKind.LIVE, dict.fromkeys(topics, ("id", b""))))
        for topic in topics:
            self(StartUnit(topic, 1))
            self(UnitTakenOver(topic, 1, 10, 99))
        return self


def test_many_opens_are_one_query_and_a_later_one_takes_its_place_beside_it() -> None:
    run = Script()
    for topic in "abcdef":
        assert run(PrepareUnit(topic, "s", 1)) == [PrepareTarget(run.state.units[topic].ref)]
    started = [effect for topic in "abcdef" for effect in run(TargetPrepared(topic, 1, "id"))]
    (query,) = (effect for effect in started if isinstance(effect, StartQuery))
    assert query.starting == dict.fromkeys("abcdef", -1)
    assert [effect.event for effect in started if isinstance(effect, ReportEvent)] == [Prepared] * 6, (
        "none waits for it"
    )
    assert run(QueryUp(query.number, QueryKind.LIVE, dict.fromkeys("abcdef", ("id", b"")))) == []
    run(StartUnit("a", 1))
    assert run(UnitTakenOver("a", 1, 10, 99)) == [PostActiveUnits(1, {"a": 10})]
    run(PrepareUnit("g", "s", 1), MIN_START_INTERVAL_S)
    (second,) = run(TargetPrepared("g", 1, "id"))
    assert isinstance(second, StartQuery)
    assert second.starting == {**dict.fromkeys("bcdefg", -1), "a": 100}
    effects = run(QueryUp(2, QueryKind.LIVE, dict.fromkeys("abcdefg", ("id", b""))))
    assert effects[:3] == [PostActiveUnits(1, {}), PostActiveUnits(2, {"a": 10}), StopQuery(1)], (
        "off the one board, onto the other"
    )


def cold(*topics: str) -> Script:
    """Units that are taken over while Spark starts."""
    run = Script(spark=False)
    for topic in topics:
        run(PrepareUnit(topic, "s", 1))
        (reported,) = run(TargetPrepared(topic, 1, "id"))
        assert reported == ReportEvent(topic, "s", 1, Prepared)
        (take,) = run(StartUnit(topic, 1))
        assert isinstance(take, TakeOver)
    return run


def applied(topic: str, upto: int, epoch: int = 10, rows: int = 1) -> Report:
    return Report(topic=topic, state="ok", epoch=epoch, offset=upto, applied=rows, position=(1, 2, 3, upto))


def test_without_spark_hands_go_on_applying_what_comes() -> None:
    run = cold("a")
    follow = ApplyRange(run.state.units["a"].ref, 10, 99)
    assert run(UnitTakenOver("a", 1, 10, 99)) == [follow]
    assert run(RangeApplied("a", 1)) == [], "nothing was there"
    assert run(PipelineTick(), RANGE_INTERVAL_S / 2) == []
    assert run(PipelineTick(), RANGE_INTERVAL_S) == [follow]
    (again,) = run(RangeApplied("a", 1, applied("a", 199, rows=100), left=50))
    assert again == ApplyRange(run.state.units["a"].ref, 10, 199), "there is more: at once"
    unit = run.state.units["a"]
    assert (unit.watched.offset, unit.watched.applied, unit.position) == (199, 100, (1, 2, 3, 199))
    assert run(RangeApplied("a", 1, applied("a", 249, rows=50))) == []
    assert unit.watched.applied == 150


def test_hands_keep_the_pace_of_a_target_of_whole_batches() -> None:
    run = cold("a")
    run.state.commit_interval_s = 10.0
    follow = ApplyRange(run.state.units["a"].ref, 10, 99)
    assert run(UnitTakenOver("a", 1, 10, 99)) == [follow]
    assert run(RangeApplied("a", 1)) == []
    assert run(PipelineTick(), 9.9) == []
    assert run(PipelineTick(), 0.2) == [follow]
    (again,) = run(RangeApplied("a", 1, applied("a", 199, rows=100), left=50))
    assert isinstance(again, ApplyRange), "a backlog is no matter of pace"


def test_with_other_secrets_a_unit_ends_as_soon_as_it_does_not_apply() -> None:
    run = cold("a", "b", "c")
    run(UnitTakenOver("a", 1, 10, 99))
    run(OperationFailed("b", 1, "no entry", should_retry=False, waits=True))
    run(OperationFailed("c", 1, "password refused", should_retry=True))
    run(PrepareUnit("d", "s", 1))
    effects = run(SecretsReplaced(), 1.0)
    assert [effect.topic for effect in effects if isinstance(effect, ReportEvent)] == ["d"]
    assert [effect.unit.topic for effect in effects if isinstance(effect, FenceUnit)] == ["b", "c"]
    for topic in "bc":
        assert run(UnitFenced(topic, 1, 99)) == [ReportEvent(topic, "s", 1, WorkerEnded, 99)]
    assert run(RangeApplied("a", 1)) == []
    assert run.state.units["a"].phase is ApplyPhase.APPLYING, "its connections still work"
    (fence,) = run(OperationFailed("a", 1, "connection lost", should_retry=True), RANGE_INTERVAL_S)
    assert isinstance(fence, FenceUnit)


def test_a_unit_goes_onto_a_board_only_when_its_hand_has_ended() -> None:
    run = cold("a")
    run(UnitTakenOver("a", 1, 10, 99))
    (query,) = run(SparkUp(), 1.0)
    assert isinstance(query, StartQuery)
    assert (query.kind, query.starting, query.epochs) == (QueryKind.LIVE, {"a": 100}, {})
    assert run(QueryUp(1, QueryKind.LIVE, {"a": ("id", b"")})) == [], "a hand is still at it"
    assert run(PipelineTick(), 1.0) == []
    assert run(RangeApplied("a", 1, applied("a", 120), left=MAX_LIVE_BACKLOG - 1)) == [
        PostActiveUnits(1, {"a": 10})
    ]
    assert run(PipelineTick(), 1.0) == [], "and no hand any more"


def test_a_unit_is_behind_or_not_by_what_its_hand_has_left() -> None:
    run = cold("a")
    run(UnitTakenOver("a", 1, 10, 99, has_backlog=True))
    run(SparkUp(), 1.0)
    run(QueryUp(1, QueryKind.LIVE, {"a": ("id", b"")}))
    assert run(RangeApplied("a", 1, applied("a", 120), left=MAX_LIVE_BACKLOG)) == [
        PostActiveUnits(1, {"a": 10})
    ]
    run = cold("a")
    run(UnitTakenOver("a", 1, 10, 99))
    run(SparkUp(), 1.0)
    run(QueryUp(1, QueryKind.LIVE, {"a": ("id", b"")}))
    (query,) = run(RangeApplied("a", 1, applied("a", 120), left=MAX_LIVE_BACKLOG + 1), MIN_START_INTERVAL_S)
    assert isinstance(query, StartQuery)
    assert query.kind is QueryKind.CATCHING_UP


def test_a_backlog_is_applied_by_hands_until_spark_is_up_and_then_by_a_query_that_no_hand_is_beside() -> None:
    run = cold("a")
    (follow,) = run(UnitTakenOver("a", 1, 10, 99, has_backlog=True))
    assert isinstance(follow, ApplyRange)
    (live,) = run(SparkUp(), 1.0)
    assert isinstance(live, StartQuery)
    assert live.kind is QueryKind.LIVE, "the other one is for what no hand is at"
    (query,) = run(
        RangeApplied("a", 1, applied("a", 99 + MAX_LIVE_BACKLOG), left=MAX_LIVE_BACKLOG + 1),
        MIN_START_INTERVAL_S,
    )
    assert isinstance(query, StartQuery)
    assert (query.kind, query.starting, query.epochs) == (
        QueryKind.CATCHING_UP,
        {"a": 100 + MAX_LIVE_BACKLOG},
        {"a": 10},
    )
    assert run(PipelineTick(), 5.0) == [], "it is on that query's board from the first batch on: no hand"
    effects = run(QueryFailed(QueryKind.CATCHING_UP, "no"))
    assert not [effect for effect in effects if isinstance(effect, ApplyRange)]


def test_hands_that_meet_trouble_take_the_unit_over_anew() -> None:
    run = cold("a")
    run(UnitTakenOver("a", 1, 10, 99))
    assert run(OperationFailed("a", 1, "fenced", should_retry=True, epoch=10)) == []
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)
    assert take.above == 10
    (follow,) = run(UnitTakenOver("a", 1, 11, 99))
    assert isinstance(follow, ApplyRange)
    assert follow.epoch == 11
    effects = run(OperationFailed("a", 1, "gap", should_retry=False, epoch=11, waits=True))
    assert effects == [LogWaiting("a", "s", "gap"), ProbeStopped(run.state.units["a"].ref, why="gap")]


def test_a_unit_that_a_hand_follows_is_fenced_when_the_hand_has_ended() -> None:
    run = cold("a")
    run(UnitTakenOver("a", 1, 10, 99))
    assert run(RemoveUnit("a", 1)) == [AbortOperation("a", 1)]
    (fence,) = run(RangeApplied("a", 1, applied("a", 120)))
    assert isinstance(fence, FenceUnit)
    assert fence.above == 10
    assert run.state.units["a"].watched.offset == 120


def test_many_units_are_followed_less_often() -> None:
    many = MAX_FAST_RANGES * 10
    run = cold(*(f"t{number}" for number in range(many)))
    waiting = [effect for topic in run.state.units for effect in run(UnitTakenOver(topic, 1, 10, 99))]
    looks = 0
    for _ in range(100):
        while waiting:
            effect = waiting.pop()
            if isinstance(effect, ApplyRange):
                looks += 1
                waiting += run(RangeApplied(effect.unit.topic, 1))
        waiting = run(PipelineTick(), RANGE_INTERVAL_S)
    assert many * 8 <= looks <= many * 13, "each once in ten times the usual pause"


def test_a_unit_whose_query_has_died_is_followed_until_there_is_another_one() -> None:
    run = Script().lock_attempt("a")
    run(QueryLost(1, "broker gone"))
    run(PipelineTick(), 1.0)
    effects = run(UnitTakenOver("a", 1, 11, 99))
    assert ApplyRange(run.state.units["a"].ref, 11, 99) in effects


def test_a_stop_takes_the_unit_off_its_board_and_then_fences_it() -> None:
    run = Script().lock_attempt("a", "b")
    post, fence = run(RemoveUnit("a", 1))
    assert post == PostActiveUnits(1, {"b": 10})
    assert isinstance(fence, FenceUnit)
    assert (fence.above, fence.stopped) == (10, None)
    assert run(UnitFenced("a", 1, 120)) == [ReportEvent("a", "s", 1, WorkerEnded, 120)]
    assert run(RemoveUnit("a", 1)) == [ReportEvent("a", "", 1, WorkerEnded)], "asked again, it says so again"


def test_a_unit_stopped_while_a_hand_is_at_it_is_fenced_afterwards() -> None:
    run = Script().lock_attempt("a")
    run(AttemptsReported([(1, Report(topic="a", state="behind", epoch=10, offset=99))]))
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)
    assert run(RemoveUnit("a", 1)) == [AbortOperation("a", 1)]
    (fence,) = run(UnitTakenOver("a", 1, 11, 99))
    assert isinstance(fence, FenceUnit)
    assert fence.above == 11


def stopped(run: Script, why: str = "gap") -> list[PipelineEffect]:
    return run(AttemptsReported([(1, Report(topic="a", state="stopped", epoch=10, offset=99, message=why))]))


def tried_once(run: Script, why: str) -> None:
    """It may have been mended before the first look: so the second one leads to a try, and that to the same
    trouble."""
    run(PipelineTick(), PROBE_INTERVAL_S)
    (take,) = (effect for effect in run(StoppedProbed("a", 1, "x", "id")) if isinstance(effect, TakeOver))
    assert take.look, "whatever was written before, the target table is judged first"
    run(OperationFailed("a", 1, why, should_retry=False, epoch=11, waits=True))
    run(StoppedProbed("a", 1, "x", "id"))


def test_a_unit_that_waits_for_a_person_stays_here_and_is_told_once() -> None:
    run = Script().lock_attempt("a", "b")
    examine = ProbeStopped(run.state.units["a"].ref, why="gap")
    assert stopped(run) == [LogWaiting("a", "s", "gap"), PostActiveUnits(1, {"b": 10}), examine]
    assert run(StoppedProbed("a", 1, "x", "id")) == []
    tried_once(run, "gap")
    for _ in range(20):
        effects = [
            effect
            for effect in run(PipelineTick(), PROBE_INTERVAL_S / 2)
            if not isinstance(effect, StartQuery | CheckTable)
        ]
        assert effects in ([], [examine]), "a query without it, and a look at the other unit, aside"
        run(StoppedProbed("a", 1, "x", "id"))
    assert run.state.units["a"].phase is ApplyPhase.WAITING, "nothing has changed, and it is not long"
    assert (run.state.units["a"].watched.state, run.state.units["a"].watched.message) == ("stopped", "gap")


def test_a_unit_that_waits_is_tried_again_when_something_has_changed_or_after_long() -> None:
    run = Script().lock_attempt("a")
    stopped(run)
    run(StoppedProbed("a", 1, "x", "id"))
    tried_once(run, "gap")
    run(PipelineTick(), PROBE_INTERVAL_S)
    (take,) = run(StoppedProbed("a", 1, "y", "id", b"t"))
    assert take == TakeOver(run.state.units["a"].ref, 11, look=True, here=True)
    assert run.state.units["a"].real == b"t", "with the target table as it is now"
    again = run(OperationFailed("a", 1, "gap", should_retry=False, epoch=12, waits=True))
    assert again == [ProbeStopped(run.state.units["a"].ref, why="gap")], "told already"
    run(StoppedProbed("a", 1, "y", "id"))
    run(PipelineTick(), STOPPED_RETRY_S)
    (take,) = run(StoppedProbed("a", 1, "y", "id"))
    assert isinstance(take, TakeOver)
    run(UnitTakenOver("a", 1, 13, 99))
    assert run.state.units["a"].phase is ApplyPhase.APPLYING
    assert run.state.units["a"].watched.state == "ok"
    assert run.state.units["a"].error is None


@pytest.mark.parametrize("seen_before", [True, False])
def test_a_unit_that_could_not_be_looked_at_is_tried_when_it_can(seen_before: bool) -> None:
    """For example all rights were revoked: when they are granted again, the look is the first one, or it
    shows nothing different from before."""
    run = Script().lock_attempt("a")
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
    assert run.state.units["a"].phase is ApplyPhase.WAITING, "it is not hammered"


def test_running_units_are_looked_at_in_turn_and_stop_where_they_do_not_fit_any_more() -> None:
    run = Script().lock_attempt("a", "b")
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
    assert run.state.units["a"].phase is ApplyPhase.APPLYING, "another epoch of it"
    effects = run(TableChecked("a", 1, 10, "has triggers: drop them"))
    assert effects[:2] == [LogWaiting("a", "s", "has triggers: drop them"), PostActiveUnits(1, {"b": 10})]
    assert run.state.units["a"].phase is ApplyPhase.WAITING


def test_many_units_that_wait_are_looked_at_less_often() -> None:
    """Say a right is missing in the target: hundreds wait, and the target has other things to do."""
    run = Script()
    many = MAX_FAST_PROBES * 10
    for number in range(many):
        run(PrepareUnit(f"t{number}", "s", 1))
        run(TargetPrepared(f"t{number}", 1, "id"))
    run(PipelineTick(), 1.0)
    run(QueryUp(1, QueryKind.LIVE, dict.fromkeys(run.state.units, ("id", b""))))
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


def test_a_unit_that_waits_is_read_by_no_query() -> None:
    run = Script().lock_attempt("a", "b")
    stopped(run)
    run(QueryLost(1, "its topic is gone"))
    run(UnitTakenOver("b", 1, 11, 99))
    effects = [*run(PipelineTick(), 0.3), *run(UnitTakenOver("b", 1, 11, 99), 0.6), *run(PipelineTick(), 3.0)]
    (query,) = [effect for effect in effects if isinstance(effect, StartQuery)]
    assert set(query.starting) == {"b"}


def test_a_unit_that_waits_ends_when_it_is_told_to_and_stays_marked() -> None:
    run = Script().lock_attempt("a")
    stopped(run)  # and a hand looks: it has to wait for its turn, the end of the unit has not
    (fence,) = run(RemoveUnit("a", 1))
    assert isinstance(fence, FenceUnit)
    assert fence.stopped == "gap"
    assert run(StoppedProbed("a", 1, "x", "id")) == []
    assert run(UnitFenced("a", 1, 99)) == [ReportEvent("a", "s", 1, WorkerEnded, 99)], (
        "no error of whoever moves it"
    )


def test_figures_add_up_over_hands_and_workers() -> None:
    """Also over a take-over in between."""
    run = Script().lock_attempt("a", "b")
    run(AttemptsReported([(1, Report(topic="a", state="ok", epoch=10, offset=100, applied=3, displaced=2))]))
    lanes = LaneFigures(upserted=4, open_quarantine=2)
    fenced = Report(topic="a", state="fenced", epoch=10, offset=100, held=5, displaced=1, lanes=lanes)
    run(AttemptsReported([(1, fenced)]))
    run(UnitTakenOver("a", 1, 11, 110, applied=6, held=1, displaced=4, lanes=LaneFigures(3, lock_waits=1)))
    watched = run.state.units["a"].watched
    assert (watched.applied, watched.held, watched.displaced) == (9, 6, 7)
    assert watched.lanes == LaneFigures(7, lock_waits=1, open_quarantine=2)
    assert run.state.units["b"].watched.displaced == 0


def untried(epoch: int, in_s: float = 1.0) -> AttemptsReported:
    return AttemptsReported([(1, Report(topic="a", state="ok", epoch=epoch, offset=100, trial_in_s=in_s))])


def test_a_unit_with_untried_keys_is_taken_over_when_no_record_follows() -> None:
    run = Script().lock_attempt("a", "b")
    assert run(untried(10)) == []
    assert run(PipelineTick(), 0.9) == []
    leaves, take = run(PipelineTick(), 0.2)
    assert leaves == PostActiveUnits(1, {"b": 10}), "no query applies it meanwhile"
    assert isinstance(take, TakeOver)
    assert (take.unit.topic, take.above) == ("a", 10)
    assert run(UnitTakenOver("a", 1, 11, 100, trial_in_s=1.0)) == [PostActiveUnits(1, {"a": 11, "b": 10})]
    assert len(run(PipelineTick(), 1.1)) == 2, "once more, as long as a key stays untried"
    run(UnitTakenOver("a", 1, 12, 100))
    assert run(PipelineTick(), 5.0) == []


def test_records_that_follow_bring_untried_keys_their_trial() -> None:
    run = Script().lock_attempt("a", "b")
    for _ in range(5):
        assert run(untried(10)) == []
        assert run(PipelineTick(), 0.9) == []
    assert run(untried(10, 0.0)) == []
    assert run(PipelineTick(), 5.0) == []


def test_no_query_applies_a_unit_while_a_key_sweep_is_under_way() -> None:
    """Only operations compare its ranges: they need no record, and know what they have noted."""
    run = Script().lock_attempt("a", "b")
    swept = Report(topic="a", state="ok", epoch=10, offset=100, sweeping=True, trial_in_s=0.1)
    leaves, take = run(AttemptsReported([(1, swept)]))
    assert leaves == PostActiveUnits(1, {"b": 10})
    assert isinstance(take, TakeOver)
    (apply,) = run(UnitTakenOver("a", 1, 11, 100, sweeping=True, trial_in_s=0.1))
    assert isinstance(apply, ApplyRange)
    assert not apply.trial, "its ranges wait a moment for records"
    left = Report(topic="a", state="ok", epoch=11, offset=100, sweeping=True, trial_in_s=0.02)
    assert run(RangeApplied("a", 1, left)) == []
    (apply,) = run(PipelineTick(), 0.05)
    assert apply == ApplyRange(run.state.units["a"].ref, 11, 100, trial=True)
    done = Report(topic="a", state="ok", epoch=11, offset=100)
    assert run(RangeApplied("a", 1, done)) == [PostActiveUnits(1, {"a": 11, "b": 10})]


def test_a_unit_with_a_backlog_and_a_key_sweep_catches_up_first() -> None:
    run = Script().lock_attempt("a")
    run(UnitTakenOver("a", 1, 11, 100, sweeping=True, has_backlog=True))
    effects = run(PipelineTick(), 5.0)
    assert not any(isinstance(effect, ApplyRange | TakeOver) for effect in effects)


def test_takeovers_for_untried_keys_keep_no_table_from_its_check() -> None:
    run, epoch, checked = Script().lock_attempt("a"), 10, 0
    run(untried(epoch, 10.0))
    for _ in range(round(2 * CHECK_S)):
        for effect in run(PipelineTick(), 1.0):
            checked += isinstance(effect, CheckTable)
            if isinstance(effect, TakeOver):
                epoch += 1
                run(UnitTakenOver("a", 1, epoch, 100, trial_in_s=10.0))
    assert (checked, epoch) > (0, 20)


@pytest.mark.parametrize("state", ["behind", "fenced"])
def test_a_unit_in_trouble_is_taken_over_anew_and_the_others_go_on(state: ReportState) -> None:
    run = Script().lock_attempt("a", "b")
    assert run(AttemptsReported([(1, Report(topic="a", state=state, epoch=10, offset=100))])) == [
        PostActiveUnits(1, {"b": 10})
    ]
    assert [(unit.phase, unit.stop_requested) for unit in run.state.units.values()] == [
        (ApplyPhase.TAKING_OVER, False),
        (ApplyPhase.APPLYING, False),
    ]
    (take,) = run(PipelineTick(), 1.0)
    assert isinstance(take, TakeOver)
    assert (take.unit.topic, take.above) == ("a", 10)
    assert run(UnitTakenOver("a", 1, 11, 100)) == [PostActiveUnits(1, {"a": 11, "b": 10})]


def waits_for_lock(run: Script, message: str = "seen", epoch: int = 10) -> str:
    """Report what unit a waits for; return what the core knows then."""
    run(AttemptsReported([(-1, Report("a", "waiting", epoch, -1, message=message))]))
    return run.state.units["a"].lock_wait


def test_a_wait_for_a_row_lock_is_known_until_it_ends() -> None:
    run = Script().lock_attempt("a", "b")
    assert waits_for_lock(run) == "seen"
    assert run.state.units["b"].lock_wait == ""
    assert (run.state.units["a"].watched.state, run.state.units["a"].phase) == ("ok", ApplyPhase.APPLYING)
    assert waits_for_lock(run, "") == ""
    assert waits_for_lock(run, epoch=9) == "", "an earlier attempt"
    run(AttemptsReported([(-1, Report("x", "waiting", 10, -1, message="seen"))]))


def test_a_wait_for_a_row_lock_is_kept_while_it_is_retried() -> None:
    run = Script().lock_attempt("a")
    waits_for_lock(run)
    run(AttemptsReported([(1, Report("a", "behind", 10, 100, message="time-out"))]))
    assert run.state.units["a"].lock_wait == "seen"
    run(PipelineTick(), 1.0)
    assert waits_for_lock(run, "by another", epoch=11) == "by another", "the takeover applies a backlog"
    run(UnitTakenOver("a", 1, 11, 100))
    assert run.state.units["a"].lock_wait == ""


@pytest.mark.parametrize("state", ["ok", "stopped"])
def test_the_end_of_an_attempt_ends_its_wait_for_a_row_lock(state: ReportState) -> None:
    run = Script().lock_attempt("a")
    waits_for_lock(run)
    run(AttemptsReported([(1, Report("a", state, 10, 100, message="why"))]))
    assert run.state.units["a"].lock_wait == ""


def test_trouble_of_a_query_that_the_unit_has_left_is_no_trouble() -> None:
    run = Script().lock_attempt("a")
    run(AttemptsReported([(7, Report(topic="a", state="fenced", epoch=10, offset=150))]))
    assert run.state.units["a"].phase is ApplyPhase.APPLYING
    run(AttemptsReported([(1, Report(topic="a", state="fenced", epoch=9, offset=150))]))
    assert run.state.units["a"].phase is ApplyPhase.APPLYING
    run(AttemptsReported([(1, Report(topic="a", state="fenced", epoch=10, offset=150))]))
    assert run.state.units["a"].phase is ApplyPhase.TAKING_OVER


def test_a_backlog_goes_to_a_query_of_its_own_and_comes_back() -> None:
    run = Script().lock_attempt("a", "b")
    run(PrepareUnit("c", "s", 1))
    run(TargetPrepared("c", 1, "id"))
    run(PipelineTick(), 5)
    run(QueryUp(2, QueryKind.LIVE, dict.fromkeys("abc", ("id", b""))))
    run(StartUnit("c", 1))
    (query,) = run(UnitTakenOver("c", 1, 20, 99, has_backlog=True), MIN_START_INTERVAL_S)
    assert isinstance(query, StartQuery)
    assert (query.kind, query.starting, query.epochs) == (QueryKind.CATCHING_UP, {"c": 100}, {"c": 20})
    assert run(QueryUp(3, QueryKind.CATCHING_UP, {"c": ("id", b"")})) == []
    ends = {"a": 0, "b": 0, "c": 100 + MAX_LIVE_BACKLOG * 9}
    assert run(QueryProgress(2, 1, ends, idle=True)) == []
    run(AttemptsReported([(3, Report(topic="c", state="ok", epoch=20, offset=MAX_LIVE_BACKLOG * 9))]))
    for _ in range(NEAR_POLLS):  # near: perhaps it gets there
        assert run(QueryProgress(2, 2, ends, idle=True)) == []
    assert run(QueryProgress(2, 2, ends, idle=True)) == [
        PostActiveUnits(3, {}),
        PostActiveUnits(2, {"a": 10, "b": 10, "c": 20}),
    ]
    assert run(PipelineTick(), 1.0) == []
    assert run(PipelineTick(), MIN_START_INTERVAL_S) == [StopQuery(3)]


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_unit_at_its_topic_s_end_leaves_its_own_query_at_once(lacks: int) -> None:
    unit = LocalUnit("c", "s", 1)
    unit.watched = structs.replace(unit.watched, offset=99)
    caught_up = has_caught_up(unit, QueryProgress(2, 1, {"c": 100 + lacks}, idle=True))
    assert caught_up is (lacks == 0)


def test_a_query_that_reads_exactly_its_units_stays() -> None:
    run = Script().lock_attempt("a", "b")
    effects = [each for _ in range(3) for each in run(PipelineTick(), LEFTOVER_S + 1)]
    assert [each for each in effects if isinstance(each, StartQuery)] == []


def test_a_stopped_unit_is_not_probed_twice_at_once() -> None:
    run = Script().lock_attempt("a")
    examine = ProbeStopped(run.state.units["a"].ref, why="gap")
    assert examine in stopped(run)
    assert examine not in [each for _ in range(3) for each in run(PipelineTick(), PROBE_INTERVAL_S)]


def test_records_handed_over_before_the_unit_was_on_the_board_are_noticed() -> None:
    """By two looks, and not while a batch is under way that may be applying them."""
    run = Script().lock_attempt("a")
    ends = {"a": 107}
    for finished in (4, 4, 5):
        assert run(QueryProgress(1, finished, ends, idle=False)) == []
    assert run(QueryProgress(1, 6, ends, idle=False)) == []
    assert run.state.units["a"].expected_offset == 107
    (post,) = run(QueryProgress(1, 6, ends, idle=False))
    assert post == PostActiveUnits(1, {})
    assert run.state.units["a"].phase is ApplyPhase.TAKING_OVER
    effects = [
        *run(PipelineTick(), MIN_START_INTERVAL_S),
        *run(UnitTakenOver("a", 1, 11, 99, has_backlog=True), MIN_START_INTERVAL_S),
    ]
    assert [each.kind for each in effects if isinstance(each, StartQuery)] == [QueryKind.CATCHING_UP]
    assert run.state.units["a"].expected_offset is None, "that was of the query before"
    again = Script().lock_attempt("a")
    again(QueryProgress(1, 4, ends, idle=True))
    again(QueryProgress(1, 4, ends, idle=True))
    again(AttemptsReported([(1, Report(topic="a", state="ok", epoch=10, offset=106))]))
    assert again(QueryProgress(1, 4, ends, idle=True)) == []
    assert again.state.units["a"].phase is ApplyPhase.APPLYING


def test_a_unit_that_the_new_query_does_not_know_yet_waits_for_one_that_does() -> None:
    run = Script().lock_attempt("a", "b")
    run(RemoveUnit("b", 1))
    run(UnitFenced("b", 1, 99))
    (query,) = [
        e for wait in (0.0, LEFTOVER_S + 1) for e in run(PipelineTick(), wait) if isinstance(e, StartQuery)
    ]
    run(PrepareUnit("b", "s", 2))  # while a query without b is on its way; the old one still reads it
    run(TargetPrepared("b", 2, "id"))
    run(StartUnit("b", 2))
    run(UnitTakenOver("b", 2, 30, 99))
    assert run.state.units["b"].query_number == 1
    effects = run(QueryUp(query.number, QueryKind.LIVE, {"a": ("id", b"")}))
    assert effects[:3] == [PostActiveUnits(1, {}), PostActiveUnits(query.number, {"a": 10}), StopQuery(1)]
    (third,) = run(PipelineTick(), MIN_START_INTERVAL_S + 1)
    assert isinstance(third, StartQuery)
    assert third.starting == {"a": 100, "b": 100}


def test_a_query_does_not_read_for_nobody_for_ever() -> None:
    run = Script().lock_attempt("a", "b")
    run(RemoveUnit("b", 1))
    run(UnitFenced("b", 1, 99))
    assert run(PipelineTick(), LEFTOVER_S - 1) == []
    (query,) = run(PipelineTick(), 2)
    assert isinstance(query, StartQuery)
    assert query.starting == {"a": 100}


def test_instructions_for_another_assignment() -> None:
    run = Script().lock_attempt("a")
    (reported,) = run(PrepareUnit("a", "s", 2))
    assert isinstance(reported, ReportEvent)
    assert "still here under the assignment 1" in str(reported.error)
    assert run(PrepareUnit("a", "s", 1)) == []
    (reported,) = run(StartUnit("a", 2))
    assert isinstance(reported, ReportEvent)
    assert reported.event is WorkerEnded
    assert run(RemoveUnit("a", 2)) == [ReportEvent("a", "", 2, WorkerEnded)]
    assert run.state.units["a"].phase is ApplyPhase.APPLYING
