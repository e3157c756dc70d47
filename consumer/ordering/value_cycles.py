"""Finds quarantined keys that wait for each other's unique values. Without I/O.

Two keys that are to swap a unique value are each refused for the row of the other: neither recovers alone,
but both do if one transaction deletes both rows and inserts both new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumer.ordering.fold import make_index_fold
from consumer.ordering.model import ChangeId, TargetTable
from consumer.ordering.recovery import HeldKey
from schemas.table.model import Row

HeldRows = Callable[[HeldKey], tuple[Row | None, Row | None]]
"""A quarantined key → (the row that the target has of it as far as its entries show, its final row)."""
UniqueValue = tuple[str, bytes]
"""(name of a unique index, folded value)."""


def find_waiting_cycle(
    key: HeldKey, keys: Sequence[HeldKey], target: TargetTable, get_rows: HeldRows
) -> list[HeldKey]:
    """Return `key` with all keys that must give up a value before it, if it is one of them; otherwise [].

    `keys`: the quarantined keys of the table. The entries only show which keys are worth a trial in one
    transaction; the target decides.
    """
    folds = [(index.name, make_index_fold(target.table, index)) for index in target.table.unique]

    def list_values(row: Row | None) -> list[UniqueValue]:
        folded = [] if row is None else [(name, fold(row)) for name, fold in folds]
        return [(name, value) for name, value in folded if value is not None]

    rows = {each.place: get_rows(each) for each in keys}
    holders = {value: each for each in keys for value in list_values(rows[each.place][0])}
    found: dict[ChangeId, HeldKey] = {}
    waiting = [key]
    while waiting:
        each = waiting.pop()
        for value in list_values(rows[each.place][1]):
            holder = holders.get(value, each)
            if holder.place not in (each.place, *found):
                found[holder.place] = holder
                waiting.append(holder)
    return sorted(found.values(), key=lambda each: each.place) if key.place in found else []
