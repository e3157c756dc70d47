"""Oracle's types → neutral types, how a value is selected, and its wire value. Pure; docs/how-to/oracle-source.md has the table.

Each column is selected so that the driver gives one Python type whatever its settings: text for numbers and times, bytes for RAW, float for
BINARY_FLOAT and BINARY_DOUBLE. The empty string is NULL to Oracle, so that no text ever is empty here, but CHAR that is all blanks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from schemas.errors import UnsupportedTypeError
from schemas.table.model import ColumnType, Kind, Value
from schemas.table.typemap import WIDEST_DECIMAL
from schemas.values.converter import from_base64, plain_decimal, to_base64

FINEST = 6
"""Digits of a fraction of a second that other databases keep. A finer time is text."""
_UTF8: dict[str, Any] = {"charset": "utf8mb4", "collation": "utf8mb4_0900_bin"}
_NUMBER_FORMAT = "TO_CHAR({}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"
_DAY = "SYYYY-MM-DD"

Convert = Callable[..., Value]


class OracleColumn(NamedTuple):
    """A column of ALL_TAB_COLS. `declared`: DATA_TYPE, with its precision where that is part of the name."""

    name: str
    declared: str
    bytes: int
    chars: int
    precision: int | None
    scale: int | None
    nullable: bool
    virtual: bool
    has_default: bool


class Form(NamedTuple):
    """`select`: the expression of the column `{}`; `convert`: from what the driver gives, which is not None, to the wire value.

    `bind`: how a bind becomes a value of the column's type; None: it can be no key; `bound`: the bind of a wire value.
    """

    type: ColumnType
    select: str
    bind: str | None
    convert: Convert
    bound: Callable[[Any], object] = str


def form_of(column: OracleColumn) -> Form:
    """Return how a column is read. Raises UnsupportedTypeError."""
    name = re.sub(r"\(\d+\)", "", column.declared)
    if (make := _FORMS.get(name)) is None:
        raise UnsupportedTypeError(f"column {column.name} has type {column.declared}, which is not captured")
    return make(column)


# --- text


def _text(column: OracleColumn) -> Form:
    return Form(ColumnType(kind=Kind.VARCHAR, length=column.chars, **_UTF8), "{}", "{}", str)


def _char(column: OracleColumn) -> Form:
    """A bind is VARCHAR2, to which its blanks would count."""
    type_ = ColumnType(kind=Kind.CHAR, length=column.chars, **_UTF8)
    unit = "" if column.declared.startswith("N") else " CHAR"
    bind = f"CAST({{}} AS {column.declared}({column.chars}{unit}))"
    return Form(type_, "{}", bind, _without_padding, lambda text: text or " ")


def _without_padding(text: str) -> str:
    """CHAR compares without its blanks, and is kept without them, as elsewhere."""
    return text.rstrip(" ")


def _rowid(column: OracleColumn) -> Form:
    length = 18 if column.declared == "ROWID" else column.bytes
    return Form(ColumnType(kind=Kind.VARCHAR, length=length, **_UTF8), "ROWIDTOCHAR({})", None, str)


# --- numbers


def _number(column: OracleColumn) -> Form:
    """NUMBER(p, s); without a scale, and with one that goes further than elsewhere (-84 to 127), it is a decimal of any scale (precision 0),
    which is written without zeros at its end."""
    if column.scale is None:
        return _any_scale(column)
    precision, scale = column.precision or 38, column.scale
    if scale < 0:
        precision, scale = precision - scale, 0
    if max(precision, scale) > WIDEST_DECIMAL[0] or scale > WIDEST_DECIMAL[1]:
        return _any_scale(column)
    type_ = ColumnType(kind=Kind.DECIMAL, precision=max(precision, scale), scale=scale)
    return Form(type_, _NUMBER_FORMAT, "{}", lambda text: _scaled(text, scale), Decimal)


def _any_scale(_: OracleColumn) -> Form:
    """FLOAT(b) is such a NUMBER, too, of so many binary digits."""
    return Form(ColumnType(kind=Kind.DECIMAL), _NUMBER_FORMAT, "{}", plain_decimal, Decimal)


def _scaled(text: str, scale: int) -> str:
    """Return a number with exactly `scale` digits behind the point: "-0.50". It has no more than that."""
    whole, _, fraction = plain_decimal(text).partition(".")
    return f"{whole}.{fraction.ljust(scale, '0')}" if scale else whole


def _binary_float(bits: Kind) -> Callable[[OracleColumn], Form]:
    return lambda _: Form(ColumnType(kind=bits), "{}", None, wire_float)


def wire_float(value: float) -> Value:
    """JSON has no NaN and no infinity: those are text."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


