"""Wire values (schemas/table/model.py) ↔ values of PostgreSQL, as text, by the *neutral* column type.

Writing: `to_postgres(table)` returns every value in PostgreSQL's text format (None: NULL), for COPY
rows and psycopg parameters alike (psycopg sends str untyped, so the server uses the column's type and
its indexes); `copy_line(table)` returns the whole escaped COPY line.

Reading: SELECT `select_list_pg(table)`, and convert each row with `make_postgres_row_converter(table)`.
Sessions need SESSION_SETTINGS. The real types may differ from the type map's as long as the values fit
(boolean for TINYINT(1), double precision for FLOAT, …).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any

from schemas.errors import ValueRefusedError
from schemas.table.model import Column, Kind, Row, Table, TextOf, Value
from schemas.values.converter import Convert, ConvertRow, compile_row, from_base64
from schemas.values.mysql import format_timestamp_text
from schemas.values.postgres_rows import (
    EWKB_HEADER,
    EWKB_SRID,
    SRID,
    make_postgres_row_converter,
    quote_pg,
    select_list_pg,
)

__all__ = [
    "SESSION_OPTIONS",
    "SESSION_SETTINGS",
    "copy_line",
    "encode_ewkb",
    "escape_copy",
    "make_postgres_row_converter",
    "quote_pg",
    "select_list_pg",
    "to_postgres",
    "to_postgres_columns",
]  # fmt: skip

#: Settings of every session that reads or writes these values (`SET name = value`, or options='-c
#: name=value').
SESSION_SETTINGS: dict[str, str] = {
    "timezone": "UTC", "datestyle": "ISO", "intervalstyle": "postgres", "extra_float_digits": "1",
    "bytea_output": "hex", "standard_conforming_strings": "on", "client_encoding": "UTF8",
}  # fmt: skip
#: The same as libpq's `options`.
SESSION_OPTIONS = " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())


def to_postgres(table: Table) -> Callable[[Row], tuple[str | None, ...]]:
    """Return the function from wire values to PostgreSQL text values.

    The function raises ValueRefusedError for what PostgreSQL cannot store (zero dates, NUL characters).
    """
    return compile_row([_choose_writer(column) for column in table.columns])


def to_postgres_columns(table: Table, columns: tuple[str, ...]) -> ConvertRow:
    """Return the function for tuples of only `columns`, in that order (keys, unique values)."""
    return compile_row([_choose_writer(table.get_column(name)) for name in columns])


def _choose_writer(column: Column) -> Convert | None:
    if column.type.text_of is TextOf.VECTOR:
        return _write_array
    return _WRITE[column.type.kind](column)


def _write_array(value: str) -> str:
    """Return the text of PostgreSQL's real[]."""
    return "{" + value[1:-1] + "}"


def copy_line(table: Table) -> Callable[[Row], str]:
    """Return the function from wire values to a line of COPY's text format, with its line end.

    The function raises ValueRefusedError like that of `to_postgres`.
    """
    convert = compile_row([_copy_converter(column) for column in table.columns], null=r"\N")

    def escape_line(row: Row) -> str:
        return "\t".join(convert(row)) + "\n"

    if any(column.type.kind in _ESCAPED_IN_COPY for column in table.columns):
        return escape_line
    join, tabs = _compile_join(table.columns), len(table.columns) - 1

    def join_line(row: Row) -> str:
        """Return the line; check the whole line for characters to escape, instead of each value."""
        text = join(row)
        if "\\" in text or "\n" in text or "\r" in text or text.count("\t") != tabs:
            return escape_line(row)
        if "\0" in text:
            if text.count("\0") != row.count(None):
                return escape_line(row)
            text = text.replace("\0", r"\N")
        return text + "\n"

    return join_line


def _compile_join(columns: Sequence[Column]) -> Callable[[Row], str]:
    """Return the function that joins a row's values by tabs, with U+0000 for NULL and nothing escaped."""
    names: dict[str, Any] = {f"c{i}": _copy_converter(column) for i, column in enumerate(columns)}
    names["calendar"] = _CALENDAR
    parts = [
        f'"\\0" if (v := r[{i}]) is None else ' + _choose_joined(column).format(i)
        for i, column in enumerate(columns)
    ]
    form = "\\t".join(["%s"] * len(columns))
    join: Callable[[Row], str] = eval(f'lambda r: "{form}" % ({", ".join(parts)},)', names)  # noqa: S307 - of kinds
    return join


