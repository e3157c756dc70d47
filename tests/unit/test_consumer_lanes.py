"""The lane machine and its threads: gathering, waiting, errors, quarantine; and the fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as other
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from consumer.attempt.effects import Await, Machine
from consumer.attempt.lane_group import LaneGroup
from consumer.errors import FencedError, RefusedError, TransientError, UniqueViolationError
from consumer.ordering.collations import make_text_fold
from consumer.ordering.dispatch import Dispatcher, LaneItem
from consumer.ordering.fold import (
    fold_decimal,
    fold_float,
    fold_whole,
    make_index_fold,
    make_key_fold,
    recompute_folded_keys,
)
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import ApplyBatch, Lane, LaneLimits, WaitForTickets, WaitForWork
from consumer.ordering.layout import Layout
from consumer.ordering.model import ChangeId, LaneProgress, QuarantineEntry, RowChange, TargetTable
from consumer.ordering.tickets import TicketTable
from consumer.tables.router import build_target_table as resolved
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import ZERO
from tests.kits.apply import account_table
from tests.kits.history import lane_driver, target_table

TABLE = target_table()
END = (99, (0, 1, 99, 0), 1, 0)


class Bench:
    """A dispatcher over lanes whose number can be chosen; changes get their list index as offset."""

    def __init__(
        self, lanes: int = 1, *, held: Sequence[QuarantineEntry] = (), replace: bool = True, **limits: float
    ) -> None:
        layout = Layout(lanes=lanes)
        rows = [LaneProgress(n, 1, 1, "id", -1, ZERO, 0, layout.encode()) for n in range(lanes)]
        self.locks = TicketTable(lanes)
        self.dispatcher = Dispatcher(layout, self.locks, rows)
        self.plan = self.dispatcher.plan_table(TABLE)
        settings = LaneLimits(**limits)  # type: ignore[arg-type]
        self.lanes = [Lane(n, self.locks, settings, held, replace=replace) for n in range(lanes)]
        self.offset = 0

    def routed(self, *changes: tuple[Row | None, Row | None]) -> list[RowChange]:
        out: list[RowChange] = []
        for before, after in changes:
            change = RowChange((self.offset, 0), before, after, wire=b'{"n":%d}' % self.offset)
            out.append(altered(change, position=(0, 1, self.offset, 0), gen=1))
            self.offset += 1
        return out

    def feed(self, *changes: tuple[Row | None, Row | None]) -> list[list[LaneItem]]:
        self.dispatcher.dispatch(self.plan, self.routed(*changes))
        queues = self.dispatcher.take_queued()
        for lane, items in zip(self.lanes, queues, strict=True):
            lane.queue_items(items)
        return queues

    def tickets(self, change: tuple[Row | None, Row | None]) -> set[bytes]:
        """Feed `change` alone; return the values of the first unique index that it holds a ticket of."""
        offset = self.offset
        self.feed(change)
        holders = self.locks.get_holders(self.plan.name, TABLE.table.unique[0].name)
        return {value for value, (event, _lane) in holders.items() if event[0] == offset}

    def commit(self, lane: Lane) -> LaneBatch:
        """Expect Apply, and let it succeed."""
        effect = lane.choose_effect()
        assert isinstance(effect, ApplyBatch)
        batch = lane.build_batch()
        lane.record_applied()
        return batch

    def fail(self, lane: Lane, error: Exception) -> tuple[ChangeId, ChangeId] | None:
        """Expect Apply, and let it fail."""
        assert isinstance(lane.choose_effect(), ApplyBatch)
        events = lane.build_batch().events
        lane.handle_failure(error)
        return events


def row(key: int, a: str | None = None, b: int | None = None) -> Row:
    return (key, a, b, 0)


def other_lane(bench: Bench, key: int) -> int:
    """A key that goes to another lane than `key`."""
    lane_of = {k: bench.plan.lane_of(bench.plan.fold_key(row(k))) for k in range(key, key + 50)}
    return next(k for k, lane in lane_of.items() if lane != lane_of[key])


# --- gathering and waiting


def test_a_lane_gathers_until_the_drain_or_its_limit() -> None:
    bench = Bench(max_gather=3)
    (lane,) = bench.lanes
    bench.feed((None, row(1)), (None, row(2)))
    assert lane.choose_effect() == WaitForWork()
    bench.feed((None, row(3)), (None, row(4)))
    assert bench.commit(lane).count == 3
    assert lane.choose_effect() == WaitForWork()
    lane.drain_to(END)
    last = bench.commit(lane)
    assert (last.count, last.mark) == (1, END)
    assert lane.choose_effect() == WaitForWork(drained=True, wrote=True)
    lane.drain_to(END)
    assert lane.choose_effect() == WaitForWork(drained=True, wrote=False)


def test_a_lane_gathers_until_the_bytes_of_its_limit_over_all_that_it_was_fed() -> None:
    bench = Bench(max_bytes=2 * len(b'{"n":0}'))
    (lane,) = bench.lanes
    bench.feed((None, row(1)))
    assert lane.choose_effect() == WaitForWork()
    bench.feed((None, row(2)), (None, row(3)))
    assert bench.commit(lane).count == 2
    assert lane.choose_effect() == WaitForWork(), "the count begins anew"


def test_tickets_are_taken_for_values_that_change_hands() -> None:
    bench = Bench()
    changes = [
        (None, row(1, "lucy")),
        (row(1, "lucy"), (1, "lucy", None, 7)),  # another column
        (row(1, "lucy"), row(1, "anna")),
        (row(1, "anna"), row(2, "anna")),  # the key moves within its lane
        (row(2, "anna"), None),
    ]
    assert [bench.tickets(change) for change in changes] == [
        {b"lucy"},
        set(),
        {b"lucy", b"anna"},
        set(),
        {b"anna"},
    ]


def _recollated(table: Table) -> Table:
    unique = tuple(
        altered(index, parts=tuple(altered(part, collation="utf8mb4_general_ci") for part in index.parts))
        for index in table.unique
    )
    return altered(table, unique=unique)


@pytest.mark.parametrize(
    ("at_source", "at_target"),
    [
        (altered(TABLE.table, unique=()), TABLE.table),
        (TABLE.table, _recollated(TABLE.table)),
        (
            TABLE.table,
            altered(TABLE.table, unique=tuple(altered(i, nulls_distinct=False) for i in TABLE.table.unique)),
        ),
    ],
    ids=["missing", "collation", "nulls"],
)
def test_a_stricter_index_of_the_target_has_a_ticket_of_every_event(
    at_source: Table, at_target: Table
) -> None:
    layout, locks = Layout(lanes=1), TicketTable(1)
    dispatcher = Dispatcher(layout, locks, [LaneProgress(0, 1, 1, "id", -1, ZERO, 0, layout.encode())])
    plan = dispatcher.plan_table(other(TABLE, table=at_target), at_source)
    dispatcher.dispatch(plan, [RowChange((0, 0), row(1, "lucy"), (1, "lucy", None, 7))])
    assert b"lucy" in locks.get_holders(plan.name, at_target.unique[0].name)


def test_a_key_that_moves_between_lanes_hands_its_value_over() -> None:
    bench = Bench(lanes=2)
    k = other_lane(bench, 1)
    queues = bench.feed((row(1, "lucy"), row(k, "lucy")))
    first, second = (items[0] for items in sorted(queues, key=lambda items: items[0][0].id))
    holders = bench.locks.get_holders(bench.plan.name, TABLE.table.unique[0].name)
    assert holders == {b"lucy": ((0, 1), bench.plan.lane_of(second[2]))}
    assert first[3] == ()
    assert {event for event, _lane in second[3]} == {(0, 0)}


def test_a_lane_commits_before_it_waits_and_the_holder_commits_when_asked() -> None:
    bench = Bench(lanes=2)
    k = other_lane(bench, 1)
    bench.feed((None, row(1, "lucy")), (None, row(k)), (row(1, "lucy"), None), (None, row(k, "lucy")))
    holder = next(
        lane for lane in bench.lanes if lane.number == bench.plan.lane_of(bench.plan.fold_key(row(1)))
    )
    waiter = bench.lanes[1 - holder.number]
    assert holder.choose_effect() == WaitForWork()
    assert bench.commit(waiter).events == ((1, 0), (1, 0))  # what it had gathered before
    effect = waiter.choose_effect()
    assert isinstance(effect, WaitForTickets)
    assert effect.waits == (((2, 0), holder.number),)
    holder.request_commit((2, 0))
    assert holder.busy
    assert bench.commit(holder).events == ((0, 0), (2, 0))
    assert waiter.choose_effect() == WaitForWork()
    waiter.drain_to(END)
    assert bench.commit(waiter).nets[0].replaces == [row(k, "lucy")]
    assert len(bench.locks) == 0


def test_behind_a_commit_that_was_asked_for_a_lane_gathers_again() -> None:
    bench = Bench()
    (lane,) = bench.lanes
    bench.feed((None, row(1)))
    assert lane.choose_effect() == WaitForWork()
    lane.request_commit((0, 0))
    assert bench.commit(lane).events == ((0, 0), (0, 0))
    bench.feed((None, row(2)))
    assert lane.choose_effect() == WaitForWork()


def test_a_key_move_is_two_parts_in_order_or_one_item() -> None:
    bench = Bench(lanes=2)
    k = other_lane(bench, 1)
    queues = bench.feed((row(1, "x"), row(k, "x")))
    parts = {
        item[0].id: (item[0].before, item[0].after, [event for event, _lane in item[3]])
        for q in queues
        for item in q
    }
    assert parts[(0, 0)] == (row(1, "x"), None, [])
    assert parts[(0, 1)][:2] == (None, row(k, "x"))
    assert set(parts[(0, 1)][2]) == {(0, 0)}
    single = Bench(lanes=1)
    ((item,),) = single.feed((row(1, "x"), row(k, "x")))
    assert (item[0].before, item[0].after) == (row(1, "x"), row(k, "x"))


def test_what_a_lane_has_passed_is_dropped_in_that_lane_only() -> None:
    bench = Bench(lanes=2)
    k = other_lane(bench, 1)
    mine = bench.plan.lane_of(bench.plan.fold_key(row(1)))
    text = bench.dispatcher.layout.encode()
    rows = [LaneProgress(n, 1, 1, "id", 1 if n == mine else -1, ZERO, 0, text) for n in range(2)]
    bench.dispatcher = Dispatcher(bench.dispatcher.layout, bench.locks, rows)
    bench.plan = bench.dispatcher.plan_table(TABLE)
    queues = bench.feed((None, row(1)), (row(1), row(k)), (None, row(1)))
    assert [[item[0].id for item in queues[n]] for n in (mine, 1 - mine)] == [[(2, 0)], [(1, 1)]]


# --- errors


def test_transient_errors_retry_whole_then_halves_by_event_order_then_raise() -> None:
    bench = Bench(tries=4, whole=2, pause=0.5, max_pause=1.0)
    (lane,) = bench.lanes
    bench.feed(*((None, row(k)) for k in (4, 3, 2, 1)))
    lane.drain_to(END)
    error = TransientError("deadlock")
    assert bench.fail(lane, error) == ((0, 0), (3, 0))
    assert lane.choose_effect() == ApplyBatch(pause=0.5)
    assert bench.fail(lane, error) == ((0, 0), (3, 0))
    assert lane.choose_effect() == ApplyBatch(pause=1.0)
    first = bench.commit(lane)
    assert (first.events, first.mark[0]) == (((0, 0), (1, 0)), 1)  # the half's own progress
    assert first.nets[0].replaces == [row(3), row(4)]
    for _ in range(3):
        bench.fail(lane, error)
    with pytest.raises(TransientError):
        bench.fail(lane, error)


def test_a_refused_event_is_isolated_quarantined_and_its_key_held() -> None:
    bench = Bench()
    (lane,) = bench.lanes
    bench.feed(
        (None, row(1)),
        (None, row(2)),
        (None, row(3)),
        (row(2), row(2, "later")),
        (row(2, "later"), row(7, "later")),
    )
    lane.drain_to(END)
    bench.fail(lane, RefusedError("too long"))
    bench.fail(lane, RefusedError("too long"))
    assert bench.commit(lane).events == ((0, 0), (0, 0))
    bench.fail(lane, RefusedError("too long"))
    held = bench.commit(lane)
    assert held.nets == []
    assert [(h.offset, h.part, h.table, h.key, h.event, h.error) for h in held.quarantine.added] == [
        (1, 0, "public.history", "[2]", '{"n":1}', "too long")
    ]
    rest = bench.commit(lane)
    assert [(h.offset, h.part, h.key, h.error) for h in rest.quarantine.added] == [
        (3, 0, "[2]", "held behind offset 1")
    ]
    assert rest.quarantine.closed == [(1, 0), (3, 0)]  # the key move deletes the held key
    assert [(net.deletes, net.replaces) for net in rest.nets] == [([(2,)], [row(3), row(7, "later")])]
    assert len(bench.locks) == 0
    again = Bench(held=held.quarantine.added)
    again.feed((row(2), row(2, "x")))
    again.lanes[0].drain_to(END)
    assert again.commit(again.lanes[0]).quarantine.added[0].error == "held behind offset 1"


def test_a_unique_violation_is_tried_again_then_displaces_or_is_refused() -> None:
    for replace in (True, False):
        bench = Bench(replace=replace)
        (lane,) = bench.lanes
        bench.feed((None, row(1, "a")))
        lane.drain_to(END)
        bench.fail(lane, UniqueViolationError("held"))
        assert isinstance(lane.choose_effect(), ApplyBatch)
        assert lane.build_batch().displacing is None
        bench.fail(lane, UniqueViolationError("held"))
        batch = bench.commit(lane)
        assert (batch.displacing, len(batch.quarantine.added)) == (
            ('{"lane":0,"from":[0,0],"to":[0,0]}', 0) if replace else (None, 1)
        )


@pytest.mark.parametrize("more", [False, True])
def test_rows_of_a_snapshot_that_pass_a_unique_value_on_replace_what_is_there(*, more: bool) -> None:
    """Written in place each row would meet the value of the other; no row is displaced, for the target has
    not drifted. Where the target has columns of its own, in which a new row has nothing, the old row is
    displaced, whole."""
    bench = Bench()
    bench.plan = bench.dispatcher.plan_table(other(TABLE, more=more))
    (lane,) = bench.lanes
    read = [
        altered(change, snapshot=True) for change in bench.routed((None, row(2, "a")), (None, row(1, "b")))
    ]
    bench.dispatcher.dispatch(bench.plan, [*read, *bench.routed((None, row(3, "c")))])
    lane.queue_items(bench.dispatcher.take_queued()[0])
    lane.drain_to(END)
    assert isinstance(lane.choose_effect(), ApplyBatch)
    (net,) = lane.build_batch().nets
    assert (net.snapshot, net.replaces) == ([row(1, "b"), row(2, "a")], [row(3, "c")])
    bench.fail(lane, UniqueViolationError("held"))
    assert isinstance(lane.choose_effect(), ApplyBatch)
    (net,) = lane.build_batch().nets
    in_place, new = [row(1, "b"), row(2, "a")], [row(3, "c")]
    expected = (in_place, new) if more else ([], [*in_place, *new])
    assert (net.snapshot, net.replaces) == expected
    assert lane.build_batch().displacing is None
    bench.fail(lane, UniqueViolationError("held"))
    batch = bench.commit(lane)
    assert [(net.snapshot, net.replaces) for net in batch.nets] == [expected]
    assert batch.displacing is not None, "what stays in the way belongs to another row"


def test_a_fenced_lane_stops_at_once() -> None:
    bench = Bench()
    bench.feed((None, row(1)))
    bench.lanes[0].drain_to(END)
    with pytest.raises(FencedError):
        bench.fail(bench.lanes[0], FencedError("gone"))


# --- threads


def test_the_first_error_of_a_lane_stops_all_and_is_raised_to_the_caller() -> None:
    bench = Bench(lanes=4)
    applied: list[int] = []

    def commit(lane: int, batch: LaneBatch) -> Machine[None]:
        applied.append(lane)
        yield from ()
        raise FencedError(f"lane {lane}")

    driver = lane_driver()
    group = LaneGroup(
        bench.dispatcher, bench.locks, commit, limits=LaneLimits(max_gather=1), signals=driver.make_signals(4)
    )

    def work() -> Machine[None]:
        yield from group.start()
        yield from group.submit_changes(bench.plan, bench.routed(*((None, row(k)) for k in range(40))))
        yield from group.drain(END)

    with pytest.raises(FencedError):
        driver.run_machine(work())
    assert len(applied) <= 4


def test_submit_blocks_at_the_limit_and_lanes_then_commit_what_they_have() -> None:
    bench = Bench(lanes=2)
    counts: list[int] = []

    def commit(_lane: int, batch: LaneBatch) -> Machine[None]:
        counts.append(batch.count)
        yield from ()

    driver = lane_driver()
    group = LaneGroup(
        bench.dispatcher,
        bench.locks,
        commit,
        limits=LaneLimits(max_pending=10),
        signals=driver.make_signals(2),
    )

    def work() -> Machine[None]:
        yield from group.start()
        for _ in range(20):
            yield from group.submit_changes(
                bench.plan, bench.routed(*((None, row(bench.offset + k)) for k in range(5)))
            )
        yield from group.drain(END)
        yield from group.close()

    driver.run_machine(work())
    assert sum(counts) == 100
    assert max(counts) < 100


def group_of(bench: Bench, applied: list[int], **limits: int) -> LaneGroup:
    """Lanes that nobody drives yet; `applied`: the lanes that commit, in turn."""

    def commit(lane: int, _batch: LaneBatch) -> Machine[None]:
        applied.append(lane)
        yield from ()

    lanes = len(bench.lanes)
    return LaneGroup(
        bench.dispatcher, bench.locks, commit, limits=LaneLimits(**limits),
        signals=lane_driver().make_signals(lanes)
    )  # fmt: skip


def settled(*machines: Machine[None]) -> None:
    """Drive `machines` one at a time until each waits for another one."""
    effects: list[Any] = [next(machine) for machine in machines]
    went = True
    while went:
        went = False
        for at, machine in enumerate(machines):
            while isinstance(effects[at], Await) and effects[at].ready():
                effects[at], went = next(machine), True


def test_a_lane_that_waits_for_another_asks_it_to_commit_what_it_has() -> None:
    """Nothing else would let that one commit: it goes on gathering, as it has room."""
    bench, applied = Bench(lanes=2), list[int]()
    group = group_of(bench, applied, max_gather=3)
    giver, taker = row(1, "a"), other_lane(bench, 1)
    takes = [(None, row(taker, "a")), (row(taker, "a"), row(taker, "b")), (row(taker, "b"), row(taker, "c"))]
    for _ in group.submit_changes(bench.plan, bench.routed((giver, None), *takes)):
        raise AssertionError("there is room")
    giving = bench.plan.lane_of(bench.plan.fold_key(giver))
    settled(*(group.run_lane(number) for number in range(2)))
    assert applied == [giving, 1 - giving]


@pytest.mark.parametrize("ended", [None, TransientError("the attempt's own")])
def test_who_closes_lanes_is_told_of_their_error_unless_another_one_ends_the_attempt(
    ended: Exception | None,
) -> None:
    group = group_of(Bench(), [])
    group.record_lane_error(FencedError("the lane's"))
    if ended is None:
        with pytest.raises(FencedError, match="the lane's"):
            lane_driver().run_machine(group.close())
    else:
        lane_driver().run_machine(group.close(ended))
    lane_driver().run_machine(group_of(Bench(), []).close())


# --- fold


def _table(collation: str | None, prefix: int | None = None, *, nulls_distinct: bool = True) -> Table:
    text = ColumnType(kind=Kind.VARCHAR, length=20, collation=collation)
    return Table(
        db="d",
        name="t",
        columns=(Column(name="k", type=text), Column(name="n", type=ColumnType(kind=Kind.INT, bits=64))),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="k"),)),
        unique=(
            UniqueIndex(
                name="u",
                parts=(IndexPart(column="k", prefix=prefix), IndexPart(column="n")),
                nulls_distinct=nulls_distinct,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("collation", "left", "right", "equal"),
    [
        ("utf8mb4_general_ci", "Lucy ", "lucy", True),
        ("utf8mb4_bin", "Lucy ", "lucy", False),
        ("utf8mb4_bin", "lucy ", "lucy", True),
        ("utf8mb4_0900_ai_ci", "stra\u00dfe", "STRASSE", True),
        ("utf8mb4_general_ci", "\u00df", "s", True),
        ("utf8mb4_unicode_ci", "Gr\u00fc\u00dfe", "gru\u0308sse", True),
        ("latin1_german2_ci", "\u00e4", "AE", True),
        ("latin1_swedish_ci", "\u00fc", "Y", True),
        ("utf8mb4_0900_ai_ci", "ACC-1", "ACC-2", False),
        ("utf8mb4_general_ci", "\u5f20\u4e09", "\u674e\u56db", False),
        ("utf8mb4_turkish_ci", "ACC-1", "acc_1", False),
        ("utf8mb4_turkish_ci", "I", "\u0131", True),
        ("utf8mb4_persian_ci", "ACC-1", "acc_1", True),
        ("utf8mb4_persian_ci", "ACC-1", "ACC-2", False),
        ("utf8mb4_turkish_ci", "ACC-1", "ACC-2", False),
        ("C", "a", "A", False),
    ],
)
def test_text_folds_by_its_collation(collation: str, left: str, right: str, equal: bool) -> None:
    fold = make_text_fold(collation, None)
    assert (fold(left) == fold(right)) == equal


def test_only_the_target_s_collation_counts() -> None:
    """Two keys that the source alone holds equal are two rows of the target; by hand a target may also be the
    coarser end."""
    table = _table("utf8mb4_general_ci")
    for real, equal in ((None, False), ("utf8mb4_bin", False), ("utf8mb4_general_ci", True)):
        routed = resolved(table, _table(real))
        fold = make_key_fold(routed.table)
        assert (fold(("Lucy", 1)) == fold(("lucy", 1))) == equal
    coarser = make_key_fold(resolved(_table("utf8mb4_bin"), _table("utf8mb4_general_ci")).table)
    assert coarser(("Lucy", 1)) == coarser(("lucy", 1))


def test_a_collation_that_its_maker_wrote_holds_everything_equal() -> None:
    """PostgreSQL's collations that do not compare exactly come with their schema: 007 may be 7 there."""
    fold = make_text_fold("public.utf8mb4_general_ci", None)
    assert fold("a007") == fold("b7")
    assert make_text_fold("xx_unheard_of_ci", None)("a-1") == b"1"


