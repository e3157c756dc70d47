"""Distributes row changes to lanes, with the tickets that order them across lanes.

Create one `Dispatcher` for each attempt and call `plan_table(target)` once for each table. Then, for
each chunk of a few hundred accepted events, call `dispatch(plan, changes)` in offset order and
`take_queued()` for the items of each lane.

An event takes one ticket for each distinct (unique index, folded value) that it gives or takes, in its
before and after image, in the order of event ids. An update that keeps an index's values takes none for
it, if the source keeps them unique as well (docs/adr/0009-tickets-where-values-change-hands.md). The key
needs no ticket: equal folded keys go to one lane. An update that moves the key is split into (offset, 0),
the delete in the old key's lane, and (offset, 1), the insert in the new key's lane, which always waits for
part 0. If both go to one lane, it is one item and never divided, so that no progress can be between its
halves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from consumer.ordering.fold import (
    IndexFold,
    get_part_collation,
    is_integer_key,
    make_index_fold,
    make_key_fold,
    make_key_values_fold,
)
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, RowChange, TargetTable
from consumer.ordering.netchange import make_getter, make_reducer
from consumer.ordering.tickets import Ticket, TicketTable, ValueHolders
from schemas.table.model import Key, Row, Table, UniqueIndex


class TableKeys:
    """A target table's key, its fold, and the net change by key, for batches; computed once."""

    __slots__ = ("fold_key", "fold_values", "has_integer_key", "key_of", "name", "reducer", "target")

    def __init__(self, target: TargetTable) -> None:
        self.target = target
        self.name = f"{target.schema}.{target.name}"
        self.key_of: Callable[[Row], Any] = make_getter(target.key_at)
        self.fold_key: Callable[[Row], bytes] = make_key_fold(target.table)
        self.fold_values: Callable[[Any], bytes] = make_key_values_fold(target.table)
        """What `key_of` returns → the same as `fold_key` of the row."""
        self.has_integer_key = is_integer_key(target.table)
        self.reducer = make_reducer(target)

    def build_key(self, row: Row) -> Key:
        """Return the exact key of a row."""
        return tuple(row[at] for at in self.target.key_at)


class TablePlan(TableKeys):
    """A target table's keys, lane hash and indexes for dispatch and lanes, computed once."""

    __slots__ = ("indexes", "lane_of")

    def __init__(
        self, target: TargetTable, layout: Layout, tickets: TicketTable, source: Table | None
    ) -> None:
        super().__init__(target)
        self.lane_of: Callable[[bytes], int] = layout.make_lane_hash(self.name)
        self.indexes: list[_Index] = []
        for index, at in zip(target.table.unique, target.unique_at, strict=True):
            holders = tickets.get_holders(self.name, index.name)
            fold = make_index_fold(target.table, index)
            self.indexes.append(
                (
                    holders,
                    make_getter(at),
                    fold,
                    _is_unique_at_source(target.table, index, source or target.table),
                )
            )


def _is_unique_at_source(target: Table, index: UniqueIndex, source: Table) -> bool:
    """Return whether the source itself keeps the values of the target's `index` unique, compared as the
    target does.

    If one side compares exactly, it distinguishes all values that the other distinguishes.
    """
    parts = _list_index_parts(target, index)
    either = parts | {
        (column, prefix, _get_source_collation(source, column)) for column, prefix, by in parts if not by
    }
    return index.nulls_distinct and any(
        _list_index_parts(source, known) <= either for known in (source.key, *source.unique)
    )


def _get_source_collation(source: Table, column: str) -> str | None:
    return source.get_column(column).type.collation if column in source.column_names else None


def _list_index_parts(table: Table, index: UniqueIndex) -> set[tuple[str, int | None, str | None]]:
    return {(part.column, part.prefix, get_part_collation(table, part) or None) for part in index.parts}


_Index = tuple[ValueHolders, Callable[[Row], Any], IndexFold, bool]
"""(the index's tickets, getter of the exact values, fold, whether it is unique at the source as well)."""
LaneItem = tuple[RowChange, TablePlan, bytes, tuple[Ticket, ...]]
"""An item of a lane: (change, plan, folded key, tickets to wait for)."""


