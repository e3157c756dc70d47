"""The paper's scenario, word for word: `sync_table(id int primary key, name varchar(11) unique, age int)`.

insert (1,lucy,18), delete (1,lucy,18), insert (2,lucy,20). Rows 1 and 2 go to two lanes; the deletes and the
insert are three transactions, which two lanes can interleave in three ways. A script, not time, decides
which.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace as altered

from consumer.attempt.drivers.batches import SingleThreadSignals
from consumer.attempt.drivers.threads import carry_out_operation
from consumer.attempt.effects import Await, Effect, Machine, StartLanes, Transact
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.operations import WriteChanges
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import ChangeId, LaneProgress, RowChange, TargetTable
from consumer.ordering.tickets import Ticket, TicketTable, ValueHolders
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import ZERO
from tests.stands.fake_target import FakeTarget

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


class Unlocked(TicketTable):
    """No lane ever waits."""

    def register(self, holders: ValueHolders, value: bytes, ticket: Ticket) -> None:
        super().register(holders, value, ticket)


class Script:
    """A driver that lets the lanes' transactions happen in the order of `order`; an event whose lane waits is
    passed over."""

    def __init__(self, order: list[ChangeId], target: FakeTarget) -> None:
        self.left = list(order)
        self.done: list[ChangeId] = []
        self.target = target
        self.lanes: list[Machine[None]] = []
        self.effects: dict[int, Effect[Any] | None] = {}

    def run(self, machine: Machine[None]) -> None:
        for effect in machine:
            if isinstance(effect, StartLanes):
                self.lanes = [effect.lanes.run_lane(number) for number in range(effect.lanes.count)]
                self.effects = {number: next(lane) for number, lane in enumerate(self.lanes)}
            elif isinstance(effect, Await):
                while not effect.ready():
                    self._transaction()

    def _transaction(self) -> None:
        """Let every lane go on to its next transaction, or until it must wait; then let one of these
        happen."""
        moved = True
        while moved:
            moved = False
            for number, effect in self.effects.items():
                if isinstance(effect, Await) and effect.ready():
                    self.effects[number] = next(self.lanes[number], None)
                    moved = True
        at = {
            event: number
            for number, effect in self.effects.items()
            if isinstance(effect, Transact) and (event := _event(effect)) in self.left
        }
        if not at:
            return
        event = next(event for event in self.left if event in at)
        number = at[event]
        self._commit(self.effects[number])
        self.left.remove(event)
        self.done.append(event)
        self.effects[number] = next(self.lanes[number], None)

    def _commit(self, effect: Effect[Any] | None) -> None:
        assert isinstance(effect, Transact)
        with self.target.session().begin_transaction(None, []) as transaction:  # type: ignore[arg-type]
            for operation in effect.operations:
                carry_out_operation(transaction, operation, effect.displaced)  # type: ignore[arg-type]


def _event(effect: Transact) -> ChangeId:
    """Return the event of a transaction; its lane gathers one at a time."""
    (event,) = (row for row in effect.guards)
    return (event.offset, 0)


def _lanes(layout: Layout) -> Iterator[tuple[ChangeId, int]]:
    plan = Dispatcher(layout, TicketTable(layout.lanes), _progress(layout)).plan_table(TABLE)
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
LANE_OF: dict[ChangeId, int] = dict(_lanes(LAYOUT))


def _play(order: list[ChangeId], locks: TicketTable) -> tuple[list[Row], list[ChangeId]]:
    """Run the scenario by script, row at a time and with the paper's statements; return the rows and the real
    order."""
    target = FakeTarget()
    script = Script(order, target)

    def commit(lane: int, batch: LaneBatch) -> Machine[None]:
        first = LaneProgress(lane, 1, 1, "id", batch.events[0][0], ZERO, 0, "")
        how = "the paper: delete by primary key and by each unique key, then insert"
        yield Transact(lane, [first], [WriteChanges(net, how) for net in batch.nets])

    dispatcher = Dispatcher(LAYOUT, locks, _progress(LAYOUT))
    plan = dispatcher.plan_table(TABLE)
    group = LaneGroup(
        dispatcher, locks, commit, limits=LaneLimits(max_gather=1), signals=SingleThreadSignals()
    )

    def work() -> Machine[None]:
        yield from group.start()
        changes = [altered(change, position=(0, 1, change.id[0], 0), gen=1) for change in CHANGES]
        yield from group.submit_changes(plan, changes)
        yield from group.drain((2, (0, 1, 2, 0), 1, 0))

    script.run(work())
    return sorted(target.state.rows["public.sync_table"].values()), script.done


@pytest.mark.parametrize("order", INTERLEAVINGS.values(), ids=INTERLEAVINGS)
def test_with_locks_every_interleaving_ends_with_lucy_20(order: list[ChangeId]) -> None:
    rows, done = _play(order, TicketTable(2))
    assert rows == [LUCY_2]
    assert done == [(0, 0), (1, 0), (2, 0)]  # whatever the script asked for, the ticket made lane 2 wait


def test_without_locks_the_third_interleaving_ends_wrong() -> None:
    results = {name: _play(order, Unlocked(2)) for name, order in INTERLEAVINGS.items()}
    assert [done for _rows, done in results.values()] == list(INTERLEAVINGS.values())
    assert [rows for rows, _done in results.values()] == [[LUCY_2], [LUCY_2], []]