_COPY_SPECIAL = re.compile(r"[\\\t\n\r]")
_COPY_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def escape_copy(text: str) -> str:
    """Return `text` escaped for COPY's text format."""
    if _COPY_SPECIAL.search(text) is None:
        return text
    return _COPY_SPECIAL.sub(lambda match: _COPY_ESCAPES[match[0]], text)


#: Kinds with a text that never contains a character that COPY escapes.
_PLAIN_IN_COPY = frozenset(
    {
        Kind.INT,
        Kind.YEAR,
        Kind.ENUM_NUMBER,
        Kind.SET_NUMBER,
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
    convert = _choose_writer(column) or str
    if column.type.kind in _PLAIN_IN_COPY:
        return convert
    return lambda value: escape_copy(convert(value))


#: Kinds with a text that always contains a backslash.
_ESCAPED_IN_COPY = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY})
#: The expressions of `_compile_join` for the value v of column {0}; other kinds use their converter.
_JOINED: dict[Kind, str] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR, Kind.ENUM_NUMBER, Kind.SET_NUMBER, Kind.DECIMAL, Kind.TIME), "v"),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET, Kind.JSON), "v"),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME), "v if v[:10] in calendar else c{0}(v)"),
    Kind.TIMESTAMP: '(d + " " + v[11:-1] + "+00") if (d := v[:10]) in calendar and v[-1] == "Z" else c{0}(v)',
}


def _choose_joined(column: Column) -> str:
    own = "c{0}(v)"
    return own if column.type.text_of is TextOf.VECTOR else _JOINED.get(column.type.kind, own)


def _write_unchanged(_: Column) -> Convert | None:
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
        return format_timestamp_text(value) + "+00"

    return convert


_CALENDAR: set[str] = set()
"""Dates that were found valid; few distinct ones recur often."""
_CALENDAR_SIZE = 50_000


def _require_date(column: str, value: str) -> None:
    day = value[:10]
    if day in _CALENDAR:
        return
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        raise ValueRefusedError(
            column, f"{value!r} is not a date of the calendar; PostgreSQL has no such value"
        ) from None
    if len(_CALENDAR) < _CALENDAR_SIZE:
        _CALENDAR.add(day)


def _write_json(column: Column) -> Convert:
    name = column.name

    def convert(value: str) -> str:
        if "\\u0000" in value and _has_nul(value):
            raise ValueRefusedError(name, "PostgreSQL's jsonb cannot store the character U+0000")
        return value

    return convert


def _has_nul(text: str) -> bool:
    """Return whether \\u0000 is an escape in the text: an even number of backslashes precedes it."""
    return re.search(r"(?<!\\)(?:\\\\)*\\u0000", text) is not None


def _write_geometry(_: Column) -> Convert:
    return lambda value: r"\x" + encode_ewkb(value).hex()


def encode_ewkb(wire: Value) -> bytes:
    """Return the EWKB of a wire geometry for PostGIS: WKB with a flag in its type that the SRID
    follows.

    MySQL's and MariaDB's WKB is always little-endian.
    """
    if not isinstance(wire, dict):
        raise TypeError(f"a geometry's wire value is an object, not {type(wire).__name__}")
    wkb = from_base64(str(wire["wkb"]))
    order, kind = EWKB_HEADER.unpack_from(wkb)
    return EWKB_HEADER.pack(order, kind | EWKB_SRID) + SRID.pack(wire["srid"]) + wkb[EWKB_HEADER.size :]


_WRITE: dict[Kind, Callable[[Column], Convert | None]] = {
    **dict.fromkeys(
        (Kind.INT, Kind.YEAR, Kind.ENUM_NUMBER, Kind.SET_NUMBER, Kind.DECIMAL, Kind.TIME), _write_unchanged
    ),
    Kind.BIT: _write_bit,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _write_float),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET), _write_text),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _write_bytes),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME), _write_date),
    Kind.TIMESTAMP: _write_timestamp,
    Kind.JSON: _write_json,
    Kind.GEOMETRY: _write_geometry,
}
