"""The values of a new column in existing rows, which the source's server sets by itself.

Pure, wire values.
"""

from __future__ import annotations

import base64

from consumer.targets.alterations import AddColumn
from schemas.table.model import Column, ColumnType, Kind, Table, UniqueIndex, Value
from schemas.table.text_types import get_zero_text

_EXACT = 1 << 53
_IMPLICIT: dict[Kind, Value] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR, Kind.BIT), 0), **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), 0.0),
    Kind.DATE: "0000-00-00", Kind.JSON: "null", Kind.ENUM_NUMBER: 1, Kind.SET_NUMBER: 0,
}  # fmt: skip
_EMPTY = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.VARBINARY, Kind.BLOB, Kind.SET)


def choose_fill_value(step: AddColumn) -> Value:
    """Return the value for existing rows: the step's fill, else the default, else the implicit value;
    None: NULL.
    """
    if step.fill is not None:
        return step.fill  # type: ignore[return-value]
    column = step.column
    if column.default is not None:
        return parse_default_value(column)
    return None if column.nullable else get_implicit_value(column.type)


def parse_default_value(column: Column) -> Value:
    """Return the column's default as a wire value; None: it has none."""
    text, kind = column.default, column.type.kind
    if text is None:
        return None
    if kind in (Kind.INT, Kind.YEAR, Kind.BIT):
        return text if abs(int(text)) > _EXACT else int(text)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return float(text)
    if kind is Kind.TIMESTAMP and not text.startswith("0000-00-00"):
        return f"{text[:10]}T{text[11:].removesuffix('Z')}Z"
    return text


def get_implicit_value(type_: ColumnType) -> Value:
    """Return the value that MySQL and MariaDB put into a NOT NULL column without a default; None: there
    is none.
    """
    kind = type_.kind
    fraction = "." + "0" * type_.fsp if type_.fsp else ""
    if type_.text_of is not None:
        return get_zero_text(type_.text_of)
    if kind in _EMPTY:
        return ""
    if kind is Kind.DECIMAL:
        return "0" + ("." + "0" * type_.scale if type_.scale else "")
    if kind is Kind.BINARY:
        return base64.b64encode(bytes(type_.length)).decode()
    if kind is Kind.ENUM:
        return type_.members[0] if type_.members else None
    if kind in (Kind.DATETIME, Kind.TIMESTAMP):
        return f"0000-00-00 00:00:00{fraction}"
    return f"00:00:00{fraction}" if kind is Kind.TIME else _IMPLICIT.get(kind)


def build_one_column_table(column: Column) -> Table:
    """Return a table with only this column, for conversions that need a table."""
    return Table(db="", name="", columns=(column,), key=UniqueIndex(name="", parts=()))
