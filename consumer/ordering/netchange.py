"""The net change of a batch of row changes.

Changes are reduced by exact key, never by folded key. Under a case-insensitive index "A" → "a" is a
delete and an insert, and because all deletes are applied before all inserts, the delete of "A" cannot
hit the new "a".

| changes of a key in the batch, in order | net |
|---|---|
| only updates; first before-image and last after-image agree in all unique values | update in place |
| first a snapshot's row, then updates; both ends agree in all unique values | write in place |
| the last one leaves a row, anything else | replace (delete, then insert) |
| the last one leaves no row | delete |

A snapshot's row with unique values that change later is replaced, as it would be in a batch of its own:
only so are values free that one row passes to another within the batch.

Keys are compared as every SQL server does: -0.0 and 0.0 are one key. So an update from one to the other
is written in place, and the target writes the columns of the key as well (NetChange).

An insert in the log is a new row, also if the target has a row of its key: that was another row, and
none of its values stay. If it were written in place, a DELETE and INSERT of a key would lead to another
row in one batch than in two.

A value that the server would silently change is refused before it is written (`refuse_losses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from consumer.errors import RefusedError
from consumer.ordering.model import EveryChange, LossKind, NetChange, ReducedChanges, RowChange, TargetTable
from schemas.table.model import Row

_MOST_BYTES = 4
"""Largest number of bytes of a character."""


def make_getter(at: tuple[int, ...]) -> Callable[[Row], Any]:
    """Return a function from a row to the values at the ordinals `at`: a scalar for one, a tuple
    otherwise.
    """
    return itemgetter(*at) if at else lambda _row: ()


class KeyEnds(NamedTuple):
    """The keys of a batch, as `make_getter` returns them, and what its changes leave of each."""

    last: dict[Any, Row | None]
    """Key → its last row; None: it is deleted."""
    first: dict[Any, Row]
    """Key → its first before-image, of keys that were only updated, or read by a snapshot after an update."""
    read: dict[Any, Row]
    """Key → the snapshot's row, of keys that were only updated since."""
    read_again: set[Any]
    """Keys that were read by a snapshot after other changes."""


class NetChangeReducer:
    """Computes the net change of one table. Everything that depends on the table only is computed once."""

    __slots__ = ("_fixed", "_key", "_table")

    def __init__(self, table: TargetTable) -> None:
        self._table = table
        self._key = make_getter(table.key_at)
        self._fixed = make_getter(tuple(sorted({at for index in table.unique_at for at in index})))

    def reduce(self, changes: Iterable[RowChange]) -> NetChange:
        """Reduce `changes` (in event order) to their net effect."""
        return self.build_net_change(self.find_key_ends(changes))

    def find_key_ends(self, changes: Iterable[RowChange]) -> KeyEnds:
        """Return what `changes` (in event order) leave of their keys."""
        key_of = self._key
        last: dict[Any, Row | None] = {}
        first: dict[Any, Row] = {}
        read: dict[Any, Row] = {}
        read_again = set[Any]()
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
                        read_again.add(key)
                else:
                    first.pop(key, None)
                    read.pop(key, None)
                last[key] = after
        return KeyEnds(last, first, read, read_again)

    def build_net_change(self, ends: KeyEnds) -> NetChange:
        """Return the net change of a batch that leaves `ends`."""
        last, first, read, _ = ends
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
    """The reducer of a table that is written as events: every change is kept, in event order."""

    __slots__ = ("_table",)

    def __init__(self, table: TargetTable) -> None:
        self._table = table

    def reduce(self, changes: Iterable[RowChange]) -> EveryChange:
        """Keep all `changes` (in event order)."""
        return EveryChange(self._table, list(changes))


def make_reducer(table: TargetTable) -> NetChangeReducer | EveryChangeReducer:
    """Return the reducer of `table`. This is the only place that chooses one."""
    return NetChangeReducer(table) if table.topic is None else EveryChangeReducer(table)


def may_be_anew(net: ReducedChanges) -> bool:
    """Return whether `replace_snapshot_rows` changes `net` without a loss."""
    return isinstance(net, NetChange) and bool(net.snapshot) and not net.table.more


def replace_snapshot_rows(net: ReducedChanges) -> ReducedChanges:
    """Return the same change with a snapshot's rows as replacements, so that unique values may pass
    between rows.

    Unchanged if the table has columns that rowlock does not write: they would get their defaults.
    """
    if not isinstance(net, NetChange) or not may_be_anew(net):
        return net
    at = net.table.key_at
    rows = {tuple(row[i] for i in at): row for row in (*net.replaces, *net.snapshot)}
    return replace(net, replaces=[rows[key] for key in sort_keys(rows)], snapshot=[])


def sort_keys(keys: Iterable[Any]) -> list[Any]:
    """Sort keys in one order for all lanes.

    Lanes that lock neighbours in different orders deadlock in the database.
    """
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


def refuse_losses(net: ReducedChanges) -> None:
    """Raise RefusedError if the server would silently change a value of `net`."""
    if not isinstance(net, NetChange) or not net.table.lossy:
        return
    for row in net.rows:
        for column in net.table.lossy:
            value = row[column.at]
            if isinstance(value, str) and _LOSES[column.loss](value, column.room):
                where = f"column {column.name} of {net.table.schema}.{net.table.name}"
                raise RefusedError(f"{where} {_LOSS_TEXTS[column.loss].format(column.room)}")


def _loses_fraction(value: str, room: int) -> bool:
    return len(value.partition(".")[2].removesuffix("Z").rstrip("0")) > room


def _loses_spaces(value: str, room: int) -> bool:
    """Return whether only spaces exceed the length; the target itself refuses any other excess."""
    rest = value[room:]
    return bool(rest) and not rest.strip(" ")


def _loses_spaces_by_bytes(value: str, room: int) -> bool:
    if len(value) * _MOST_BYTES <= room:
        return False
    rest = value.encode()[room:]
    return bool(rest) and not rest.strip(b" ")


def _needs_padding(value: str, room: int) -> bool:
    """Return whether `value`, in base64, is shorter than the BINARY column."""
    return len(value) // 4 * 3 - value.count("=") < room


_LOSES: dict[LossKind, Callable[[str, int], bool]] = {
    "digits": _loses_fraction,
    "characters": _loses_spaces,
    "bytes": _loses_spaces_by_bytes,
    "spaces": lambda value, _room: value.endswith(" "),
    "padding": _needs_padding,
    "label": lambda value, _room: not value,
}
_LOSS_TEXTS: dict[LossKind, str] = {
    "digits": (
        "has {} digits after the decimal point, but the value has more, which the target server would round"
    ),
    "characters": (
        "has room for {} characters, but the value has trailing spaces after them, which the target server "
        "would drop"
    ),
    "bytes": (
        "has room for {} bytes, but the value has trailing spaces after them, which the target server "
        "would drop"
    ),
    "spaces": "is a CHAR, but the value has trailing spaces, which the target server would drop",
    "padding": (
        "has a fixed length of {} bytes, but the value is shorter, and the target server would pad with "
        "zero bytes"
    ),
    "label": (
        "has an empty label, and the target server would store the value, ENUM's error value '', "
        "as that label"
    ),
}
