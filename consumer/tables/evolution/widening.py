"""The changes of a column's type that keep every value, and the type that holds the values of two. Without
I/O.

Only changes known to keep values are called lossless. Any other change just costs a copy of the table.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from consumer.targets.checks.column_fit import can_hold_all_values, get_int_range, has_room, keeps_signs
from schemas.table.charsets import choose_text_limit, compute_text_bytes, keeps_characters
from schemas.table.model import ColumnType, Kind, TextOf

_CHARACTERS = (Kind.CHAR, Kind.VARCHAR)
_TEXT = (*_CHARACTERS, Kind.TEXT)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB)
_LABELS = (Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER)
_FRACTIONS = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)


def is_lossless(old: ColumnType, new: ColumnType) -> bool:
    """Return whether a source that changes a column from `old` to `new` keeps each of its values.

    A target that converts them in the same way then has the source's values. The collation is not part
    of a value.
    """
    if replace(old, collation=None) == replace(new, collation=None):
        return True
    if old.text_of is not new.text_of:  # PostgreSQL's text of an inet has a netmask
        return False
    if old.text_of is TextOf.VECTOR and old.precision != new.precision:  # MariaDB adds zeros to the values
        return False
    rule = _RULES.get((old.kind, new.kind))
    return rule is not None and rule(old, new) and keeps_characters(old, new)


def join_types(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the narrowest type known here that holds all values of both; None if no related type does."""
    if can_hold_all_values(one, other):
        return other
    if can_hold_all_values(other, one):
        return one
    for kinds, joined in _JOINS:
        if one.kind in kinds and other.kind in kinds:
            found = joined(one, other)
            return (
                found
                if found is not None and can_hold_all_values(one, found) and can_hold_all_values(other, found)
                else None
            )
    return None


# --- lossless


def _holds_range(old: ColumnType, new: ColumnType) -> bool:
    (low, high), (lowest, highest) = get_int_range(old), get_int_range(new)
    return lowest <= low and high <= highest


def _holds_digits(old: ColumnType, new: ColumnType) -> bool:
    """Return whether a DECIMAL or integer fits into the DECIMAL."""
    return has_room(old, new)


def _holds_years(_old: ColumnType, new: ColumnType) -> bool:
    return get_int_range(new)[1] >= 2155


def _is_long_enough(old: ColumnType, new: ColumnType) -> bool:
    return old.length <= new.length


def _has_room_for_bytes(old: ColumnType, new: ColumnType) -> bool:
    return compute_text_bytes(old, new) <= new.length


def _is_fine_enough(old: ColumnType, new: ColumnType) -> bool:
    return old.fsp <= new.fsp


def _has_labels_appended(old: ColumnType, new: ColumnType) -> bool:
    return new.members[: len(old.members)] == old.members


def _accept_always(_old: ColumnType, _new: ColumnType) -> bool:
    return True


#: (old kind, new kind) → the condition. BIT, BINARY, FLOAT, YEAR and others are missing where a server
#: pads, rounds or rewrites.
_RULES: dict[tuple[Kind, Kind], Callable[[ColumnType, ColumnType], bool]] = {
    (Kind.INT, Kind.INT): _holds_range,
    (Kind.INT, Kind.DECIMAL): _holds_digits,
    (Kind.DECIMAL, Kind.DECIMAL): _holds_digits,
    (Kind.YEAR, Kind.INT): _holds_years,
    (Kind.FLOAT, Kind.FLOAT): keeps_signs,
    (Kind.DOUBLE, Kind.DOUBLE): keeps_signs,
    (Kind.CHAR, Kind.CHAR): _is_long_enough,
    (Kind.CHAR, Kind.VARCHAR): _is_long_enough,
    (Kind.VARCHAR, Kind.VARCHAR): _is_long_enough,
    (Kind.CHAR, Kind.TEXT): _has_room_for_bytes,
    (Kind.VARCHAR, Kind.TEXT): _has_room_for_bytes,
    (Kind.TEXT, Kind.TEXT): _has_room_for_bytes,
    (Kind.VARBINARY, Kind.VARBINARY): _is_long_enough,
    (Kind.VARBINARY, Kind.BLOB): _is_long_enough,
    (Kind.BLOB, Kind.BLOB): _is_long_enough,
    **{(kind, kind): _is_fine_enough for kind in _FRACTIONS},
    **{(kind, kind): _has_labels_appended for kind in _LABELS},
    (Kind.GEOMETRY, Kind.GEOMETRY): _accept_always,
}


