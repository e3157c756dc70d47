"""Wire values (schemas/table/model.py) to and from values of python-oracledb, by the *neutral* column
type.

Oracle stores an empty text or RAW as NULL. An empty value is written as NULL; when NULL is read from a
column that is NOT NULL at the source, it becomes the empty value again. In a key or a unique index NULL
would differ from the source's value, so an empty value is refused there.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import oracledb
import orjson

from consumer.errors import RefusedError
from schemas.errors import ValueRefusedError
from schemas.table.model import Column, Kind, Row, Table
from schemas.table.oracle_ddl import EMPTY_IS_NULL, is_lob, render_oracle_type
from schemas.values.converter import (
    Convert,
    ConvertRow,
    compile_row,
    encode_wire_float,
    encode_wire_int,
    from_base64,
    normalize_decimal,
    number_or_text,
    to_base64,
)


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Translate the refusals of the value functions."""
    try:
        yield
    except ValueRefusedError as error:
        raise RefusedError.wrap_error("Oracle cannot hold a value", error) from error


def list_keyed_columns(table: Table) -> frozenset[str]:
    return frozenset(table.key.columns).union(*(index.columns for index in table.unique))


def to_oracle(table: Table, columns: Sequence[str] | None = None) -> ConvertRow:
    """Return the function from wire values to the driver's, for all columns, or for `columns` in their
    order.

    The function raises ValueRefusedError.
    """
    exact = list_keyed_columns(table)
    chosen = table.columns if columns is None else tuple(map(table.get_column, columns))
    return compile_row([_make_writer(column, exact=column.name in exact) for column in chosen])


def from_oracle(table: Table) -> Callable[[tuple[Any, ...]], Row]:
    """Return the function from a row of the driver to wire values."""
    readers = [_READ.get(column.type.kind, _make_plain_writer)(column) for column in table.columns]
    empty = [not column.nullable and column.type.kind in EMPTY_IS_NULL for column in table.columns]
    if not any(empty):
        return compile_row(readers)
    convert = compile_row(readers)

    def read(row: tuple[Any, ...]) -> Row:
        return tuple(
            "" if value is None and void else value for value, void in zip(convert(row), empty, strict=True)
        )

    return read


def list_input_sizes(table: Table, columns: Sequence[str] | None = None) -> list[Any]:
    """Return the driver's types of the values, so that a column of NULLs has a type, and a time keeps
    its fraction.
    """
    chosen = table.columns if columns is None else tuple(map(table.get_column, columns))
    return [getattr(oracledb, _render_bound(column)) for column in chosen]


_BOUND = {
    "NUMBER": "DB_TYPE_NUMBER", "BINARY_FLOAT": "DB_TYPE_BINARY_FLOAT",
    "BINARY_DOUBLE": "DB_TYPE_BINARY_DOUBLE", "VARCHAR2": "DB_TYPE_VARCHAR", "RAW": "DB_TYPE_RAW",
    "CLOB": "DB_TYPE_LONG", "BLOB": "DB_TYPE_LONG_RAW", "DATE": "DB_TYPE_DATE",
    "TIMESTAMP": "DB_TYPE_TIMESTAMP", "INTERVAL DAY": "DB_TYPE_INTERVAL_DS",
}  # fmt: skip


def _render_bound(column: Column) -> str:
    rendered = render_oracle_type(column.type)
    return _BOUND[rendered if is_lob(rendered) else rendered.partition("(")[0].rstrip()]


# -- writing


def _make_writer(column: Column, *, exact: bool) -> Convert | None:
    convert = _WRITE.get(column.type.kind, _make_plain_writer)(column)
    if column.type.kind not in EMPTY_IS_NULL or not exact:
        return convert
    name, onward = column.name, convert or (lambda value: value)

    def convert_value(value: Any) -> Any:
        if value == "":
            raise ValueRefusedError(
                name,
                "Oracle stores an empty value as NULL, but a key or unique index distinguishes the two",
                "give the row another value",
            )
        return onward(value)

    return convert_value


