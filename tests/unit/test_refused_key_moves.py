"""A key move that the target refuses: only the refused half is quarantined, and the number of lanes changes
nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from consumer.errors import RefusedError
from consumer.ordering.dispatch import Dispatcher, TablePlan
from consumer.ordering.fold import encode_folded
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import ApplyBatch, Lane, LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, QuarantineEntry, RowChange, TargetTable
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Column, ColumnType, Key, Kind, Row
from schemas.wire.position import ZERO
from tests.kits.history import TopicHistory, changes_of, run_pure, target_table, topic_of
from tests.stands.fake_target import FakeTarget

TABLE = target_table(unique=False)
Changes = list[tuple[Row | None, Row | None]]
Entry = tuple[int, int, str, str]
"""Of the quarantine: (offset, part, key, error)."""


@dataclass
class Refusals:
    """What the target refuses: rows with one of the values `rows` in their last column, and deletes of the
    keys `deletes`."""

    rows: set[int] = field(default_factory=set)
    deletes: set[int] = field(default_factory=set)

    def of_row(self, row: Row) -> RefusedError | None:
        return RefusedError("too long") if row[3] in self.rows else None

    def of_delete(self, key: Key) -> RefusedError | None:
        return RefusedError("referenced") if key[0] in self.deletes else None


def expected(changes: Changes, refusals: Refusals) -> tuple[dict[Key, Row], list[Entry]]:
    """Apply `changes` one half at a time: what the target has to hold, and its quarantine."""
    rows: dict[Key, Row] = {}
    held: dict[int, list[Entry]] = {}

    def hold(offset: int, part: int, key: int, error: str) -> None:
        held.setdefault(key, []).append((offset, part, f"[{key}]", error))

    for offset, (before, after) in enumerate(changes):
        is_move = before is not None and after is not None and before[0] != after[0]
        if before is not None and (after is None or is_move):
            key = before[0]
            if refusals.of_delete((key,)):
                hold(offset, 0, key, "referenced")
            else:
                rows.pop((key,), None)
                held.pop(key, None)
        if after is not None:
            key = after[0]
            if held.get(key):
                hold(offset, int(is_move), key, f"held behind offset {held[key][0][0]}")
            elif refusals.of_row(after):
                hold(offset, int(is_move), key, "too long")
            else:
                rows[key,] = after
    return rows, sorted(entry for entries in held.values() for entry in entries)


def applied(
    changes: Changes, refusals: Refusals, rng: random.Random, *, lanes: int, max_gather: int = 1
) -> tuple[dict[Key, Row], list[Entry]]:
    """Apply `changes` by the product's lanes in attempts of random length, some of which crash."""
    target = FakeTarget(refuse=refusals.of_row, refuse_delete=refusals.of_delete)
    history = TopicHistory(changes, topic_of(changes, []))
    if changes:
        run_pure(history, target.session(), TABLE, lanes=lanes, max_gather=max_gather, rng=rng)
    held = sorted((each.offset, each.part, each.key, each.error) for each in target.state.held.values())
    return target.state.rows.get("public.history", {}), held


def row(key: int, value: int = 0) -> Row:
    return (key, None, None, value)


