"""The longest columns of a row that a target refuses as too large. Pure."""

from __future__ import annotations

from consumer.errors import RowTooLargeError
from consumer.ordering.model import NetChange
from schemas.table.model import Kind, Row, Table

MAX_NAMED_COLUMNS = 3
_IN_BASE64 = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB})


def name_longest_columns(error: RowTooLargeError, net: NetChange) -> RowTooLargeError:
    """Return the error with the longest columns of the refused row and their bytes, never with a value.

    Unchanged if `net` has several rows, because the target's error does not name the refused one: they are
    tried one by one.
    """
    rows = list(net.rows)
    if len(rows) != 1:
        return error
    sizes = _measure_columns(net.table.table, rows[0])
    longest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:MAX_NAMED_COLUMNS]
    if not longest:
        return error
    names = ", ".join(f"{name} {sizes[name]} bytes" for name in longest)
    what, remedy = error.problem.what, error.problem.remedy
    return RowTooLargeError(f"{what}; longest columns of the row: {names}", remedy)


def _measure_columns(table: Table, row: Row) -> dict[str, int]:
    """Return column → bytes of its value, texts in UTF-8; without NULLs and numbers, which are short."""
    pairs = zip(table.columns, row, strict=True)
    sizes = {column.name: _measure_value(column.type.kind, value) for column, value in pairs}
    return {name: size for name, size in sizes.items() if size}


def _measure_value(kind: Kind, value: object) -> int:
    if isinstance(value, dict):  # a geometry, as WKB with its SRID
        return 4 + _measure_value(Kind.BLOB, value.get("wkb"))
    if not isinstance(value, str):
        return 0
    if kind in _IN_BASE64:
        return len(value) // 4 * 3 - value.count("=")
    return len(value.encode(errors="replace"))