def _make_plain_writer(_: Column) -> Convert | None:
    return None


def _make_date_writer(column: Column) -> Convert:
    def convert(value: str) -> datetime.datetime:
        return _parse_time(column.name, value.rstrip("Z"))

    return convert


def _parse_time(column: str, text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text if "." not in text else text.ljust(26, "0"))
    except ValueError:
        raise ValueRefusedError(
            column, f"{text!r} is not a date of the calendar; Oracle has no such value"
        ) from None


def _make_duration_writer(_: Column) -> Convert:
    def convert(value: str) -> datetime.timedelta:
        sign = -1 if value.startswith("-") else 1
        hours, minutes, seconds = value.lstrip("-").split(":")
        whole, _, fraction = seconds.partition(".")
        return sign * datetime.timedelta(
            hours=int(hours),
            minutes=int(minutes),
            seconds=int(whole),
            microseconds=int(fraction.ljust(6, "0")),
        )

    return convert


def _make_bytes_writer(_: Column) -> Convert:
    return lambda value: from_base64(value) or None


def _make_text_writer(_: Column) -> Convert:
    return lambda value: value or None


_WRITE: dict[Kind, Callable[[Column], Convert | None]] = {
    **dict.fromkeys((Kind.INT, Kind.BIT, Kind.YEAR), lambda _: int),
    Kind.DECIMAL: lambda _: Decimal,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), lambda _: float),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET), _make_text_writer),
    **dict.fromkeys((Kind.ENUM_NUMBER, Kind.SET_NUMBER), lambda _: str),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _make_bytes_writer),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP), _make_date_writer),
    Kind.TIME: _make_duration_writer,
}


# -- reading


def _read_decimal(column: Column) -> Convert:
    if not column.type.precision and not column.type.scale:  # of any scale
        return lambda value: normalize_decimal(str(value))
    form = f".{column.type.scale}f"
    return lambda value: format(value, form)


def _get_fraction_digits(fsp: int) -> int | None:
    return 19 if fsp == 0 else 20 + fsp


def _read_datetime(column: Column) -> Convert:
    end = _get_fraction_digits(column.type.fsp)
    return lambda value: value.isoformat(" ", "microseconds")[:end]


def _read_timestamp(column: Column) -> Convert:
    end = _get_fraction_digits(column.type.fsp)
    return lambda value: value.isoformat("T", "microseconds")[:end] + "Z"


def _read_duration(column: Column) -> Convert:
    fsp = column.type.fsp

    def convert(value: datetime.timedelta) -> str:
        micros = abs(value) // datetime.timedelta(microseconds=1)
        seconds, rest = divmod(micros, 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f".{rest:06}"[: fsp + 1] if fsp else ""
        return ("-" if value < datetime.timedelta(0) else "") + text + fraction

    return convert


def _read_json(_: Column) -> Convert:
    """Return the reader of JSON: for the type JSON the driver returns an object; a CLOB is the text
    itself.
    """
    return lambda value: value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _read_char(_: Column) -> Convert:
    """Return the reader of CHAR without trailing blanks, with which the target pads it
    (docs/reference/types.md).
    """
    return lambda value: value.rstrip(" ")


_READ: dict[Kind, Callable[[Column], Convert | None]] = {
    Kind.CHAR: _read_char,
    **dict.fromkeys((Kind.INT, Kind.BIT, Kind.YEAR), lambda _: lambda value: encode_wire_int(int(value))),
    **dict.fromkeys((Kind.ENUM_NUMBER, Kind.SET_NUMBER), lambda _: number_or_text),
    Kind.DECIMAL: _read_decimal,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), lambda _: encode_wire_float),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), lambda _: to_base64),
    Kind.DATE: lambda _: lambda value: value.isoformat()[:10],
    Kind.DATETIME: _read_datetime,
    Kind.TIMESTAMP: _read_timestamp,
    Kind.TIME: _read_duration,
    Kind.JSON: _read_json,
}
