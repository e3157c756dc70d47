"""Columns in the form of Canal's flat messages: every value a string, its type in MySQL's notation and
as a JDBC number. Pure.

Texts are those of MySQL, so zero dates stay unchanged. A TIMESTAMP is text in UTC. Bytes are text with
the bytes as characters (ISO 8859-1); a geometry is MySQL's own form of it, four bytes of SRID before
the WKB. An ENUM is the number of its label, a SET the number of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from schemas.errors import UnsupportedTypeError
from schemas.table.model import ColumnType, Kind, Value
from schemas.table.typemap import render_mysql_type
from schemas.values.converter import Convert, encode_wire_int, from_base64, to_base64

_BYTES = "latin-1"


class CanalColumn(NamedTuple):
    """The form of a column."""

    mysql: str
    """The type in MySQL's notation."""
    sql: int
    """Its number in java.sql.Types."""
    write: Convert
    """Wire value → text."""
    read: Convert
    """Text → wire value."""


def build_canal_column(type_: ColumnType) -> CanalColumn | None:
    """Return Canal's form of a type; None: it has none."""
    make = _FORMS.get(type_.kind)
    if make is None:
        return None
    try:
        words = render_mysql_type(replace(type_, charset=None, collation=None))
    except UnsupportedTypeError:
        return None
    return CanalColumn(words, *make(type_))


_Form = tuple[int, Convert, Convert]


def _build_int_form(type_: ColumnType) -> _Form:
    """Return the form of an integer.

    An unsigned one has the number of the next larger type, which can hold its values.
    """
    wide = type_.bits + 1 if type_.unsigned else type_.bits
    limits = ((8, -6), (16, 5), (32, 4), (64, -5))
    return (
        next((number for bits, number in limits if wide <= bits), 3),
        str,
        lambda text: encode_wire_int(int(text)),
    )


def _format_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _format_shortest_float(value: Any) -> str:
    """Return the shortest text of a float. NaN and the infinities, which Oracle has, are text already."""
    return value if isinstance(value, str) else repr(float(value))


def _parse_number(text: str) -> Value:
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _format_timestamp(value: Any) -> str:
    """Return the text of a TIMESTAMP. The zero timestamp has neither T nor Z."""
    return str(value).replace("T", " ").removesuffix("Z")


def _read_timestamp(text: str) -> Value:
    return text if text.startswith("0000-00-00") else f"{text.replace(' ', 'T')}Z"


def _format_raw_bytes(value: Any) -> str:
    return from_base64(value).decode(_BYTES)


def _read_raw(text: str) -> Value:
    return to_base64(text.encode(_BYTES))


def _format_geometry(value: Any) -> str:
    return (int(value["srid"]).to_bytes(4, "little") + from_base64(value["wkb"])).decode(_BYTES)


def _read_geometry(text: str) -> Value:
    raw = text.encode(_BYTES)
    return {"wkb": to_base64(raw[4:]), "srid": int.from_bytes(raw[:4], "little")}


def _build_enum_form(type_: ColumnType) -> _Form:
    """Return the form of an ENUM. Labels count from 1; 0 is the error value, "" unless that is a label."""
    numbers = {"": "0", **{label: str(i) for i, label in enumerate(type_.members, 1)}}
    labels = ("", *type_.members)
    return 4, numbers.__getitem__, lambda text: labels[int(text)]


def _build_set_form(type_: ColumnType) -> _Form:
    bits = {label: 1 << i for i, label in enumerate(type_.members)}

    def write(value: Any) -> str:
        return str(sum(bits[label] for label in value.split(","))) if value else "0"

    def read(text: str) -> Value:
        chosen = int(text)
        if chosen >> len(bits):
            raise ValueError("it has labels that the type does not have")
        return ",".join(label for label, bit in bits.items() if bit & chosen)

    return -7, write, read


def _build_fixed_form(
    number: int, write: Convert = _format_text, read: Convert = _format_text
) -> Callable[[ColumnType], _Form]:
    return lambda _: (number, write, read)


_FORMS: dict[Kind, Callable[[ColumnType], _Form]] = {
    Kind.INT: _build_int_form,
    Kind.DECIMAL: _build_fixed_form(3),
    Kind.FLOAT: _build_fixed_form(7, _format_shortest_float, _parse_number),
    Kind.DOUBLE: _build_fixed_form(8, _format_shortest_float, _parse_number),
    Kind.BIT: _build_fixed_form(-7, str, lambda text: encode_wire_int(int(text))),
    Kind.YEAR: _build_fixed_form(12, lambda value: f"{value:04d}", int),
    Kind.CHAR: _build_fixed_form(1),
    Kind.VARCHAR: _build_fixed_form(12),
    Kind.TEXT: _build_fixed_form(2005),
    **dict.fromkeys(
        (Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _build_fixed_form(2004, _format_raw_bytes, _read_raw)
    ),
    Kind.DATE: _build_fixed_form(91),
    Kind.TIME: _build_fixed_form(92),
    Kind.DATETIME: _build_fixed_form(93),
    Kind.TIMESTAMP: _build_fixed_form(93, _format_timestamp, _read_timestamp),
    Kind.JSON: _build_fixed_form(12),
    Kind.ENUM: _build_enum_form,
    Kind.SET: _build_set_form,
    Kind.ENUM_NUMBER: _build_fixed_form(4, str, int),
    Kind.SET_NUMBER: _build_fixed_form(-7, str, lambda text: encode_wire_int(int(text))),
    Kind.GEOMETRY: _build_fixed_form(2004, _format_geometry, _read_geometry),
}
