"""Tell whether a real target column holds every value of a source column. Pure."""

from __future__ import annotations

from collections.abc import Callable

from schemas.table.model import ColumnType, Kind
from schemas.table.typemap import WIDEST_DECIMAL

_TEXT = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)
_BINARY = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB)

#: Source kind → kinds of the target that take its values at all.
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
    Kind.ENUM: (*_TEXT, Kind.ENUM),
    Kind.SET: (*_TEXT, Kind.SET),
    Kind.GEOMETRY: (Kind.GEOMETRY, Kind.BLOB),
}


def takes(source: ColumnType, real: ColumnType) -> bool:
    """Tell whether values of `source` can be written into a column of type `real` at all."""
    return real.kind in _KINDS[source.kind]


def holds(source: ColumnType, real: ColumnType) -> bool:
    """Tell whether `real`, which takes `source`, has room for all its values. A length of 0 means no limit."""
    check = _ROOM.get(real.kind)
    return check is None or check(source, real)


def int_range(type_: ColumnType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    if type_.unsigned:
        return 0, 2**type_.bits - 1
    return -(2 ** (type_.bits - 1)), 2 ** (type_.bits - 1) - 1


def _int_room(source: ColumnType, real: ColumnType) -> bool:
    low, high = int_range(source) if source.kind is Kind.INT else (0, 2155)  # YEAR
    real_low, real_high = int_range(real)
    return real_low <= low and high <= real_high


def _decimal_room(source: ColumnType, real: ColumnType) -> bool:
    if not real.precision:
        return True
    if source.kind is Kind.DECIMAL and not source.precision:
        return (real.precision, real.scale) == WIDEST_DECIMAL
    whole, scale = source.precision - source.scale, source.scale
    if source.kind is Kind.INT:
        whole, scale = len(str(max(map(abs, int_range(source))))), 0
    elif source.kind is Kind.YEAR:
        whole, scale = 4, 0
    signed = source.unsigned or not real.unsigned
    return real.precision - real.scale >= whole and real.scale >= scale and signed


def _length_room(source: ColumnType, real: ColumnType) -> bool:
    longest = max((len(member) for member in source.members), default=source.length)
    if source.kind is Kind.SET:
        longest = len(",".join(source.members))
    return not real.length or longest <= real.length


def _fraction_room(source: ColumnType, real: ColumnType) -> bool:
    return source.fsp <= real.fsp


def _same_members(source: ColumnType, real: ColumnType) -> bool:
    return set(source.members) <= set(real.members)


def _same_length(source: ColumnType, real: ColumnType) -> bool:
    return real.length in (0, source.length)


_ROOM: dict[Kind, Callable[[ColumnType, ColumnType], bool]] = {
    Kind.INT: _int_room,
    Kind.DECIMAL: _decimal_room,
    Kind.BIT: _same_length,
    **dict.fromkeys((*_TEXT, *_BINARY), _length_room),
    **dict.fromkeys((Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), _fraction_room),
    **dict.fromkeys((Kind.ENUM, Kind.SET), _same_members),
}
