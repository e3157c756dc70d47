"""Judges which changes of a column's type keep every value, and which type holds two of them. Pure.

Only what is known to keep values is called lossless; whatever else may be so costs a copy of the table and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from consumer.targets.checks.column_fit import fits, holds, int_range, keeps_signs
from schemas.table.charsets import keeps_characters, limit_of, text_bytes
from schemas.table.model import ColumnType, Kind

_CHARACTERS = (Kind.CHAR, Kind.VARCHAR)
_TEXT = (*_CHARACTERS, Kind.TEXT)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB)
_LABELS = (Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER)
_FRACTIONS = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)


def lossless(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a source that changes a column from `old` to `new` keeps each of its values, so that a target that converts
    them too has what the source has. The collation is no part of a value."""
    if replace(old, collation=None) == replace(new, collation=None):
        return True
    rule = _RULES.get((old.kind, new.kind))
    return rule is not None and rule(old, new) and keeps_characters(old, new)


def join(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the narrowest type that holds all values of both, as this module knows it; None: there is none of a related kind."""
    if fits(one, other):
        return other
    if fits(other, one):
        return one
    for kinds, joined in _JOINS:
        if one.kind in kinds and other.kind in kinds:
            found = joined(one, other)
            return found if found is not None and fits(one, found) and fits(other, found) else None
    return None


# --- lossless


def _within(old: ColumnType, new: ColumnType) -> bool:
    (low, high), (lowest, highest) = int_range(old), int_range(new)
    return lowest <= low and high <= highest


def _digits(old: ColumnType, new: ColumnType) -> bool:
    """DECIMAL into DECIMAL, or a whole number into it."""
    return holds(old, new)


def _year(_old: ColumnType, new: ColumnType) -> bool:
    return int_range(new)[1] >= 2155


def _longer(old: ColumnType, new: ColumnType) -> bool:
    return old.length <= new.length


def _room_for_bytes(old: ColumnType, new: ColumnType) -> bool:
    return text_bytes(old, new) <= new.length


def _finer(old: ColumnType, new: ColumnType) -> bool:
    return old.fsp <= new.fsp


def _appended(old: ColumnType, new: ColumnType) -> bool:
    return new.members[: len(old.members)] == old.members


def _always(_old: ColumnType, _new: ColumnType) -> bool:
    return True


#: (old kind, new kind) → what must hold. BIT, BINARY, FLOAT, YEAR and others are missing where a server pads, rounds or rewrites.
_RULES: dict[tuple[Kind, Kind], Callable[[ColumnType, ColumnType], bool]] = {
    (Kind.INT, Kind.INT): _within,
    (Kind.INT, Kind.DECIMAL): _digits,
    (Kind.DECIMAL, Kind.DECIMAL): _digits,
    (Kind.YEAR, Kind.INT): _year,
    (Kind.FLOAT, Kind.FLOAT): keeps_signs,
    (Kind.DOUBLE, Kind.DOUBLE): keeps_signs,
    (Kind.CHAR, Kind.CHAR): _longer,
    (Kind.CHAR, Kind.VARCHAR): _longer,
    (Kind.VARCHAR, Kind.VARCHAR): _longer,
    (Kind.CHAR, Kind.TEXT): _room_for_bytes,
    (Kind.VARCHAR, Kind.TEXT): _room_for_bytes,
    (Kind.TEXT, Kind.TEXT): _room_for_bytes,
    (Kind.VARBINARY, Kind.VARBINARY): _longer,
    (Kind.VARBINARY, Kind.BLOB): _longer,
    (Kind.BLOB, Kind.BLOB): _longer,
    **{(kind, kind): _finer for kind in _FRACTIONS},
    **{(kind, kind): _appended for kind in _LABELS},
    (Kind.GEOMETRY, Kind.GEOMETRY): _always,
}


# --- join


def _joined_int(one: ColumnType, other: ColumnType) -> ColumnType | None:
    low = min(int_range(one)[0], int_range(other)[0])
    high = max(int_range(one)[1], int_range(other)[1])
    for bits in (8, 16, 24, 32, 64):
        found = ColumnType(kind=Kind.INT, bits=bits)
        if int_range(found)[0] <= low and high <= int_range(found)[1]:
            return found
    return ColumnType(kind=Kind.DECIMAL, precision=20)


def _joined_decimal(one: ColumnType, other: ColumnType) -> ColumnType | None:
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
    """Return (digits before the point, behind it)."""
    if type_.kind is Kind.INT:
        return len(str(max(map(abs, int_range(type_))))), 0
    return type_.precision - type_.scale, type_.scale


def _joined_text(one: ColumnType, other: ColumnType) -> ColumnType | None:
    charset, collation = one.charset, one.collation
    if not keeps_characters(other, one):
        charset, collation = (
            (other.charset, other.collation) if keeps_characters(one, other) else ("utf8mb4", "utf8mb4_bin")
        )
    if Kind.TEXT not in (one.kind, other.kind):
        length = max(one.length, other.length)
        return ColumnType(kind=Kind.VARCHAR, length=length, charset=charset, collation=collation)
    wide = ColumnType(kind=Kind.TEXT, charset=charset, collation=collation)
    return replace(wide, length=limit_of(max(text_bytes(each, wide) for each in (one, other))))


def _joined_bytes(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Both as VARBINARY or BLOB: BINARY fills up."""
    length = max(one.length, other.length)
    if Kind.BLOB in (one.kind, other.kind):
        return ColumnType(kind=Kind.BLOB, length=limit_of(length))
    return ColumnType(kind=Kind.VARBINARY, length=length)


def _joined_fraction(one: ColumnType, other: ColumnType) -> ColumnType | None:
    return one if one.kind is other.kind and one.fsp >= other.fsp else None


def _joined_labels(one: ColumnType, other: ColumnType) -> ColumnType | None:
    if one.kind is not other.kind:
        return None
    more = tuple(each for each in other.members if each not in one.members)
    wide = one if keeps_characters(other, one) else replace(one, charset="utf8mb4", collation="utf8mb4_bin")
    return replace(wide, members=one.members + more)


_JOINS: tuple[tuple[tuple[Kind, ...], Callable[[ColumnType, ColumnType], ColumnType | None]], ...] = (
    ((Kind.INT,), _joined_int),
    ((Kind.INT, Kind.DECIMAL), _joined_decimal),
    (_TEXT, _joined_text),
    (_BYTES, _joined_bytes),
    (_FRACTIONS, _joined_fraction),
    (_LABELS, _joined_labels),
)