def test_a_held_key_is_met_again_by_a_version_that_folds_otherwise() -> None:
    """What an older version stored as the folded key says nothing: the key itself is folded anew."""
    first = Bench()
    first.feed((None, altered_row := row(1, "refused")))
    lane = first.lanes[0]
    lane.drain_to(END)
    first.fail(lane, RefusedError("no"))
    [entry] = first.commit(lane).quarantine.added
    stale = altered(entry, folded=entry.folded + "00")
    for held, overtakes in (([stale], True), (recompute_folded_keys([stale], TABLE), False)):
        bench = Bench(held=held)
        bench.feed((altered_row, row(1)), (None, row(2)))
        bench.lanes[0].drain_to(END)
        batch = bench.commit(bench.lanes[0])
        assert (not batch.quarantine.added) == overtakes
    assert [each.key for each in batch.quarantine.added] == ["[1]"]
    elsewhere = altered(stale, table="another.table")
    assert recompute_folded_keys([elsewhere], TABLE) == [elsewhere]


def test_prefixes_and_nulls() -> None:
    table = _table("utf8mb4_bin", prefix=2)
    fold = make_index_fold(table, table.unique[0])
    assert fold(("abc", 1)) == fold(("abd", 1)) != fold(("abd", 2))
    assert fold(("abc", None)) is None
    same = _table("utf8mb4_bin", nulls_distinct=False)
    assert (
        make_index_fold(same, same.unique[0])(("abc", None))
        == make_index_fold(same, same.unique[0])(("abc", None))
        is not None
    )
    assert make_key_fold(table)(("abc", 1)) == b"abc"


