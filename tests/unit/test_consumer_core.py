"""The pure parts one by one: duplicates, layout, locks, net change, progress decisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from consumer.attempt.transactions import AttemptProgress
from consumer.errors import FencedError, UnitStoppedError
from consumer.ordering.dedup import Deduplicator, DuplicateVerdict
from consumer.ordering.layout import Layout, compute_keys_fingerprint
from consumer.ordering.model import ChangeId, LaneProgress, RowChange
from consumer.ordering.netchange import NetChangeReducer, sort_keys
from consumer.ordering.progress import advance_row, find_lost_offsets, plan_resume, relay_rows, was_committed
from consumer.ordering.tickets import SWEEP_THRESHOLD, Ticket, TicketTable
from schemas.table.model import Row
from schemas.wire.position import ZERO, Position
from tests.kits.history import target_table

TABLE = target_table()


def lane(number: int, offset: int, layout: Layout, position: Position = ZERO, gen: int = 1) -> LaneProgress:
    return LaneProgress(number, 1, 1, "topic-id", offset, position, gen, layout.encode())


def at(pos: int) -> Position:
    return (0, 1, pos, 0)


# --- duplicates


def test_marks_come_from_the_lowest_lane() -> None:
    layout = Layout(lanes=2)
    marks = Deduplicator([lane(0, 6, layout, at(60), gen=9), lane(1, 0, layout, at(0), gen=2)])
    assert (marks.offset, marks.position, marks.gen) == (0, at(0), 2)
    assert marks.judge_record(0, at(0), None, 2) == DuplicateVerdict.COVERED
    assert marks.judge_record(1, at(10), at(0), 2) == DuplicateVerdict.ACCEPT


def test_duplicates_and_zombies_are_dropped_and_a_gap_stops_the_unit() -> None:
    marks = Deduplicator([lane(0, -1, Layout(lanes=1), gen=0)])
    assert marks.judge_record(0, at(1), None, 1) == DuplicateVerdict.ACCEPT
    assert marks.judge_record(1, at(1), None, 2) == DuplicateVerdict.DUPLICATE  # and yet its gen was seen
    assert marks.judge_record(2, at(2), at(1), 1) == DuplicateVerdict.ZOMBIE
    assert (
        marks.judge_record(3, None, None, 2) == DuplicateVerdict.ACCEPT
    )  # a record without a position: by offset only
    with pytest.raises(UnitStoppedError, match="gap"):
        marks.judge_record(4, at(4), at(3), 2)
    assert marks.position == at(1)


@pytest.mark.parametrize(
    ("position", "prev", "verdict"),
    [
        ((0, 3, 50, 2), (0, 3, 50, 1), DuplicateVerdict.ACCEPT),
        ((0, 3, 50, 3), (0, 3, 50, 2), None),  # a row of the same transaction was lost
        ((0, 3, 60, 0), (0, 3, 50, 2), None),  # the last one of it
        ((0, 3, 60, 1), (0, 3, 60, 0), None),  # the first one of the next
        ((0, 3, 60, 0), (0, 3, 55, 9), None),  # a transaction in between
        ((0, 4, 4, 0), (0, 3, 90, 0), None),  # in the file before
        ((1, 1, 4, 0), (0, 3, 50, 2), None),  # at the end of the era before
        ((1, 1, 20, 0), (1, 1, 4, 0), None),  # at the beginning of the next
        ((0, 3, 60, 0), (0, 3, 50, 1), DuplicateVerdict.ACCEPT),
        ((0, 3, 60, 0), (0, 3, 50, 0), DuplicateVerdict.ACCEPT),  # written again from an earlier place on
        ((0, 3, 60, 0), None, DuplicateVerdict.ACCEPT),  # the first of a topic
        ((0, 3, 50, 1), (0, 3, 50, 0), DuplicateVerdict.DUPLICATE),
        ((0, 3, 50, -5), (0, 3, 50, -6), DuplicateVerdict.DUPLICATE),  # a row of a snapshot that stood there
    ],
)
def test_one_row_that_is_lost_is_a_gap_also_inside_a_transaction(
    position: Position, prev: Position | None, verdict: DuplicateVerdict | None
) -> None:
    """The reader stands at row 1 of the transaction at 50."""
    marks = Deduplicator([lane(0, -1, Layout(lanes=1), gen=0)])
    assert marks.judge_record(0, (0, 3, 50, 1), None, 1) == DuplicateVerdict.ACCEPT
    if verdict is None:
        with pytest.raises(UnitStoppedError, match="gap"):
            marks.judge_record(1, position, prev, 1)
        assert marks.position == (0, 3, 50, 1)
    else:
        assert marks.judge_record(1, position, prev, 1) == verdict


# --- layout


def test_the_lane_hash_is_pinned() -> None:
    layout = Layout(lanes=1 << 32)
    vectors = {("public.acct", b"1"): 3845594705, ("public.acct", b"2"): 1202537275, ("x.y", b""): 503437600}
    assert {(table, key): layout.make_lane_hash(table)(key) for table, key in vectors} == vectors
    assert Layout(lanes=1).make_lane_hash("public.acct")(b"1") == 0


def test_a_layout_survives_its_json_and_a_foreign_one_is_refused() -> None:
    layout = Layout(lanes=3, routes="r", keys=compute_keys_fingerprint([TABLE]))
    assert Layout.decode(layout.encode()) == layout
    assert not Layout(lanes=3, fold=1).computable
    with pytest.raises(UnitStoppedError, match="cannot read"):
        Layout.decode("{}")


# --- locks


def test_a_lock_orders_lanes_and_is_free_when_its_last_holder_is_released() -> None:
    locks = TicketTable(2)
    index = locks.get_holders("s.t", "u")
    assert locks.register(index, b"lucy", ((0, 0), 0)) is None
    assert locks.register(index, b"lucy", ((1, 0), 0)) is None  # the same lane
    wait = locks.register(index, b"lucy", ((2, 0), 1))
    assert wait == ((1, 0), 0)
    locks.release(0, (0, 0))
    assert not locks.is_released(wait)
    locks.release(0, (1, 0))
    assert locks.is_released(wait)
    assert len(locks) == 1
    locks.release(1, (2, 0))
    assert len(locks) == 0
    assert locks.get_holders("s.t", "other") is not index


class CountingLocks:
    """A lock to compare with: it keeps all its tickets in order, and each waits for the one before it."""

    def __init__(self) -> None:
        self.held: dict[bytes, list[Ticket]] = {}

    def register(self, value: bytes, ticket: Ticket) -> Ticket | None:
        holders = self.held.setdefault(value, [])
        wait = holders[-1] if holders and holders[-1][1] != ticket[1] else None
        holders.append(ticket)
        return wait

    def release(self, ticket: Ticket) -> None:
        for value, holders in list(self.held.items()):
            if ticket in holders:
                holders.remove(ticket)
            if not holders:
                del self.held[value]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 3), st.sampled_from((b"a", b"b", b"c"))),
            st.tuples(st.just("commit"), st.integers(0, 3), st.integers(1, 4)),
            st.tuples(st.just("sweep"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_one_id_a_lane_says_what_a_count_and_a_set_of_ids_would_say(
    steps: list[tuple[str, int, Any]],
) -> None:
    locks, counting = TicketTable(4, sweep=0), CountingLocks()
    index = locks.get_holders("s.t", "u")
    queues: list[list[tuple[ChangeId, Ticket | None]]] = [[] for _ in range(4)]
    for offset, (what, lane, how) in enumerate(steps):
        if what == "take":
            ticket = ((offset, 0), lane)
            wait = locks.register(index, how, ticket)
            assert wait == counting.register(how, ticket)
            queues[lane].append((ticket[0], wait))
        elif what == "commit":
            for event, wait in queues[lane][:how]:
                if wait is not None and not locks.is_released(wait):
                    break
                locks.release(lane, event)
                counting.release((event, lane))
                queues[lane].pop(0)
        else:
            locks.forget_free_values()
        assert len(locks) == len(counting.held)


def test_free_values_are_swept_and_held_ones_stay() -> None:
    locks = TicketTable(2)
    index = locks.get_holders("s.t", "u")
    for n in range(SWEEP_THRESHOLD):
        locks.register(index, b"%d" % n, ((n, 0), n % 2))
    locks.forget_free_values()
    assert locks.kept == SWEEP_THRESHOLD  # nothing is free
    locks.release(0, (SWEEP_THRESHOLD, 0))
    for n in range(SWEEP_THRESHOLD, 2 * SWEEP_THRESHOLD):
        locks.register(index, b"%d" % n, ((n + 1, 0), 1))
        locks.forget_free_values()
    assert locks.kept == len(locks) == SWEEP_THRESHOLD // 2 + SWEEP_THRESHOLD
    assert locks.register(index, b"1", ((9 * SWEEP_THRESHOLD, 0), 0)) == ((1, 0), 1)


# --- net change


def change(offset: int, before: Row | None, after: Row | None) -> RowChange:
    return RowChange((offset, 0), before, after)


def test_updates_in_place_only_where_key_and_unique_values_are_as_before() -> None:
    a, b, c = (1, "x", 1, 0), (2, "y", 2, 0), (3, "z", 3, 0)
    net = NetChangeReducer(TABLE).reduce(
        [
            change(0, b, (2, "q", 2, 1)),
            change(1, a, (1, "w", 1, 1)),
            change(2, (2, "q", 2, 1), (2, "y", 2, 2)),  # its unique value is back
            change(3, c, None),
            change(4, None, (3, "z", 3, 4)),  # deleted and inserted again: not in place
        ],
    )
    assert net.updates == [(2, "y", 2, 2)]
    assert net.replaces == [(1, "w", 1, 1), (3, "z", 3, 4)]
    assert net.deletes == []


def read(offset: int, after: Row) -> RowChange:
    return RowChange((offset, 0), None, after, snapshot=True)


def test_what_a_snapshot_read_is_written_in_place_unless_the_row_is_a_new_one() -> None:
    a, b, c, d, e, f = (((n, "x", n, 0)) for n in range(6))
    net = NetChangeReducer(TABLE).reduce(
        [
            read(0, f),
            read(1, a),
            change(2, a, (0, "x", 0, 1)),  # of what the target has nothing is known
            change(3, b, (1, "x", 1, 1)),
            read(4, (1, "x", 1, 2)),
            change(5, c, None),
            read(6, (2, "x", 2, 1)),  # its insert was missed
            change(7, None, d),
            read(8, (3, "x", 3, 1)),
            read(9, e),
            change(10, e, None),
            change(11, None, (4, "x", 4, 2)),
        ],
    )
    assert net.snapshot == [(0, "x", 0, 1), f]
    assert net.updates == [(1, "x", 1, 2)]
    assert net.replaces == [(2, "x", 2, 1), (3, "x", 3, 1), (4, "x", 4, 2)]
    assert (net.deletes, net.size) == ([], 6)
    missing = NetChangeReducer(TABLE).reduce(
        [read(0, a), change(1, a, None), read(2, b), change(3, b, (9, "x", 1, 1))]
    )
    assert (missing.deletes, missing.replaces, missing.snapshot) == ([(0,), (1,)], [(9, "x", 1, 1)], [])
    assert NetChangeReducer(TABLE).reduce([read(0, a), change(1, None, b), change(2, None, a)]).replaces == [
        a,
        b,
    ]
    assert NetChangeReducer(TABLE).reduce([read(0, a), change(1, a, None), read(2, a)]).replaces == [a]


def test_unique_values_that_rows_hand_on_behind_a_snapshot_s_are_replaced_and_meet_no_other_row() -> None:
    """As in two gathers. In place the second row's old value would be in the first one's way: at a table with
    columns of its own it was displaced."""
    a, b, c = (1, "x", 1, 0), (2, "y", 2, 0), (3, "z", 3, 0)
    given_up, taken = (2, None, 2, 1), (1, "y", 1, 1)
    net = NetChangeReducer(TABLE).reduce(
        [read(0, a), read(1, b), read(2, c), change(3, b, given_up), change(4, a, taken)]
    )
    assert (net.replaces, net.snapshot) == ([taken, given_up], [c])
    back = NetChangeReducer(TABLE).reduce(
        [read(0, a), change(1, a, (1, "q", 1, 1)), change(2, (1, "q", 1, 1), (1, "x", 1, 2))]
    )
    assert (back.replaces, back.snapshot) == ([], [(1, "x", 1, 2)])


def test_a_row_that_is_inserted_again_is_not_written_in_place() -> None:
    before, updated, inserted = (1, "x", 1, 0), (1, "x", 1, 1), (1, "x", 1, 2)
    net = NetChangeReducer(TABLE).reduce([change(0, before, updated), change(1, None, inserted)])
    assert (net.replaces, net.updates) == ([inserted], [])


def test_key_moves_chain_and_an_insert_that_is_deleted_is_a_delete() -> None:
    net = NetChangeReducer(TABLE).reduce(
        [
            change(0, (1, "x", 1, 0), (2, "x", 1, 1)),
            change(1, (2, "x", 1, 1), (3, "x", 1, 2)),
            change(2, None, (9, None, None, 3)),
            change(3, (9, None, None, 3), None),
        ],
    )
    assert net.deletes == [(1,), (2,), (9,)]
    assert net.replaces == [(3, "x", 1, 2)]


def test_a_case_changing_key_is_delete_and_insert_by_exact_key() -> None:
    table = target_table()
    net = NetChangeReducer(table).reduce([change(0, ("A", None, None, 0), ("a", None, None, 1))])
    assert (net.deletes, net.replaces, net.updates) == ([("A",)], [("a", None, None, 1)], [])


def test_keys_of_mixed_forms_sort() -> None:
    assert sort_keys(["9007199254740993", 5, 3]) == [3, 5, "9007199254740993"]


# --- progress


def test_a_layout_changes_only_when_all_lanes_stand_equal() -> None:
    two, three = Layout(lanes=2), Layout(lanes=3)
    apart = [lane(0, 7, two), lane(1, 4, two)]
    assert plan_resume(apart, two).start == 5
    assert (
        plan_resume(apart, three).layout,
        plan_resume(apart, three).finish,
        plan_resume(apart, three).start,
    ) == (two, 7, 5)
    with pytest.raises(ValueError, match="different offsets"):
        relay_rows(apart, three)
    equal = [lane(0, 7, two), lane(1, 7, two)]
    assert plan_resume(equal, three).switch_now
    assert [row.lane for row in relay_rows(equal, three)] == [0, 1, 2]
    assert {row.offset for row in relay_rows(equal, three)} == {7}
    with pytest.raises(UnitStoppedError, match="another version"):
        plan_resume([lane(0, 7, replaced := Layout(lanes=2, fold=1)), lane(1, 4, replaced)], three)
    with pytest.raises(UnitStoppedError, match="damaged"):
        plan_resume([lane(0, 7, three)], three)


def test_no_row_goes_back_and_higher_lanes_are_left_alone() -> None:
    layout = Layout(lanes=2)
    rows = [lane(0, 3, layout, at(3)), lane(1, 9, layout, at(9))]
    assert AttemptProgress(rows).list_lanes_below((5, at(5), 1, 0), [0, 1]) == [0]
    with pytest.raises(ValueError, match="cannot go back"):
        advance_row(rows[1], (5, at(5), 1, 0))
    for mark in ((10, at(5), 1, 0), (5, at(10), 1, 0)):  # one of the two is enough
        with pytest.raises(ValueError, match="cannot go back"):
            advance_row(rows[1], mark)
    assert advance_row(rows[1], (9, at(9), 1, 0)) == rows[1], "a lane may stay where it is"


def test_after_a_commit_of_unknown_outcome_the_row_decides() -> None:
    layout = Layout(lanes=2)
    guard = lane(0, 3, layout, at(3))
    wrote = advance_row(guard, (5, at(5), 1, 0))
    assert was_committed(wrote, guard, wrote)
    assert not was_committed(guard, guard, wrote)
    wider = structs.replace(guard, layout=Layout(lanes=3).encode())  # a change of the layout moves no offset
    assert was_committed(wider, guard, wider)
    assert not was_committed(guard, guard, wider)
    for other in (
        None,
        structs.replace(guard, attempt=2),
        structs.replace(guard, epoch=2),
        structs.replace(guard, offset=4),
    ):
        with pytest.raises(FencedError):
            was_committed(other, guard, wrote)


@given(st.integers(-1, 50), st.integers(0, 60))
def test_a_start_is_refused_exactly_when_the_topic_has_lost_what_was_applied(offset: int, end: int) -> None:
    rows = [lane(0, offset, Layout(lanes=1))]
    refusal = find_lost_offsets(rows, "topic-id", end)
    assert (refusal is None) == (offset + 1 <= end)
    assert "created again" in str(find_lost_offsets(rows, "other", end))