# --- times


def _date(_: OracleColumn) -> Form:
    """DATE has a time of day."""
    form = f"{_DAY} HH24:MI:SS"
    return _time(Kind.DATETIME, 0, f"TO_CHAR({{}}, '{form}')", f"TO_DATE({{}}, '{form}')")


def _timestamp(column: OracleColumn) -> Form:
    digits = column.scale or 0
    form = f"{_DAY} HH24:MI:SS{f'.FF{digits}' if digits else ''}"
    return _time(Kind.DATETIME, digits, f"TO_CHAR({{}}, '{form}')", f"TO_TIMESTAMP({{}}, '{form}')")


def _instant(column: OracleColumn) -> Form:
    """TIMESTAMP WITH (LOCAL) TIME ZONE: the instant, in UTC. The zone in which it was written is not kept."""
    digits = column.scale or 0
    form = f'{_DAY}"T"HH24:MI:SS{f".FF{digits}" if digits else ""}"Z"'
    bind = f"FROM_TZ(TO_TIMESTAMP({{}}, '{form}'), 'UTC')"
    return _time(Kind.TIMESTAMP, digits, f"TO_CHAR(SYS_EXTRACT_UTC({{}}), '{form}')", bind)


def _time(kind: Kind, digits: int, select: str, bind: str) -> Form:
    type_ = ColumnType(kind=kind, fsp=digits)
    if digits > FINEST:
        type_ = ColumnType(kind=Kind.VARCHAR, length=40, **_UTF8)
    return Form(type_, select, bind, _year)


def _year(text: str) -> str:
    """SYYYY has a blank or a minus before the year."""
    return text.strip()


def _interval(_: OracleColumn) -> Form:
    """As Oracle writes it: "+000000002 03:04:05.000000", "+02-03"."""
    type_ = ColumnType(kind=Kind.VARCHAR, length=40, **_UTF8)
    return Form(type_, "TO_CHAR({})", None, _year)


# --- what no log holds


def _clob(_: OracleColumn) -> Form:
    return Form(ColumnType(kind=Kind.TEXT, **_UTF8), "{}", None, str)


def _blob(_: OracleColumn) -> Form:
    return Form(ColumnType(kind=Kind.BLOB), "{}", None, to_base64)


# --- bytes


def _raw(column: OracleColumn) -> Form:
    return Form(ColumnType(kind=Kind.VARBINARY, length=column.bytes), "{}", "{}", to_base64, from_base64)


_FORMS: dict[str, Callable[[OracleColumn], Form]] = {
    "CHAR": _char, "NCHAR": _char, "VARCHAR2": _text, "NVARCHAR2": _text,
    "ROWID": _rowid, "UROWID": _rowid,
    "NUMBER": _number, "FLOAT": _any_scale,
    "BINARY_FLOAT": _binary_float(Kind.FLOAT), "BINARY_DOUBLE": _binary_float(Kind.DOUBLE),
    "DATE": _date, "TIMESTAMP": _timestamp,
    "TIMESTAMP WITH TIME ZONE": _instant, "TIMESTAMP WITH LOCAL TIME ZONE": _instant,
    "INTERVAL YEAR TO MONTH": _interval, "INTERVAL DAY TO SECOND": _interval,
    "RAW": _raw,
    "CLOB": _clob, "NCLOB": _clob, "BLOB": _blob,
}  # fmt: skip
_IN_NO_LOG = frozenset({"CLOB", "NCLOB", "BLOB"})


def can_be_logged(column: OracleColumn) -> bool:
    """Tell whether a materialized view log can hold the column."""
    return column.declared not in _IN_NO_LOG
