"""Judges whether a real target column holds every value of a source column, and which values its server would
change without an error. Pure.

Servers refuse a number or a text that is too long for its column, but do not refuse every value that
they cannot store exactly. Tried on MySQL 9.7 and MariaDB 11.4 and, except for the last, on PostgreSQL
18: a DECIMAL and a time are rounded to the column's digits; trailing spaces of a text that do not fit
are dropped, and a CHAR drops all of them; a BINARY is padded with zero bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from consumer.ordering.model import LossKind, LossyColumn
from schemas.table.charsets import (
    LONGEST,
    UNICODE,
    compute_longest_text,
    compute_text_bytes,
    keeps_characters,
)
from schemas.table.model import NUMBERED, ColumnType, Kind, Table, TextOf
from schemas.table.typemap import WIDEST_DECIMAL

_TEXT = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)
_BINARY = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB)

_LOSS: dict[Kind, LossKind] = {
    **dict.fromkeys((Kind.DECIMAL, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), "digits"),
    Kind.CHAR: "spaces",
    Kind.VARCHAR: "characters",
    Kind.TEXT: "bytes",
    Kind.BINARY: "padding",
}
"""Kind of a column → what it loses of a value that does not fit."""

#: Source kind → kinds of the target that accept its values at all.
_KINDS: dict[Kind, tuple[Kind, ...]] = {
    Kind.INT: (Kind.INT, Kind.DECIMAL),
    Kind.DECIMAL: (Kind.DECIMAL,),
    Kind.FLOAT: (Kind.FLOAT, Kind.DOUBLE),
    Kind.DOUBLE: (Kind.DOUBLE,),
    Kind.BIT: (Kind.BIT,),
    Kind.YEAR: (Kind.YEAR, Kind.INT, Kind.DECIMAL),
    **dict.fromkeys(_TEXT, _TEXT),
    **dict.fromkeys(_BINARY, _BINARY),
    Kind.DATE: (Kind.DATE,),
    Kind.TIME: (Kind.TIME,),
    Kind.DATETIME: (Kind.DATETIME,),
    Kind.TIMESTAMP: (Kind.TIMESTAMP,),
    Kind.JSON: (Kind.JSON, Kind.TEXT),
    Kind.ENUM: (*_TEXT, Kind.ENUM, Kind.ENUM_NUMBER),
    Kind.SET: (*_TEXT, Kind.SET, Kind.SET_NUMBER),
    Kind.ENUM_NUMBER: (*_TEXT, Kind.ENUM_NUMBER),
    Kind.SET_NUMBER: (*_TEXT, Kind.SET_NUMBER),
    Kind.GEOMETRY: (Kind.GEOMETRY, Kind.BLOB),
}


def accepts_kind(source: ColumnType, real: ColumnType) -> bool:
    """Return whether values of `source` can be written into a column of type `real` at all."""
    return (
        real.kind in _KINDS[source.kind]
        and not has_shifted_labels(source, real)
        and _keeps_text(source, real)
    )


_INETS = (TextOf.INET4, TextOf.INET6, TextOf.INET)


def _keeps_text(source: ColumnType, real: ColumnType) -> bool:
    """Return whether a column of type `real` keeps the spelling of texts, or is of the type that they are the
    text of. (PostgreSQL's own texts of an inet are no other server's.)
    """
    if TextOf.VECTOR in (source.text_of, real.text_of):
        room = not real.precision or real.precision >= source.precision
        return source.text_of is real.text_of and room
    if TextOf.INET in (source.text_of, real.text_of):
        return real.text_of is TextOf.INET and source.text_of in _INETS
    return real.text_of in (None, source.text_of)


def has_shifted_labels(source: ColumnType, real: ColumnType) -> bool:
    """Return whether numbers of labels of `source` mean other labels in a column of type `real`,
    without an error.
    """
    if source.kind not in NUMBERED.values() or real.kind is not source.kind:
        return False
    shared = min(len(source.members), len(real.members))
    return source.members[:shared] != real.members[:shared]


def has_room(source: ColumnType, real: ColumnType) -> bool:
    """Return whether `real`, which accepts `source`, has room for all its values.

    A length of 0 means no limit.
    """
    check = _ROOM.get(real.kind)
    return check is None or check(source, real)


def can_hold_all_values(source: ColumnType, real: ColumnType) -> bool:
    """Return whether a target column of type `real` stores every value of `source` unchanged."""
    return (
        accepts_kind(source, real)
        and has_room(source, real)
        and keeps_characters(source, real)
        and _as_it_is(source, real)
    )


def keeps_signs(old: ColumnType, new: ColumnType) -> bool:
    """Return whether `new` has negative numbers if `old` has."""
    return old.unsigned or not new.unsigned


def get_int_range(type_: ColumnType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    if type_.unsigned:
        return 0, 2**type_.bits - 1
    return -(2 ** (type_.bits - 1)), 2 ** (type_.bits - 1) - 1


def find_value_loss(source: ColumnType, real: ColumnType) -> tuple[LossKind, int] | None:
    """Return what a column of type `real` may lose of a value of `source` without an error, and for how
    much it has room; None: nothing.
    """
    if real.kind is Kind.ENUM_NUMBER and source.kind is Kind.ENUM and "" not in source.members:
        return "label", 0
    loss = _LOSS.get(real.kind)
    if loss == "digits":
        room, needed = _count_fraction_digits(real), _count_fraction_digits(source)
        return None if room is None or (needed is not None and needed <= room) else (loss, room)
    unlimited = source.kind is Kind.TEXT and not source.length
    if (
        loss is None
        or not (real.length or loss == "spaces")
        or (can_hold_all_values(source, real) and not unlimited)
    ):
        return None
    return loss, real.length


def _count_fraction_digits(type_: ColumnType) -> int | None:
    """Return how many digits values of a type have after the decimal point; None: any number."""
    if type_.kind is Kind.DECIMAL:
        return type_.scale if type_.precision else None
    return type_.fsp


def _as_it_is(source: ColumnType, real: ColumnType) -> bool:
    """Return whether values keep their sign, trailing characters and length.

    CHAR loses trailing spaces, BINARY pads, and TEXT and BLOB count bytes. The length of JSON and
    geometry is unknown.
    """
    if real.kind in (Kind.FLOAT, Kind.DOUBLE):
        return keeps_signs(source, real)
    if real.kind is Kind.CHAR:
        return source.kind in (Kind.CHAR, Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER)
    if real.kind is Kind.BINARY:
        return source.kind is Kind.BINARY and source.length == real.length
    if real.kind not in (Kind.TEXT, Kind.BLOB) or not real.length:
        return True
    if source.kind in (Kind.JSON, Kind.GEOMETRY):
        return real.length >= LONGEST and real.charset in (None, *UNICODE)
    return source.kind in _BINARY or compute_text_bytes(source, real) <= real.length


def _has_int_room(source: ColumnType, real: ColumnType) -> bool:
    low, high = get_int_range(source) if source.kind is Kind.INT else (0, 2155)  # YEAR
    real_low, real_high = get_int_range(real)
    return real_low <= low and high <= real_high


def _has_decimal_room(source: ColumnType, real: ColumnType) -> bool:
    if not real.precision:
        return True
    if source.kind is Kind.DECIMAL and not source.precision:
        return (real.precision, real.scale) == WIDEST_DECIMAL
    whole, scale = source.precision - source.scale, source.scale
    if source.kind is Kind.INT:
        whole, scale = len(str(max(map(abs, get_int_range(source))))), 0
    elif source.kind is Kind.YEAR:
        whole, scale = 4, 0
    signed = source.unsigned or not real.unsigned
    return real.precision - real.scale >= whole and real.scale >= scale and signed


def _has_length_room(source: ColumnType, real: ColumnType) -> bool:
    return not real.length or compute_longest_text(source) <= real.length


def _has_fraction_room(source: ColumnType, real: ColumnType) -> bool:
    return source.fsp <= real.fsp


def _has_same_members(source: ColumnType, real: ColumnType) -> bool:
    return set(source.members) <= set(real.members)


def _has_same_numbers(source: ColumnType, real: ColumnType) -> bool:
    """Return whether labels keep their numbers, or, where the source has text, whether every label exists."""
    if source.kind in NUMBERED:
        return _has_same_members(source, real)
    return real.members[: len(source.members)] == source.members


def _has_same_length(source: ColumnType, real: ColumnType) -> bool:
    return real.length in (0, source.length)


_ROOM: dict[Kind, Callable[[ColumnType, ColumnType], bool]] = {
    Kind.INT: _has_int_room,
    Kind.DECIMAL: _has_decimal_room,
    Kind.BIT: _has_same_length,
    **dict.fromkeys((*_TEXT, *_BINARY), _has_length_room),
    **dict.fromkeys((Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), _has_fraction_room),
    **dict.fromkeys((Kind.ENUM, Kind.SET), _has_same_members),
    **dict.fromkeys((Kind.ENUM_NUMBER, Kind.SET_NUMBER), _has_same_numbers),
}


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
