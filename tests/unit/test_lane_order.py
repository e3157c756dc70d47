"""What holds events of different lanes in their order, step by step, and with it what a unit's lanes together
have reached."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from consumer.attempt.drivers.batches import SingleThreadSignals
from consumer.attempt.effects import Await, DropSession, Effect, Machine, ReadProgress, Sleep, Transact
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.transactions import FIRST_RETRY_DELAY_S, RESOLVE_TRIES, AttemptProgress
from consumer.errors import AttemptLostError, CommitUnknownError, TransientError
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.fold import make_index_fold
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, RowChange
from consumer.ordering.progress import find_lost_offsets
from consumer.ordering.tickets import TicketTable
from consumer.process.takeover import TakeoverResult, take_unit
from rowlock.coordinator.units import ApplyUnitName
from rowlock.inspect.observed.unit_goals import list_lagging_units
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import ZERO
from tests.kits.history import target_table
from tests.stands.fake_target import FakeSession, FakeTarget

TABLE = target_table()
END = (99, (0, 1, 99, 0), 1, 0)


def row(key: int, a: str | None = None) -> Row:
    return (key, a, None, 0)


def lanes_at(*offsets: int, topic_id: str = "id") -> list[LaneProgress]:
    text = Layout(lanes=len(offsets)).encode()
    return [LaneProgress(n, 1, 1, topic_id, offset, ZERO, 0, text) for n, offset in enumerate(offsets)]


class Steps:
    """Two lanes whose machines the test advances one effect at a time. A commit is in the target after a
    Pause."""

    def __init__(self) -> None:
        self.locks = TicketTable(2)
        self.dispatcher = Dispatcher(Layout(lanes=2), self.locks, lanes_at(-1, -1))
        self.plan = self.dispatcher.plan_table(TABLE)
        self.committed: list[tuple[int, int]] = []
        self.fault: Exception | None = None
        self.group = LaneGroup(
            self.dispatcher,
            self.locks,
            self._commit,
            limits=LaneLimits(pause=0.5),
            signals=SingleThreadSignals(),
        )
        self._machines = [self.group.run_lane(number) for number in range(2)]
        self.at: list[Effect[Any]] = [next(machine) for machine in self._machines]

    def _commit(self, _lane: int, batch: LaneBatch) -> Machine[None]:
        yield Sleep(0.0)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        self.committed.append(batch.events[1])

    def lane_of(self, key: int) -> int:
        return self.plan.lane_of(self.plan.fold_key(row(key)))

    def key_in(self, lane: int, start: int = 1) -> int:
        return next(key for key in range(start, start + 99) if self.lane_of(key) == lane)

    def give(self, *changes: tuple[Row | None, Row | None]) -> None:
        events = [RowChange((offset, 0), *change) for offset, change in enumerate(changes)]
        next(self.group.submit_changes(self.plan, events), None)
        next(self.group.drain(END))  # from now on each lane commits what it has

    def waits(self, lane: int) -> bool:
        effect = self.at[lane]
        return isinstance(effect, Await) and not effect.ready()

    def step(self, lane: int) -> None:
        """Advance a lane that has nothing to wait for."""
        assert not self.waits(lane)
        self.at[lane] = next(self._machines[lane])


def handed_over() -> Steps:
    """Lane 0 takes "lucy" from its row and lane 1 gives it to another: lane 1 stands before that."""
    steps = Steps()
    first, second = steps.key_in(0), steps.key_in(1)
    steps.give((row(first, "lucy"), row(first, "anna")), (None, row(second, "lucy")))
    steps.step(1)
    assert steps.waits(1)
    return steps


def test_a_value_is_free_after_the_commit_of_whoever_held_it_and_not_before() -> None:
    steps = handed_over()
    steps.step(0)
    assert isinstance(steps.at[0], Sleep), "its transaction is under way"
    assert steps.waits(1)
    steps.step(0)
    assert steps.committed == [(0, 0)]
    assert not steps.waits(1)
    while len(steps.committed) < 2:
        steps.step(1)
    assert steps.committed == [(0, 0), (1, 0)]


def test_a_commit_that_failed_frees_nothing() -> None:
    steps = handed_over()
    steps.fault = TransientError("deadlock")
    steps.step(0)
    steps.step(0)
    assert steps.at[0] == Sleep(0.5), "it is tried again"
    assert steps.waits(1)
    steps.step(0)
    assert steps.waits(1)
    steps.step(0)
    assert (steps.committed, steps.waits(1)) == ([(0, 0)], False)


def test_a_release_frees_what_its_lane_has_passed_and_nothing_of_another() -> None:
    steps = Steps()
    first, other, second = steps.key_in(0), steps.key_in(0, 50), steps.key_in(1)
    steps.give((row(first, "lucy"), None), (None, row(second, "anna")), (None, row(other, "bob")))
    held = steps.locks.get_holders(steps.plan.name, "a")
    steps.locks.release(0, (0, 0))
    assert [steps.locks.is_released(held[value]) for value in (b"lucy", b"anna", b"bob")] == [
        True,
        False,
        False,
    ]
    assert steps.locks.register(held, b"lucy", ((3, 0), 1)) is None
    assert steps.locks.register(held, b"bob", ((4, 0), 1)) == ((2, 0), 0)
    steps.locks.release(0, (2, 0))
    steps.locks.release(1, (4, 0))
    assert [steps.locks.is_released(held[value]) for value in (b"lucy", b"anna", b"bob")] == [
        True,
        True,
        True,
    ]


def test_nothing_is_handed_to_lanes_that_are_stopping() -> None:
    """They forget what is queued: it would count as applied."""
    steps = Steps()
    steps.group.stop()
    with pytest.raises(RuntimeError, match="closed"):
        next(steps.group.submit_changes(steps.plan, [RowChange((0, 0), None, row(1))]), None)
    with pytest.raises(RuntimeError, match="closed"):
        next(steps.group.drain(END))


@pytest.mark.parametrize("values", [(None, None), ("x", "y"), ("x", "x")])
def test_the_insert_half_of_a_key_move_stands_behind_its_delete_half(
    values: tuple[str | None, str | None],
) -> None:
    """Also where the row has no unique value that could hold it back."""
    steps = Steps()
    old, new = steps.key_in(0), steps.key_in(1)
    steps.give((row(old, values[0]), row(new, values[1])))
    assert not steps.waits(0)
    steps.step(1)
    assert steps.waits(1)
    while not steps.committed:
        steps.step(0)
    while len(steps.committed) < 2:
        steps.step(1)
    assert steps.committed == [(0, 0), (0, 1)]


def test_a_key_move_whose_delete_half_is_applied_already_waits_for_nothing() -> None:
    """After a crash between the halves nobody would ever release what is not dispatched."""
    steps = Steps()
    old, new = steps.key_in(0), steps.key_in(1)
    dispatcher = Dispatcher(Layout(lanes=2), steps.locks, lanes_at(0, -1))
    dispatcher.dispatch(dispatcher.plan_table(TABLE), [RowChange((0, 0), row(old), row(new))])
    first, second = dispatcher.take_queued()
    assert first == []
    assert [(item[0].id, item[0].before, item[0].after, item[3]) for item in second] == [
        ((0, 1), None, row(new), ())
    ]


def test_only_the_new_row_of_a_key_move_is_what_cannot_be_applied() -> None:
    steps = Steps()
    change = RowChange((0, 0), row(steps.key_in(0)), row(steps.key_in(1)), refused="why")
    steps.dispatcher.dispatch(steps.plan, [change])
    halves = [item[0] for items in steps.dispatcher.take_queued() for item in items]
    assert [(half.id, half.refused) for half in halves] == [((0, 0), None), ((0, 1), "why")]


# --- prefixes under a collation that does not compare exactly


def prefixed(collation: str, prefix: int | None) -> Callable[[Row], bytes | None]:
    text = ColumnType(kind=Kind.VARCHAR, length=20, collation=collation)
    column = Column(name="k", type=text)
    index = UniqueIndex(name="u", parts=(IndexPart(column="k", prefix=prefix),))
    return make_index_fold(Table(db="d", name="t", columns=(column,), key=index), index)


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_0900_ai_ci", "utf8mb4_unicode_ci"])
@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("abcd", "ABCe", True),  # equal up to the prefix
        ("abcd", "abce", True),
        ("abcd", "abde", False),
        ("abc", "ABCDEF", True),
        ("ab", "abc", False),
        ("ab ", "AB", True),
        ("ÀÉÎo", "aeiu", True),
        ("a漢cd", "A漢CE", True),  # characters are counted, not bytes
        ("aaßx", "AASy", True),
        ("e\u0301ax", "E\u0301Ay", True),  # the mark is one of the three
    ],
)
def test_a_prefix_is_cut_before_the_text_is_folded(
    collation: str, left: str, right: str, equal: bool
) -> None:
    fold = prefixed(collation, 3)
    assert (fold((left,)) == fold((right,))) == equal
    whole = prefixed(collation, None)
    assert (whole((left,)) == whole((right,))) == (left.rstrip().casefold() == right.rstrip().casefold())


# --- how far: the slowest lane


@pytest.mark.parametrize(
    ("end", "offsets", "late"),
    [
        (5, (4,), False),
        (5, (3,), True),
        (5, (4, 4, 4), False),
        (5, (4, 3, 4), True),
        (5, (9, 9, 3), True),
        (5, (3, 9, 9), True),
        (5, (9, 4, 9), False),
        (1, (-1, 0), True),
        (1, (0, 0), False),
        (5, (), True),
    ],
)
def test_a_unit_has_caught_up_when_its_slowest_lane_has(
    end: int, offsets: tuple[int, ...], late: bool
) -> None:
    unit = ApplyUnitName("p", "b1", "rowlock.b1.bank.a", "hq")
    other = ApplyUnitName("p", "b1", "rowlock.b1.bank.b", "hq")
    done = {unit: lanes_at(*offsets) if offsets else [], other: lanes_at(9, 9)}
    assert list_lagging_units({unit: end, other: 5}, done) == ([unit] if late else [])


def test_everybody_who_asks_how_far_a_unit_is_hears_of_its_slowest_lane() -> None:
    rows = lanes_at(7, 4, 9)
    assert AttemptProgress(rows).lowest == rows[1]
    assert TakeoverResult(epoch=1, rows=rows, definition=None, was=None).lowest == rows[1]


# --- whether a unit can start


@pytest.mark.parametrize(
    ("offsets", "topic_id", "end", "why"),
    [
        ((-1, -1), "id", 0, None),  # an empty topic
        ((-1, -1), "id", 9, None),
        ((4, 4), "id", 5, None),  # at its end
        ((4, 4), "id", 4, "has lost its last records"),
        ((2, 7), "id", 8, None),
        ((2, 7), "id", 7, "has lost its last records"),  # the fastest lane has one more
        ((7, 2), "id", 7, "has lost its last records"),
        ((4, 4), "other", 9, "created again"),
        ((4, 4), "other", 3, "created again"),  # that first: the offsets mean nothing
        ((-1, -1), "other", 9, "created again"),
    ],
)
def test_a_start_is_refused(offsets: tuple[int, ...], topic_id: str, end: int, why: str | None) -> None:
    refusal = find_lost_offsets(lanes_at(*offsets), topic_id, end)
    assert refusal is None if why is None else why in str(refusal)


def test_rows_from_before_topics_had_an_id_start_with_any() -> None:
    assert find_lost_offsets(lanes_at(4, topic_id=""), "id", 9) is None
    assert "has lost its last records" in str(find_lost_offsets(lanes_at(4, topic_id=""), "id", 4))


@pytest.mark.parametrize(("bounds", "refused"), [((0, 9), False), ((6, 9), False), ((0, 7), True)])
def test_a_takeover_of_a_topic_with_other_offsets_raises_the_token_alone(
    bounds: tuple[int, int], refused: bool
) -> None:
    target = FakeTarget()
    target.state.lanes = {lane.lane: lane for lane in lanes_at(4, 7)}
    pipeline: Any = SimpleNamespace(
        name="p", layout=Layout(lanes=2).encode(), config=SimpleNamespace(lanes=2)
    )
    taken = take_unit(FakeSession(target), pipeline, "t", "id", bounds, assigned=1)  # type: ignore[arg-type]
    assert (taken.lost is not None) == refused
    assert taken.gap == (bounds[0] == 6), (
        "what retention has deleted is met where it is read: a copy heals that"
    )
    assert taken.lowest.offset == 4
    epoch = 1 << 16  # the first of the assignment
    assert target.state.lanes == {
        n: structs.replace(lane, epoch=epoch) for n, lane in enumerate(lanes_at(4, 7))
    }


def test_the_outcome_of_a_commit_is_asked_for_a_few_times_with_longer_and_longer_pauses() -> None:
    machine = AttemptProgress(lanes_at(4)).commit_guarded([])
    assert isinstance(next(machine), Transact)
    asked = machine.throw(CommitUnknownError("lost"))
    for tries in range(RESOLVE_TRIES):
        assert isinstance(asked if tries == 0 else next(machine), DropSession)
        assert isinstance(next(machine), ReadProgress)
        assert machine.throw(TransientError("down")) == Sleep(FIRST_RETRY_DELAY_S * 2**tries)
    with pytest.raises(AttemptLostError):
        next(machine)
