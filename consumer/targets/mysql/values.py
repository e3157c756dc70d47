"""Keys in statements of MySQL: parameters that are compared with their column by the column's own type.

A decimal compared with a string, or an ENUM ordered by its label, would be compared as something else,
without index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from pymysql.converters import encoders, escape_item, escape_string

from schemas.table.model import Column, Key, Kind, Table, Value
from schemas.values.mysql import to_mysql_columns

KeyConversion = Callable[[object], object]


def make_key_encoder(table: Table) -> Callable[[Key], Sequence[object]]:
    """Return the function from a key's wire values to parameters for "=" and IN."""
    return _make_encoder(table, {Kind.DECIMAL: lambda _: _convert_decimal})


def order_encoder(table: Table) -> Callable[[Key], Sequence[object]]:
    """Return the function from a key's wire values to parameters for "<" and ">" in the order of the
    key's index.
    """
    return _make_encoder(
        table,
        {
            Kind.DECIMAL: lambda _: _convert_decimal,
            Kind.ENUM: _make_ordinal_change,
            Kind.SET: _make_bits_change,
        },
    )


def _make_encoder(
    table: Table, special: dict[Kind, Callable[[Column], KeyConversion]]
) -> Callable[[Key], Sequence[object]]:
    names = table.key.columns
    plain = to_mysql_columns(table, names)
    columns = [table.get_column(name) for name in names]
    changes = [
        (at, special[column.type.kind](column))
        for at, column in enumerate(columns)
        if column.type.kind in special
    ]
    if not changes:
        return plain

    def encode(key: Key) -> Sequence[object]:
        values = list(plain(key))
        for at, change in changes:
            values[at] = change(values[at])
        return values

    return encode


def _convert_decimal(value: object) -> object:
    return Decimal(str(value))


def _make_ordinal_change(column: Column) -> KeyConversion:
    places: dict[Value, int] = {label: at for at, label in enumerate(column.type.members, 1)}
    return lambda value: places.get(str(value), 0)


def _make_bits_change(column: Column) -> KeyConversion:
    places = {label: 1 << at for at, label in enumerate(column.type.members)}
    return lambda value: sum(places[label] for label in str(value).split(",") if label)


def render_literal(value: object) -> str:
    """Return `value` as the driver writes it into a statement, without its generic dispatch for
    frequent types.

    Sessions never run with NO_BACKSLASH_ESCAPES (schemas.io.mysql_connection.SQL_MODE).
    """
    kind = type(value)
    if kind is str:
        return f"'{escape_string(value)}'"  # type: ignore[arg-type]
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is bytes:
        return f"X'{value.hex()}'"  # type: ignore[attr-defined]
    return str(escape_item(value, "utf8mb4", encoders))
