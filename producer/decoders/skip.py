"""Counts rows without decoding: `row` of a position also counts the rows of tables that are not
captured.
"""

from __future__ import annotations

from producer.binlog_format import types as t
from producer.binlog_format.table_map import ColumnMap
from producer.decoders.columns import DECIMAL_BYTES
from producer.decoders.fragments import ColumnFormat, FixedFormat, VariableFormat

_SIZES = {
    t.TINY: 1, t.SHORT: 2, t.INT24: 3, t.LONG: 4, t.LONGLONG: 8, t.FLOAT: 4, t.DOUBLE: 8, t.YEAR: 1,
    t.DATE: 3, t.NEWDATE: 3, t.TIME: 3, t.DATETIME: 8, t.TIMESTAMP: 4,
}  # fmt: skip
_FRACTIONAL = {t.TIMESTAMP2: 4, t.DATETIME2: 5, t.TIME2: 3}


def skip_format(column: ColumnMap) -> ColumnFormat:
    """Return a format that reads only what is needed to find the next column."""
    size = _get_fixed_size(column)
    if size is not None:
        return FixedFormat(parts=(("", f"{size}x"),), render=lambda _names, _out: [])
    return VariableFormat(length_bytes=_count_length_bytes(column), render=lambda _start, _end, _out: [])


def _get_fixed_size(column: ColumnMap) -> int | None:
    if column.type in _SIZES:
        return _SIZES[column.type]
    if column.type in _FRACTIONAL:
        return _FRACTIONAL[column.type] + (column.metadata + 1) // 2
    if column.type == t.NEWDECIMAL:
        scale = column.metadata & 0xFF
        return sum(4 * (n // 9) + DECIMAL_BYTES[n % 9] for n in ((column.metadata >> 8) - scale, scale))
    if column.type == t.BIT:
        return (column.metadata + 7) // 8
    return column.metadata if column.type in (t.ENUM, t.SET) else None


def _count_length_bytes(column: ColumnMap) -> int:
    if column.type in t.STRINGS or column.type == t.VARCHAR_COMPRESSED:
        return 2 if column.metadata > 255 else 1
    return column.metadata
