"""Columns of a target table in which the server would silently change a value. Rows with such a value
are refused.

Without I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from consumer.errors import RefusedError
from consumer.ordering.model import LossKind, LossyColumn, NetChange, ReducedChanges
from consumer.targets.checks.column_fit import find_value_loss
from schemas.table.model import Table

MOST_BYTES = 4
"""Largest number of bytes of a character."""


def find_lossy_columns(expected: Table, real: Table) -> tuple[LossyColumn, ...]:
    """Return the columns of `expected` in which the real table may change values.

    Only their values are checked in rows.
    """
    there = {column.name: column.type for column in real.columns}
    return tuple(
        LossyColumn(at, column.name, *lost)
        for at, column in enumerate(expected.columns)
        if column.name in there and (lost := find_value_loss(column.type, there[column.name])) is not None
    )


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
    if len(value) * MOST_BYTES <= room:
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
    "digits": "has {} digits after the decimal point, and the value has more, which its server would round",
    "characters": "has room for {} characters, and the value has spaces after them, which its server would drop",
    "bytes": "has room for {} bytes, and the value has spaces after them, which its server would drop",
    "spaces": "is a CHAR, and the value has spaces at its end, which its server would drop",
    "padding": "has {} bytes always, and the value has fewer, which its server would pad with zero bytes",
    "label": (
        "has an empty label, and the target server would store the value, ENUM's error value '', "
        "as that label"
    ),
}
