"""The bytes of each column in a row image, by its TABLE_MAP. Pure."""

from __future__ import annotations

from producer.binlog_format import types as t
from producer.binlog_format.row_events import ColumnMap

DECIMAL_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a DECIMAL's group of that many digits."""
_SIZES = {
    t.TINY: 1, t.SHORT: 2, t.INT24: 3, t.LONG: 4, t.LONGLONG: 8, t.FLOAT: 4, t.DOUBLE: 8, t.YEAR: 1,
    t.DATE: 3, t.NEWDATE: 3, t.TIME: 3, t.DATETIME: 8, t.TIMESTAMP: 4,
}  # fmt: skip
_FRACTIONAL = {t.TIMESTAMP2: 4, t.DATETIME2: 5, t.TIME2: 3}


def get_fixed_size(column: ColumnMap) -> int | None:
    """Return the bytes of a value; None: they vary, and follow their length (`count_length_bytes`)."""
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


def count_length_bytes(column: ColumnMap) -> int:
    """Return the bytes of the length of a value of variable size."""
    if column.type in t.STRINGS:
        return 2 if column.metadata > 255 else 1
    return column.metadata
