"""Rows of PostgreSQL → wire values (schemas/table/model.py), by the *neutral* column type;
schemas/values/postgres.py writes them.

The real types may differ from the type map's as long as the values fit (boolean for TINYINT(1), double
precision for FLOAT, …): everything but floats and bytes is read as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from schemas.table.model import Column, Kind, Row, Table, TextOf, Value
from schemas.table.text_types import normalize_text
from schemas.values.converter import (
    Convert,
    compile_row,
    encode_wire_float,
    encode_wire_int,
    normalize_decimal,
    number_or_text,
    to_base64,
)

EWKB_SRID = 0x20000000
EWKB_HEADER = struct.Struct("<BI")
SRID = struct.Struct("<I")


def quote_pg(name: str) -> str:
    """Return `name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def select_list_pg(table: Table) -> list[str]:
    """Return the SQL expression of every column of `table`, in order.

    Each has an alias that is not a column's name: PostgreSQL would name `"id"::text` id, and ORDER BY
    id would sort text.
    """
    return [f'{_render_expression(column)} AS "wire {i}"' for i, column in enumerate(table.columns)]


def _render_expression(column: Column) -> str:
    expression = (
        "{0}::real[]::text"
        if column.type.text_of is TextOf.VECTOR
        else _EXPRESSIONS.get(column.type.kind, "{0}::text")
    )
    return expression.format(quote_pg(column.name))


def make_postgres_row_converter(table: Table) -> Callable[[tuple[Any, ...]], Row]:
    """Return the function from a row of psycopg to wire values.

    A value without the form of the neutral type is returned as PostgreSQL's text: it then differs from
    every wire value, which is what verify must show.
    """
    return compile_row([_choose_reader(column)(column) for column in table.columns])


#: FLOAT is `real`, which PostgreSQL widens exactly. Everything else is read as text, whatever the real
#: type is.
_EXPRESSIONS: dict[Kind, str] = {
    Kind.FLOAT: "{0}::float8",
    Kind.DOUBLE: "{0}::float8",
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY), "{0}"),
}


def _encode_geometry(raw: bytes) -> dict[str, object]:
    order, kind = EWKB_HEADER.unpack_from(raw)
    wkb = EWKB_HEADER.pack(order, kind & ~EWKB_SRID) + raw[EWKB_HEADER.size + SRID.size :]
    return {"wkb": to_base64(wkb), "srid": SRID.unpack_from(raw, EWKB_HEADER.size)[0]}


def _as_text(_: Column) -> Convert | None:
    return None


_BOOLEANS = {"true": 1, "false": 0}


def _read_int(_: Column) -> Convert:
    def convert(text: str) -> Value:
        try:
            return encode_wire_int(int(text))
        except ValueError:
            return _convert_whole_number(text)

    return convert


def _convert_whole_number(text: str) -> Value:
    """Return an integer that is stored as boolean or as numeric with a scale."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return (
        encode_wire_int(int(number)) if number.is_finite() and number == number.to_integral_value() else text
    )


def _read_bit(_: Column) -> Convert:
    def convert(text: str) -> Value:
        try:
            return encode_wire_int(int(text, 2))
        except ValueError:
            return _BOOLEANS.get(text, text)

    return convert


def _read_decimal(column: Column) -> Convert:
    if not column.type.precision and not column.type.scale:  # of any scale
        return normalize_decimal
    scale = column.type.scale

    def convert(text: str) -> str:
        return text if len(text.partition(".")[2]) == scale else _set_scale(text, scale)

    return convert


def _set_scale(text: str, scale: int) -> str:
    """Return the same number with `scale` digits; unchanged if that would lose any, or if it is not a
    number.
    """
    whole, _, fraction = text.partition(".")
    if fraction[scale:].strip("0") or not whole.lstrip("-").isdigit():
        return text
    digits = fraction[:scale].ljust(scale, "0")
    return f"{whole}.{digits}" if scale else whole


def _with_fraction(text: str, fsp: int) -> str:
    """Return a time with `fsp` digits, because PostgreSQL drops trailing zeros of the fraction of a
    second.
    """
    whole, _, fraction = text.partition(".")
    digits = fraction.rstrip("0").ljust(fsp, "0")
    return f"{whole}.{digits}" if digits else whole


def _read_seconds(column: Column) -> Convert:
    fsp = column.type.fsp
    return lambda text: _with_fraction(text, fsp)


def _read_timestamp(column: Column) -> Convert:
    fsp = column.type.fsp

    def convert(text: str) -> str:
        local = text.removesuffix("+00")
        return f"{local[:10]}T{_with_fraction(local[11:], fsp)}Z" if local[:1].isdigit() else text

    return convert


_Reader = Callable[[Column], Convert | None]


def _choose_reader(column: Column) -> _Reader:
    if column.type.text_of in _HOST_SUFFIXES:
        return _make_constant_reader(_make_inet_reader(column.type.text_of))
    if column.type.text_of is TextOf.VECTOR:
        return _make_constant_reader(_read_array)
    return _READ.get(column.type.kind, _as_text)


def _read_array(text: str) -> str:
    """Return the text of a real[]; an array that is none (of NULL, NaN, or arrays) stays as it is."""
    try:
        return normalize_text(TextOf.VECTOR, f"[{text[1:-1]}]")
    except ValueError:
        return text


_HOST_SUFFIXES = {TextOf.INET4: "/32", TextOf.INET6: "/128"}
"""What PostgreSQL appends to the text of an inet that is a single address."""


def _make_inet_reader(text_of: TextOf) -> Convert:
    """Return the function from PostgreSQL's text of an address to the source's; a network stays as it is."""

    def convert(text: str) -> str:
        try:
            return normalize_text(text_of, text.removesuffix(_HOST_SUFFIXES[text_of]))
        except ValueError:
            return text

    return convert


def _make_constant_reader(convert: Convert) -> _Reader:
    return lambda _: convert


def _encode_bytes(value: Any) -> Value:
    return to_base64(value) if isinstance(value, bytes) else str(value)


_READ: dict[Kind, _Reader] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR), _read_int),
    **dict.fromkeys((Kind.ENUM_NUMBER, Kind.SET_NUMBER), _make_constant_reader(number_or_text)),
    Kind.BIT: _read_bit,
    Kind.DECIMAL: _read_decimal,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _make_constant_reader(encode_wire_float)),
    **dict.fromkeys((Kind.TIME, Kind.DATETIME), _read_seconds),
    Kind.TIMESTAMP: _read_timestamp,
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _make_constant_reader(_encode_bytes)),
    Kind.GEOMETRY: _make_constant_reader(_encode_geometry),
}