@given(st.integers(-(2**70), 2**70))
def test_numbers_fold_by_value_not_by_form(number: int) -> None:
    assert (
        fold_whole(number)
        == fold_whole(str(number))
        == fold_decimal(f"{number}.00")
        == fold_decimal(str(number))
    )
    assert fold_decimal("-0.00") == fold_decimal("0")
    assert fold_float(-0.0) == fold_float(0)


@pytest.mark.parametrize(
    ("theirs", "one"), [("utf8mb4_0900_ai_ci", True), (None, True), ("another column", False)]
)
def test_values_that_the_source_keeps_unique_have_one_holder_also_where_the_target_compares_exactly(
    theirs: str | None, one: bool
) -> None:
    """Such a value is waited for by its last holder alone. A column of `add:` is none of the source's."""
    collated = theirs if theirs != "another column" else None
    columns = tuple(
        altered(each, type=altered(each.type, collation=collated)) if each.name == "email" else each
        for each in account_table().columns
    )
    index = account_table().unique[0]
    own = altered(index, parts=(IndexPart(column="owner"),)) if theirs == "another column" else index
    source = altered(account_table(), columns=columns, unique=(own,))
    exact = tuple(altered(each, type=altered(each.type, collation=None)) for each in columns)
    branch = Column(name="branch", type=ColumnType(kind=Kind.INT, bits=32), nullable=False)
    for parts, more in ((index.parts, ()), ((IndexPart(column="branch"), *index.parts), (branch,))):
        table = altered(source, columns=(*exact, *more), unique=(altered(index, parts=parts),))
        at = tuple(table.find_ordinals(each.columns) for each in table.unique)
        target = TargetTable(
            table=table, key_at=table.find_ordinals(table.key.columns), unique_at=at, added=(), more=False
        )
        layout = Layout(lanes=1)
        plan = Dispatcher(
            layout, TicketTable(1), [LaneProgress(0, 1, 1, "id", -1, ZERO, 0, layout.encode())]
        ).plan_table(target, source)
        assert [each[3] for each in plan.indexes] == [one]
