"""The net change of a gathered stretch of row changes (design.md §6 Lane; findings 10, 18 and 19).

By exact key, never by folded key: under a case-insensitive index "A" → "a" is a delete and an insert, and because all
deletes are applied before all inserts the delete of "A" cannot hit the new "a".

| changes of a key in the gather, in order | net |
|---|---|
| only updates; first before-image and last after-image agree in all unique values | update in place |
| the first one is a snapshot's row, the others are updates; it and the last after-image agree in all unique values | write in place, whatever the target has of the key |
| the last one leaves a row, anything else | replace (delete, then insert) |
| the last one leaves no row | delete |

A snapshot's row whose unique values change behind it is replaced, as it would be in a gather of its own: values that one row hands to another in the
gather are free only so.

Keys are equal here as they are to every SQL server: -0.0 and 0.0 are one key. So an update from one to the other is written in place, and the target
writes the columns of the key as well (NetChange).

An insert of a log is a new row, also where the target has one of its key: that one was another row, and nothing of it stays. Would it be
written in place, a DELETE and INSERT of a key would come to another row in one gather than in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any

from consumer.ordering.model import EveryChange, NetChange, ReducedChanges, RowChange, TargetTable
from schemas.table.model import Row


def make_getter(at: tuple[int, ...]) -> Callable[[Row], Any]:
    """Return a function from a row to the values at the ordinals `at`: a scalar for one, a tuple otherwise."""
    return itemgetter(*at) if at else lambda _row: ()


class NetChangeReducer:
    """`net_change` for one table, with what depends on the table only computed once."""

    __slots__ = ("_fixed", "_key", "_table")

    def __init__(self, table: TargetTable) -> None:
        self._table = table
        self._key = make_getter(table.key_at)
        self._fixed = make_getter(tuple(sorted({at for index in table.unique_at for at in index})))

    def reduce(self, changes: Iterable[RowChange]) -> NetChange:
        """Reduce `changes` (event order) to their net effect."""
        key_of = self._key
        last: dict[Any, Row | None] = {}  # key → the row it is left with
        first: dict[Any, Row] = {}  # key → first before-image, of keys that were only updated so far
        read: dict[Any, Row] = {}  # key → what a snapshot read of it, of keys that were only updated since
        for change in changes:
            before, after = change.before, change.after
            if before is not None:
                key = key_of(before)
                if after is not None and key == key_of(after):
                    if key not in last:
                        first[key] = before
                    last[key] = after
                    continue
                last[key] = None
                first.pop(key, None)
                read.pop(key, None)
            if after is not None:
                key = key_of(after)
                if change.snapshot:
                    if key not in last:
                        read[key] = after
                else:
                    first.pop(key, None)
                    read.pop(key, None)
                last[key] = after
        return self._build_net_change(last, first, read)

    def _build_net_change(
        self, last: dict[Any, Row | None], first: dict[Any, Row], read: dict[Any, Row]
    ) -> NetChange:
        net = NetChange(self._table)
        single, fixed = len(self._table.key_at) == 1, self._fixed
        for key in sort_keys(last):
            row = last[key]
            if row is None:
                net.deletes.append((key,) if single else key)
            elif key in read and (row is read[key] or fixed(read[key]) == fixed(row)):
                net.snapshot.append(row)
            elif key in first and fixed(first[key]) == fixed(row):
                net.updates.append(row)
            else:
                net.replaces.append(row)
        return net


class EveryChangeReducer:
    """The reducer of a table that is written as events: whoever reads them gets each, in event order."""

    __slots__ = ("_table",)

    def __init__(self, table: TargetTable) -> None:
        self._table = table

    def reduce(self, changes: Iterable[RowChange]) -> EveryChange:
        """Keep all `changes` (event order)."""
        return EveryChange(self._table, list(changes))


def make_reducer(table: TargetTable) -> NetChangeReducer | EveryChangeReducer:
    """Return what makes of changes what is written of `table`: the one place that chooses."""
    return NetChangeReducer(table) if table.topic is None else EveryChangeReducer(table)


def may_be_anew(net: ReducedChanges) -> bool:
    """Tell whether `anew` makes another change of it that loses nothing."""
    return isinstance(net, NetChange) and bool(net.snapshot) and not net.table.more


def replace_snapshot_rows(net: ReducedChanges) -> ReducedChanges:
    """Return the same change where a snapshot's rows replace those of their keys: a unique value may then pass from one row to another.

    Not where the table has columns that rowlock does not write: they would get their defaults.
    """
    if not isinstance(net, NetChange) or not may_be_anew(net):
        return net
    at = net.table.key_at
    rows = {tuple(row[i] for i in at): row for row in (*net.replaces, *net.snapshot)}
    return replace(net, replaces=[rows[key] for key in sort_keys(rows)], snapshot=[])


def sort_keys(keys: Iterable[Any]) -> list[Any]:
    """Sort keys in one order for all lanes: neighbours locked in different orders deadlock in the database."""
    try:
        return sorted(keys)
    except (
        TypeError
    ):  # integers beyond 2^53 are strings, so one column may hold both; a routing key may be NULL
        return sorted(keys, key=_build_mixed_sort_key)


def _build_mixed_sort_key(key: Any) -> list[tuple[bool, bool, Any]]:
    return [
        (part is not None, isinstance(part, str), part)
        for part in (key if isinstance(key, tuple) else (key,))
    ]


def compute_net_change(table: TargetTable, changes: Iterable[RowChange]) -> NetChange:
    """Reduce `changes` of one table (in event order) to their net effect; lists sorted by key."""
    return NetChangeReducer(table).reduce(changes)
