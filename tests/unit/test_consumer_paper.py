"""The paper's scenario, word for word: `sync_table(id int primary key, name varchar(11) unique, age int)`.

insert (1,lucy,18), delete (1,lucy,18), insert (2,lucy,20). Rows 1 and 2 go to two lanes; the deletes and the insert are
three transactions, which two lanes can interleave in three ways. A script, not time, decides which.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace as altered

from consumer.dispatch import Dispatcher
from consumer.lane_threads import LaneThreads
from consumer.lanes import Batch, Limits
from consumer.layout import Layout
from consumer.locks import Holders, LockTable, Ticket
from consumer.model import EventId, LaneProgress, RowChange, TargetTable
from schemas.position import ZERO
from schemas.table import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from tests.memory_target import MemoryTarget

TABLE = TargetTable(
    Table(
        db="public",
        name="sync_table",
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
            Column(
                name="name", type=ColumnType(kind=Kind.VARCHAR, length=11, collation="utf8mb4_general_ci")
            ),
            Column(name="age", type=ColumnType(kind=Kind.INT, bits=32)),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        unique=(UniqueIndex(name="name", parts=(IndexPart(column="name"),)),),
    ),
    (0,),
    ((1,),),
)
LUCY_1: Row = (1, "lucy", 18)
LUCY_2: Row = (2, "lucy", 20)
CHANGES = [RowChange((0, 0), None, LUCY_1), RowChange((1, 0), LUCY_1, None), RowChange((2, 0), None, LUCY_2)]
INTERLEAVINGS = {
    "insert 1, delete 1, insert 2": [(0, 0), (1, 0), (2, 0)],
    "insert 1, insert 2, delete 1": [(0, 0), (2, 0), (1, 0)],
    "insert 2, insert 1, delete 1": [(2, 0), (0, 0), (1, 0)],
}


class Unlocked(LockTable):
    """No lane ever waits."""

    def register(self, holders: Holders, value: bytes, ticket: Ticket) -> None:
        super().register(holders, value, ticket)


class Script:
    """Lets lanes pass "apply" in the order of `order`; an event whose lane waits on a lock is passed over until it can."""

    def __init__(self, order: list[EventId]) -> None:
        self.left = list(order)
        self.done: list[EventId] = []
        self.waiting: set[int] = set()
        self.changed = threading.Condition()

    def turn(self, lane: int, step: str, batch: Batch | None) -> None:
        with self.changed:
            if step == "wait":
                self.waiting.add(lane)
            elif batch is not None and batch.events is not None:
                self.waiting.discard(lane)
                first = batch.events[0]
                if step == "apply":
                    self.changed.wait_for(lambda: self._next(lane) == first, timeout=30)
                    self.done.append(first)
                else:
                    self.left.remove(first)
            self.changed.notify_all()

    def _next(self, lane: int) -> EventId | None:
        """The first event left whose lane does not wait; the caller's lane does not."""
        for event in self.left:
            if LANE_OF[event] == lane or LANE_OF[event] not in self.waiting:
                return event
        return None


def _lanes(layout: Layout) -> Iterator[tuple[EventId, int]]:
    plan = Dispatcher(layout, LockTable(layout.lanes), _progress(layout)).plan(TABLE)
    for change in CHANGES:
        row = change.after or change.before
        assert row is not None
        yield change.id, plan.lane_of(plan.fold_key(row))


def _progress(layout: Layout) -> list[LaneProgress]:
    return [LaneProgress(lane, 1, 1, "id", -1, ZERO, 0, layout.encode()) for lane in range(layout.lanes)]


def _layout_with_two_lanes() -> Layout:
    """Rows 1 and 2 in different lanes: the first seed for which they are."""
    for seed in itertools.count():
        layout = Layout(lanes=2, seed=seed)
        if len(set(dict(_lanes(layout)).values())) == 2:
            return layout
    raise AssertionError


LAYOUT = _layout_with_two_lanes()
LANE_OF: dict[EventId, int] = dict(_lanes(LAYOUT))


def _play(order: list[EventId], locks: LockTable) -> tuple[list[Row], list[EventId]]:
    """Run the scenario by script, row at a time and with the paper's statements; return the rows and the real order."""
    target = MemoryTarget()
    script = Script(order)

    def apply(lane: int, batch: Batch) -> None:
        with target.session().transaction(None, []) as transaction:  # type: ignore[arg-type]
            for net in batch.nets:
                transaction.apply(
                    net, displacing="the paper: delete by primary key and by each unique key, then insert"
                )

    dispatcher = Dispatcher(LAYOUT, locks, _progress(LAYOUT))
    plan = dispatcher.plan(TABLE)
    with LaneThreads(dispatcher, locks, apply, limits=Limits(max_gather=1), scheduler=script) as lanes:
        lanes.submit(plan, [altered(change, position=(0, 1, change.id[0], 0), gen=1) for change in CHANGES])
        lanes.drain((2, (0, 1, 2, 0), 1, 0))
    return sorted(target.rows["sync_table"].values()), script.done


@pytest.mark.parametrize("order", INTERLEAVINGS.values(), ids=INTERLEAVINGS)
def test_with_locks_every_interleaving_ends_with_lucy_20(order: list[EventId]) -> None:
    rows, done = _play(order, LockTable(2))
    assert rows == [LUCY_2]
    assert done == [(0, 0), (1, 0), (2, 0)]  # whatever the script asked for, the ticket made lane 2 wait


def test_without_locks_the_third_interleaving_ends_wrong() -> None:
    results = {name: _play(order, Unlocked(2)) for name, order in INTERLEAVINGS.items()}
    assert [done for _rows, done in results.values()] == list(INTERLEAVINGS.values())
    assert [rows for rows, _done in results.values()] == [[LUCY_2], [LUCY_2], []]