# --- join


def _join_int(one: ColumnType, other: ColumnType) -> ColumnType | None:
    low = min(get_int_range(one)[0], get_int_range(other)[0])
    high = max(get_int_range(one)[1], get_int_range(other)[1])
    for bits in (8, 16, 24, 32, 64):
        found = ColumnType(kind=Kind.INT, bits=bits)
        if get_int_range(found)[0] <= low and high <= get_int_range(found)[1]:
            return found
    return ColumnType(kind=Kind.DECIMAL, precision=20)


def _join_decimal(one: ColumnType, other: ColumnType) -> ColumnType | None:
    if any(each.kind is Kind.DECIMAL and not each.precision for each in (one, other)):
        return ColumnType(kind=Kind.DECIMAL)
    sizes = [_as_decimal(each) for each in (one, other)]
    scale = max(scale for _, scale in sizes)
    precision = max(whole for whole, _ in sizes) + scale
    if precision > 65 or scale > 30:
        return None
    unsigned = all(each.unsigned for each in (one, other))
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale, unsigned=unsigned)


def _as_decimal(type_: ColumnType) -> tuple[int, int]:
    """Return (digits before the decimal point, digits after it)."""
    if type_.kind is Kind.INT:
        return len(str(max(map(abs, get_int_range(type_))))), 0
    return type_.precision - type_.scale, type_.scale


def _join_text(one: ColumnType, other: ColumnType) -> ColumnType | None:
    charset, collation = one.charset, one.collation
    if not keeps_characters(other, one):
        charset, collation = (
            (other.charset, other.collation) if keeps_characters(one, other) else ("utf8mb4", "utf8mb4_bin")
        )
    if Kind.TEXT not in (one.kind, other.kind):
        length = max(one.length, other.length)
        return ColumnType(kind=Kind.VARCHAR, length=length, charset=charset, collation=collation)
    wide = ColumnType(kind=Kind.TEXT, charset=charset, collation=collation)
    return replace(
        wide, length=choose_text_limit(max(compute_text_bytes(each, wide) for each in (one, other)))
    )


def _join_bytes(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Join both as VARBINARY or BLOB, because BINARY pads."""
    length = max(one.length, other.length)
    if Kind.BLOB in (one.kind, other.kind):
        return ColumnType(kind=Kind.BLOB, length=choose_text_limit(length))
    return ColumnType(kind=Kind.VARBINARY, length=length)


def _join_fraction(one: ColumnType, other: ColumnType) -> ColumnType | None:
    return one if one.kind is other.kind and one.fsp >= other.fsp else None


def _join_labels(one: ColumnType, other: ColumnType) -> ColumnType | None:
    if one.kind is not other.kind:
        return None
    more = tuple(each for each in other.members if each not in one.members)
    wide = one if keeps_characters(other, one) else replace(one, charset="utf8mb4", collation="utf8mb4_bin")
    return replace(wide, members=one.members + more)


_JOINS: tuple[tuple[tuple[Kind, ...], Callable[[ColumnType, ColumnType], ColumnType | None]], ...] = (
    ((Kind.INT,), _join_int),
    ((Kind.INT, Kind.DECIMAL), _join_decimal),
    (_TEXT, _join_text),
    (_BYTES, _join_bytes),
    (_FRACTIONS, _join_fraction),
    (_LABELS, _join_labels),
)