class Dispatcher:
    """Distributes changes to lanes.

    A lane's changes that it has passed already, by its progress row, are dropped.
    """

    def __init__(self, layout: Layout, tickets: TicketTable, lanes: Sequence[LaneProgress]) -> None:
        """`lanes`: the progress rows read at the begin of the attempt, one for each lane of `layout`."""
        self.layout = layout
        self._tickets = tickets
        self._passed = [row.offset for row in sorted(lanes, key=lambda row: row.lane)]
        self._apart = max(self._passed)  # no lane has passed anything above it
        self._queues: list[list[LaneItem]] = [[] for _ in range(layout.lanes)]
        self.waiting = 0
        """Number of items that another lane's commit had to precede when they were queued."""

    def plan_table(self, target: TargetTable, source: Table | None = None) -> TablePlan:
        """Return the plan of a table. Call it once: after a barrier there are another dispatcher and
        other tickets.

        `source`: the source's table with the target's column names; it shows which values the source
        keeps unique.
        """
        return TablePlan(target, self.layout, self._tickets, source)

    def dispatch(self, plan: TablePlan, changes: Iterable[RowChange]) -> None:
        """Queue `changes` of a table (in offset order, ids (offset, 0)) to their lanes.

        Registers tickets, so the caller holds the mutex of the tickets.
        """
        self._tickets.forget_free_values()
        queues, passed, apart = self._queues, self._passed, self._apart
        fold_key, key_of, lane_of, indexes = plan.fold_key, plan.key_of, plan.lane_of, plan.indexes
        for change in changes:
            before, after = change.before, change.after
            if before is None:
                key = fold_key(after or get_image(change))
            else:
                key = fold_key(before)
                if after is not None and key_of(before) != key_of(after):
                    self._queue_key_move(plan, change, key)
                    continue
            lane = lane_of(key)
            event = change.id
            if event[0] <= apart and event[0] <= passed[lane]:
                continue
            waits = self._register_tickets(plan, (event, lane), before, after) if indexes else ()
            queues[lane].append((change, plan, key, waits))

    def take_queued(self) -> list[list[LaneItem]]:
        """Return the items queued since the last call, a list for each lane, and forget them."""
        queues = self._queues
        self._queues = [[] for _ in queues]
        return queues

    def _register_tickets(
        self, plan: TablePlan, ticket: Ticket, before: Row | None, after: Row | None
    ) -> tuple[Ticket, ...]:
        """Register `ticket` for every unique value that the event gives or takes; return the tickets it
        must wait for.
        """
        register = self._tickets.register
        waits: tuple[Ticket, ...] = ()
        for holders, values, fold, one_holder in plan.indexes:
            same = before is not None and after is not None and values(before) == values(after)
            if same and one_holder:
                continue
            old = None if before is None else fold(before)
            if old is not None:
                wait = register(holders, old, ticket)
                if wait is not None:
                    waits += (wait,)
            if after is None or same:
                continue
            new = fold(after)
            if new is not None and new != old:
                wait = register(holders, new, ticket)
                if wait is not None:
                    waits += (wait,)
        if waits:
            self.waiting += 1
        return waits

    def _queue_key_move(self, plan: TablePlan, change: RowChange, old: bytes) -> None:
        """Queue an update that moves the key: one item in one lane, or two parts in two lanes; the
        second part waits.
        """
        first, second = split_key_move(change)
        offset = change.id[0]
        new = plan.fold_key(get_image(second))
        source, target = plan.lane_of(old), plan.lane_of(new)
        if source == target:
            if offset > self._passed[source]:
                waits = self._register_tickets(plan, (change.id, source), change.before, change.after)
                self._queues[source].append((change, plan, old, waits))
            return
        order: tuple[Ticket, ...] = ()
        if offset > self._passed[source]:
            order = ((first.id, source),)
            waits = self._register_tickets(plan, order[0], first.before, None)
            self._queues[source].append((first, plan, old, waits))
        if offset > self._passed[target]:
            waits = self._register_tickets(plan, (second.id, target), None, second.after)
            self._queues[target].append((second, plan, new, waits + order))
            self.waiting += bool(order and not waits)


def get_image(change: RowChange) -> Row:
    """Return the row that identifies a change. Raises ValueError for a change without images."""
    row = change.after if change.before is None else change.before
    if row is None:
        raise ValueError(f"event {change.id} has neither before nor after image")
    return row


def split_key_move(change: RowChange) -> tuple[RowChange, RowChange]:
    """Return the two parts of an update that moves the key: (offset, 0) delete, (offset, 1) insert.

    `refused` applies to the new row only; the old row is deleted in any case.
    """
    offset = change.id[0]
    return (
        replace(change, id=(offset, 0), after=None, refused=None),
        replace(change, id=(offset, 1), before=None),
    )
