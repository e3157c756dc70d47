"""Wire values (schemas/table.py) ↔ values of PostgreSQL, as text, by the *neutral* column type.

Writing: `to_postgres(table)` gives every value in PostgreSQL's text format (None: NULL), fit for a COPY row and for a
psycopg parameter alike (psycopg sends str untyped, so the server takes the column's type and its indexes serve);
`copy_line(table)` gives the whole escaped COPY line. Reading: SELECT `select_list_pg(table)`, each row through
`row_from_postgres(table)`. Sessions need SESSION_SETTINGS. The real types may differ from the type map's as long as
the values fit (boolean for TINYINT(1), double precision for FLOAT, …).
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from schemas.converter import Convert, ConvertRow, compile_row, from_base64, to_base64, wire_int
from schemas.errors import ValueRefusedError
from schemas.mysql_values import timestamp_text
from schemas.table import Column, Kind, Row, Table, Value

#: Settings of every session that reads or writes these values (`SET name = value`, or options='-c name=value').
SESSION_SETTINGS: dict[str, str] = {
    "timezone": "UTC", "datestyle": "ISO", "intervalstyle": "postgres", "extra_float_digits": "1",
    "bytea_output": "hex", "standard_conforming_strings": "on", "client_encoding": "UTF8",
}  # fmt: skip
#: The same as libpq's `options`.
SESSION_OPTIONS = " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())

_EWKB_SRID = 0x20000000
_HEADER = struct.Struct("<BI")
_SRID = struct.Struct("<I")


def quote_pg(name: str) -> str:
    """Return `name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def to_postgres(table: Table) -> Callable[[Row], tuple[str | None, ...]]:
    """Return the function from wire values to PostgreSQL text values.

    The function raises ValueRefusedError for what PostgreSQL cannot hold (zero dates, NUL characters).
    """
    return compile_row([_WRITE[column.type.kind](column) for column in table.columns])


def to_postgres_columns(table: Table, columns: tuple[str, ...]) -> ConvertRow:
    """Return the function for tuples of only `columns`, in that order (keys, unique values)."""
    return compile_row([_WRITE[table.column(name).type.kind](table.column(name)) for name in columns])


def copy_line(table: Table) -> Callable[[Row], str]:
    """Return the function from wire values to a line of COPY's text format, with its line end.

    The function raises ValueRefusedError as `to_postgres`'s does.
    """
    convert = compile_row([_copy_converter(column) for column in table.columns], null=r"\N")
    return lambda row: "\t".join(convert(row)) + "\n"


_COPY_SPECIAL = re.compile(r"[\\\t\n\r]")
_COPY_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def escape_copy(text: str) -> str:
    """Return `text` escaped for COPY's text format."""
    if _COPY_SPECIAL.search(text) is None:
        return text
    return _COPY_SPECIAL.sub(lambda match: _COPY_ESCAPES[match[0]], text)


#: Kinds whose text never holds a character that COPY escapes.
_PLAIN_IN_COPY = frozenset(
    {
        Kind.INT,
        Kind.YEAR,
        Kind.DECIMAL,
        Kind.BIT,
        Kind.FLOAT,
        Kind.DOUBLE,
        Kind.DATE,
        Kind.TIME,
        Kind.DATETIME,
        Kind.TIMESTAMP,
    }
)


def _copy_converter(column: Column) -> Convert:
    convert = _WRITE[column.type.kind](column) or str
    if column.type.kind in _PLAIN_IN_COPY:
        return convert
    return lambda value: escape_copy(convert(value))


def select_list_pg(table: Table) -> list[str]:
    """Return the SQL expression of every column of `table`, in order.

    Each has an alias that is no column's name: PostgreSQL would name `"id"::text` id, and ORDER BY id would sort text.
    """
    return [f'{_expression(column)} AS "wire {i}"' for i, column in enumerate(table.columns)]


def _expression(column: Column) -> str:
    return _EXPRESSIONS.get(column.type.kind, "{0}::text").format(quote_pg(column.name))


def row_from_postgres(table: Table) -> Callable[[tuple[Any, ...]], Row]:
    """Return the function from a row of psycopg to wire values.

    A value that does not have the form of the neutral type comes back as PostgreSQL's text: it then differs from
    every wire value, which is what verify has to show.
    """
    return compile_row([_READ.get(column.type.kind, _as_text)(column) for column in table.columns])


#: FLOAT is `real`: widened by PostgreSQL, exactly. Everything else is read as text, whatever the real type is.
_EXPRESSIONS: dict[Kind, str] = {
    Kind.FLOAT: "{0}::float8",
    Kind.DOUBLE: "{0}::float8",
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY), "{0}"),
}


def _plain(_: Column) -> Convert | None:
    return str


def _write_bit(column: Column) -> Convert:
    width = column.type.length
    return lambda value: format(int(value), f"0{width}b")


def _write_float(_: Column) -> Convert:
    return lambda value: repr(float(value))


def _write_text(column: Column) -> Convert:
    name = column.name

    def convert(value: str) -> str:
        if "\0" in value:
            raise ValueRefusedError(name, "PostgreSQL cannot store the character U+0000 in text")
        return value

    return convert


def _write_bytes(_: Column) -> Convert:
    return lambda value: r"\x" + from_base64(value).hex()


def _write_date(column: Column) -> Convert:
    name = column.name

    def convert(value: str) -> str:
        _require_date(name, value)
        return value

    return convert


def _write_timestamp(column: Column) -> Convert:
    name = column.name

    def convert(value: str) -> str:
        _require_date(name, value)
        return timestamp_text(value) + "+00"

    return convert


def _require_date(column: str, value: str) -> None:
    try:
        datetime.date.fromisoformat(value[:10])
    except ValueError:
        raise ValueRefusedError(
            column, f"{value!r} is not a date of the calendar; PostgreSQL has no such value"
        ) from None


def _write_json(column: Column) -> Convert:
    name = column.name

    def convert(value: str) -> str:
        if "\\u0000" in value and _has_nul(value):
            raise ValueRefusedError(name, "PostgreSQL's jsonb cannot store the character U+0000")
        return value

    return convert


def _has_nul(text: str) -> bool:
    """Whether \\u0000 is an escape in it, not the text of one (an even number of backslashes before the u)."""
    return re.search(r"(?<!\\)(?:\\\\)*\\u0000", text) is not None


def _write_geometry(_: Column) -> Convert:
    return lambda value: r"\x" + ewkb(value).hex()


def ewkb(wire: Value) -> bytes:
    """Return the EWKB of a wire geometry: WKB whose type says that the SRID follows; PostGIS reads it.

    MySQL's and MariaDB's WKB is always little-endian.
    """
    if not isinstance(wire, dict):
        raise TypeError(f"a geometry's wire value is an object, not {type(wire).__name__}")
    wkb = from_base64(str(wire["wkb"]))
    order, kind = _HEADER.unpack_from(wkb)
    return _HEADER.pack(order, kind | _EWKB_SRID) + _SRID.pack(wire["srid"]) + wkb[_HEADER.size :]


def _geometry_wire(raw: bytes) -> dict[str, object]:
    order, kind = _HEADER.unpack_from(raw)
    wkb = _HEADER.pack(order, kind & ~_EWKB_SRID) + raw[_HEADER.size + _SRID.size :]
    return {"wkb": to_base64(wkb), "srid": _SRID.unpack_from(raw, _HEADER.size)[0]}


_WRITE: dict[Kind, Callable[[Column], Convert | None]] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR, Kind.DECIMAL, Kind.TIME), _plain),
    Kind.BIT: _write_bit,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _write_float),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET), _write_text),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _write_bytes),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME), _write_date),
    Kind.TIMESTAMP: _write_timestamp,
    Kind.JSON: _write_json,
    Kind.GEOMETRY: _write_geometry,
}


def _as_text(_: Column) -> Convert | None:
    return None


_BOOLEANS = {"true": 1, "false": 0}


def _read_int(_: Column) -> Convert:
    def convert(text: str) -> Value:
        try:
            return wire_int(int(text))
        except ValueError:
            return _whole_number(text)

    return convert


def _whole_number(text: str) -> Value:
    """An integer that is stored as boolean or as numeric with a scale."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return wire_int(int(number)) if number.is_finite() and number == number.to_integral_value() else text


def _read_bit(_: Column) -> Convert:
    def convert(text: str) -> Value:
        try:
            return wire_int(int(text, 2))
        except ValueError:
            return _BOOLEANS.get(text, text)

    return convert


def _read_decimal(column: Column) -> Convert:
    scale = column.type.scale

    def convert(text: str) -> str:
        return text if len(text.partition(".")[2]) == scale else _rescaled(text, scale)

    return convert


def _rescaled(text: str, scale: int) -> str:
    """The same number with `scale` digits; unchanged where that would lose any, or where it is no number."""
    whole, _, fraction = text.partition(".")
    if fraction[scale:].strip("0") or not whole.lstrip("-").isdigit():
        return text
    digits = fraction[:scale].ljust(scale, "0")
    return f"{whole}.{digits}" if scale else whole


def _with_fraction(text: str, fsp: int) -> str:
    """PostgreSQL drops trailing zeros of the fraction of a second."""
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


def _always(convert: Convert) -> _Reader:
    return lambda _: convert


def _bytes_wire(value: Any) -> Value:
    return to_base64(value) if isinstance(value, bytes) else str(value)


_READ: dict[Kind, _Reader] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR), _read_int),
    Kind.BIT: _read_bit,
    Kind.DECIMAL: _read_decimal,
    **dict.fromkeys((Kind.TIME, Kind.DATETIME), _read_seconds),
    Kind.TIMESTAMP: _read_timestamp,
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _always(_bytes_wire)),
    Kind.GEOMETRY: _always(_geometry_wire),
}
