"""What a lane has passed by its progress row it is not given again: at, below and above that offset, for
every shape of a change."""

from __future__ import annotations

from itertools import product

import pytest

from consumer.ordering.dispatch import Dispatcher, TablePlan
from consumer.ordering.layout import Layout
from consumer.ordering.model import ChangeId, LaneProgress, RowChange
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Row
from schemas.wire.position import ZERO
from tests.kits.history import target_table

LAYOUT = Layout(lanes=2)
AT = 5
PASSED = (AT - 1, AT, AT + 1)


def dispatched(passed: tuple[int, int]) -> tuple[Dispatcher, TablePlan]:
    """A dispatcher whose lanes have passed these offsets; their rows come in another order than their
    numbers."""
    rows = [LaneProgress(lane, 1, 1, "id", passed[lane], ZERO, 0, "") for lane in (1, 0)]
    dispatcher = Dispatcher(LAYOUT, TicketTable(2), rows)
    return dispatcher, dispatcher.plan_table(target_table())


def row_in(plan: TablePlan, lane: int, number: int = 0) -> Row:
    """The row with the `number`th key that goes to a lane."""
    keys = [key for key in range(50) if plan.lane_of(plan.fold_key((key, None, None, 0))) == lane]
    return keys[number], None, None, 0


def given(dispatcher: Dispatcher) -> list[list[tuple[ChangeId, list[ChangeId]]]]:
    """By lane, the id of each item and those that it waits for."""
    return [
        [(item[0].id, [event for event, _ in item[3]]) for item in items]
        for items in dispatcher.take_queued()
    ]


@pytest.mark.parametrize("passed", list(product(PASSED, PASSED)))
@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize("shape", ["insert", "update", "delete", "move"])
def test_a_change_within_a_lane(passed: tuple[int, int], lane: int, shape: str) -> None:
    dispatcher, plan = dispatched(passed)
    row, other = row_in(plan, lane), row_in(plan, lane, 1)
    images = {"insert": (None, row), "update": (row, row), "delete": (row, None), "move": (row, other)}
    dispatcher.dispatch(plan, [RowChange((AT, 0), *images[shape])])
    expected: list[list[tuple[ChangeId, list[ChangeId]]]] = [[], []]
    if passed[lane] < AT:
        expected[lane] = [((AT, 0), [])]
    assert given(dispatcher) == expected


@pytest.mark.parametrize("passed", list(product(PASSED, PASSED)))
def test_the_halves_of_a_key_move_between_lanes(passed: tuple[int, int]) -> None:
    dispatcher, plan = dispatched(passed)
    dispatcher.dispatch(plan, [RowChange((AT, 0), row_in(plan, 0), row_in(plan, 1))])
    first, second = passed[0] < AT, passed[1] < AT
    assert given(dispatcher) == [
        [((AT, 0), [])] if first else [],
        [((AT, 1), [(AT, 0)] if first else [])] if second else [],
    ]


def test_a_change_without_a_row_is_refused() -> None:
    """Its key would be that of no row, and its lane any."""
    dispatcher, plan = dispatched((0, 0))
    with pytest.raises(ValueError, match="has neither before nor after image"):
        dispatcher.dispatch(plan, [RowChange((AT, 0), None, None)])