operations = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "drop", "move", "move", "move")),
        st.integers(1, 4),
        st.none(),
        st.none(),
        st.integers(1, 4),
    ),
    max_size=30,
)
refusals = st.builds(
    Refusals,
    st.sets(st.integers(0, 30), max_size=10),
    st.one_of(st.just(set()), st.sets(st.integers(1, 4), max_size=1)),
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(operations, refusals, st.integers(0, 2**32))
def test_any_number_of_lanes_leaves_the_same_rows_and_entries(ops, refused: Refusals, seed: int) -> None:
    changes = changes_of(ops)
    right = expected(changes, refused)
    for lanes in (1, 2, 3, 4, 5):
        assert applied(changes, refused, random.Random(seed), lanes=lanes) == right, f"{lanes} lanes"


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(operations, refusals, st.integers(1, 5), st.integers(2, 20), st.integers(0, 2**32))
def test_batches_leave_each_key_as_the_source_or_in_quarantine(
    ops, refused: Refusals, lanes: int, max_gather: int, seed: int
) -> None:
    changes = changes_of(ops)
    rows, held = applied(changes, refused, random.Random(seed), lanes=lanes, max_gather=max_gather)
    final: dict[Key, Row] = {}
    for before, after in changes:
        if before is not None:
            del final[before[0],]
        if after is not None:
            final[after[0],] = after
    in_quarantine = {key for _, _, key, _ in held}
    for key in range(1, 5):
        if f"[{key}]" not in in_quarantine:
            assert rows.get((key,)) == final.get((key,))
        elif (key,) not in final:  # a deleted key stays in quarantine only if the target refuses the delete
            assert key in refused.deletes


@pytest.mark.parametrize("lanes", range(1, 6))
def test_old_row_goes_when_the_target_refuses_the_new_one(lanes: int) -> None:
    changes: Changes = [(None, row(1)), (row(1), row(2, 7)), (row(2, 7), row(2, 8))]
    rows, held = applied(changes, Refusals(rows={7}), random.Random(1), lanes=lanes)
    assert rows == {}
    assert held == [(1, 1, "[2]", "too long"), (2, 0, "[2]", "held behind offset 1")]


@pytest.mark.parametrize("lanes", range(1, 6))
def test_a_delete_settles_a_key_in_quarantine(lanes: int) -> None:
    changes: Changes = [(None, row(1)), (row(1), row(1, 7)), (row(1, 7), row(2, 7)), (row(2, 7), None)]
    rows, held = applied(changes, Refusals(rows={7}), random.Random(1), lanes=lanes)
    assert (rows, held) == ({}, [])


@pytest.mark.parametrize("lanes", range(1, 6))
def test_new_row_comes_when_the_target_refuses_to_delete_the_old_one(lanes: int) -> None:
    rows, held = applied(
        [(None, row(1)), (row(1), row(2))], Refusals(deletes={1}), random.Random(1), lanes=lanes
    )
    assert rows == {(1,): row(1), (2,): row(2)}
    assert held == [(1, 0, "[1]", "referenced")]


@pytest.mark.parametrize("lanes", range(1, 6))
def test_both_halves_are_held_when_the_target_refuses_both(lanes: int) -> None:
    refused = Refusals(rows={7}, deletes={1})
    rows, held = applied([(None, row(1)), (row(1), row(2, 7))], refused, random.Random(1), lanes=lanes)
    assert rows == {(1,): row(1)}
    assert held == [(1, 0, "[1]", "referenced"), (1, 1, "[2]", "too long")]


def lane_of(table: TargetTable, held: list[QuarantineEntry]) -> tuple[Lane, TablePlan]:
    layout, locks = Layout(lanes=1), TicketTable(1)
    rows = [LaneProgress(0, 1, 1, "id", -1, ZERO, 0, layout.encode())]
    return Lane(0, locks, LaneLimits(), held), Dispatcher(layout, locks, rows).plan_table(table)


def entry(key: Key, plan: TablePlan, offset: int) -> QuarantineEntry:
    folded = encode_folded(plan.fold_key((*key, None, None, 0)))
    return QuarantineEntry(
        offset, 0, plan.name, msgspec.json.encode(key).decode(), folded, "{}", "too long", 0
    )


def batch_of(lane: Lane, plan: TablePlan, *changes: RowChange) -> LaneBatch:
    """Return what the lane applies of `changes`."""
    lane.queue_items(
        [(change, plan, plan.fold_key(change.before or change.after or ()), ()) for change in changes]
    )
    lane.drain_to((99, ZERO, 1, 0))
    assert isinstance(lane.choose_effect(), ApplyBatch)
    return lane.build_batch()


def test_a_delete_closes_entries_of_the_other_zero() -> None:
    column = Column(name="id", type=ColumnType(kind=Kind.DOUBLE), nullable=False)
    table = replace(TABLE, table=altered(TABLE.table, columns=(column, *TABLE.table.columns[1:])))
    _, plan = lane_of(table, [])
    lane, _ = lane_of(table, [entry((-0.0,), plan, 3)])
    batch = batch_of(lane, plan, RowChange((5, 0), (0.0, None, None, 0), None))
    assert (batch.quarantine.closed, batch.quarantine.added) == ([(3, 0)], [])


def test_a_delete_leaves_entries_of_another_key_that_folds_alike() -> None:
    _, plan = lane_of(TABLE, [])
    other = altered(entry((1,), plan, 3), folded=encode_folded(plan.fold_key(row(2))))
    lane, _ = lane_of(TABLE, [other])
    batch = batch_of(lane, plan, RowChange((5, 0), row(2), None))
    assert (batch.quarantine.closed, batch.quarantine.added, [net.deletes for net in batch.nets]) == (
        [],
        [],
        [[(2,)]],
    )


def test_an_event_target_is_sent_no_delete_of_a_row_that_it_never_had() -> None:
    table = replace(TABLE, topic="feed")
    _, plan = lane_of(table, [])
    lane, _ = lane_of(table, [entry((1,), plan, 3)])
    batch = batch_of(lane, plan, RowChange((5, 0), row(1), None))
    assert ([each.error for each in batch.quarantine.added], batch.nets) == (["held behind offset 3"], [])


def test_an_event_target_gets_the_delete_of_a_refused_key_move() -> None:
    lane, plan = lane_of(replace(TABLE, topic="feed"), [])
    batch_of(lane, plan, RowChange((5, 0), row(1), row(2, 7)))
    lane.handle_failure(RefusedError("too large"))
    assert isinstance(lane.choose_effect(), ApplyBatch)
    (net,) = lane.build_batch().nets
    assert [(change.before, change.after) for change in net.changes] == [(row(1), None)]
    assert [(each.offset, each.part, each.key) for each in lane.build_batch().quarantine.added] == [
        (5, 1, "[2]")
    ]
