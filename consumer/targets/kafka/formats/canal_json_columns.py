"""Columns as Canal's flat messages have them: every value a string, its type in words of MySQL and as a number of JDBC. Pure.

Texts are those of MySQL, so zero dates stand as they are. A TIMESTAMP is text in UTC. Bytes are text whose characters are the bytes (ISO
8859-1); a geometry is MySQL's own form of it, four bytes of SRID before the WKB. An ENUM is the number of its label, a SET the number that its bits make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from schemas.errors import UnsupportedTypeError
from schemas.table.model import ColumnType, Kind, Value
from schemas.table.typemap import mysql_type
from schemas.values.converter import Convert, from_base64, to_base64, wire_int

_BYTES = "latin-1"


class CanalColumn(NamedTuple):
    """`mysql`: the type in MySQL's words; `sql`: its number in java.sql.Types; `write`: wire value → text, `read`: back."""

    mysql: str
    sql: int
    write: Convert
    read: Convert


def canal_column(type_: ColumnType) -> CanalColumn | None:
    """Return how Canal writes a type; None: it has no form for it."""
    make = _FORMS.get(type_.kind)
    if make is None:
        return None
    try:
        words = mysql_type(replace(type_, charset=None, collation=None))
    except UnsupportedTypeError:
        return None
    return CanalColumn(words, *make(type_))


_Form = tuple[int, Convert, Convert]


def _int(type_: ColumnType) -> _Form:
    """Unsigned integers have the number of the next larger type, which holds them all."""
    wide = type_.bits + 1 if type_.unsigned else type_.bits
    limits = ((8, -6), (16, 5), (32, 4), (64, -5))
    return next((number for bits, number in limits if wide <= bits), 3), str, lambda text: wire_int(int(text))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _shortest(value: Any) -> str:
    """NaN and the infinities, which Oracle has, are text already."""
    return value if isinstance(value, str) else repr(float(value))


def _number(text: str) -> Value:
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _timestamp(value: Any) -> str:
    """The zero timestamp has no T and no Z."""
    return str(value).replace("T", " ").removesuffix("Z")


def _read_timestamp(text: str) -> Value:
    return text if text.startswith("0000-00-00") else f"{text.replace(' ', 'T')}Z"


def _raw(value: Any) -> str:
    return from_base64(value).decode(_BYTES)


def _read_raw(text: str) -> Value:
    return to_base64(text.encode(_BYTES))


def _geometry(value: Any) -> str:
    return (int(value["srid"]).to_bytes(4, "little") + from_base64(value["wkb"])).decode(_BYTES)


def _read_geometry(text: str) -> Value:
    raw = text.encode(_BYTES)
    return {"wkb": to_base64(raw[4:]), "srid": int.from_bytes(raw[:4], "little")}


def _enum(type_: ColumnType) -> _Form:
    """Labels count from 1. 0 is the error value: "", unless that is a label."""
    numbers = {"": "0", **{label: str(i) for i, label in enumerate(type_.members, 1)}}
    labels = ("", *type_.members)
    return 4, numbers.__getitem__, lambda text: labels[int(text)]


def _set(type_: ColumnType) -> _Form:
    bits = {label: 1 << i for i, label in enumerate(type_.members)}

    def write(value: Any) -> str:
        return str(sum(bits[label] for label in value.split(","))) if value else "0"

    def read(text: str) -> Value:
        chosen = int(text)
        if chosen >> len(bits):
            raise ValueError("it has labels that the type does not have")
        return ",".join(label for label, bit in bits.items() if bit & chosen)

    return -7, write, read


def _always(number: int, write: Convert = _text, read: Convert = _text) -> Callable[[ColumnType], _Form]:
    return lambda _: (number, write, read)


_FORMS: dict[Kind, Callable[[ColumnType], _Form]] = {
    Kind.INT: _int,
    Kind.DECIMAL: _always(3),
    Kind.FLOAT: _always(7, _shortest, _number),
    Kind.DOUBLE: _always(8, _shortest, _number),
    Kind.BIT: _always(-7, str, lambda text: wire_int(int(text))),
    Kind.YEAR: _always(12, lambda value: f"{value:04d}", int),
    Kind.CHAR: _always(1),
    Kind.VARCHAR: _always(12),
    Kind.TEXT: _always(2005),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _always(2004, _raw, _read_raw)),
    Kind.DATE: _always(91),
    Kind.TIME: _always(92),
    Kind.DATETIME: _always(93),
    Kind.TIMESTAMP: _always(93, _timestamp, _read_timestamp),
    Kind.JSON: _always(12),
    Kind.ENUM: _enum,
    Kind.SET: _set,
    Kind.ENUM_NUMBER: _always(4, str, int),
    Kind.SET_NUMBER: _always(-7, str, lambda text: wire_int(int(text))),
    Kind.GEOMETRY: _always(2004, _geometry, _read_geometry),
}
