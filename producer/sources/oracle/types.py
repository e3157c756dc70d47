"""Maps Oracle's types to neutral types, SQL expressions and wire values.

Pure; docs/how-to/oracle-source.md has the table.

Each column is selected so that the driver returns one Python type whatever its settings: text for
numbers and times, bytes for RAW, float for BINARY_FLOAT and BINARY_DOUBLE. The empty string is NULL to
Oracle, so no text is ever empty here except a CHAR of blanks.
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
from schemas.values.converter import from_base64, normalize_decimal, to_base64

MAX_TIME_DIGITS = 6
"""Digits of a fraction of a second that other databases store. A more precise time is text."""
_UTF8: dict[str, Any] = {"charset": "utf8mb4", "collation": "utf8mb4_0900_bin"}
_NUMBER_FORMAT = "TO_CHAR({}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"
_DAY = "SYYYY-MM-DD"

ToWireValue = Callable[..., Value]


class OracleColumn(NamedTuple):
    """A column of ALL_TAB_COLS.

    `declared`: DATA_TYPE, with its precision where that is part of the name.
    """

    name: str
    declared: str
    bytes: int
    chars: int
    precision: int | None
    scale: int | None
    nullable: bool
    virtual: bool
    has_default: bool


class OracleColumnForm(NamedTuple):
    """The expressions by which a column is selected, read and compared.

    `select`: the expression of the column `{}`. `convert`: from the driver's value, never None, to the
    wire value. `bind`: the expression that makes a bind a value of the column's type; None: the column
    cannot be part of a key. `bound`: the bind of a wire value.
    """

    type: ColumnType
    select: str
    bind: str | None
    convert: ToWireValue
    bound: Callable[[Any], object] = str


def build_column_form(column: OracleColumn) -> OracleColumnForm:
    """Return how a column is read. Raises UnsupportedTypeError."""
    name = re.sub(r"\(\d+\)", "", column.declared)
    if (make := _FORMS.get(name)) is None:
        raise UnsupportedTypeError(f"column {column.name} has type {column.declared}, which is not captured")
    return make(column)


# --- text


def _build_text_form(column: OracleColumn) -> OracleColumnForm:
    return OracleColumnForm(ColumnType(kind=Kind.VARCHAR, length=column.chars, **_UTF8), "{}", "{}", str)


def _build_char_form(column: OracleColumn) -> OracleColumnForm:
    """Return the form of CHAR.

    A bind would be VARCHAR2, which compares with its trailing blanks, so it is cast.
    """
    type_ = ColumnType(kind=Kind.CHAR, length=column.chars, **_UTF8)
    unit = "" if column.declared.startswith("N") else " CHAR"
    bind = f"CAST({{}} AS {column.declared}({column.chars}{unit}))"
    return OracleColumnForm(type_, "{}", bind, _strip_padding, lambda text: text or " ")


def _strip_padding(text: str) -> str:
    """Return the text without trailing blanks, which do not count in comparisons of CHAR; other
    databases store it like that too.
    """
    return text.rstrip(" ")


def _build_rowid_form(column: OracleColumn) -> OracleColumnForm:
    length = 18 if column.declared == "ROWID" else column.bytes
    return OracleColumnForm(
        ColumnType(kind=Kind.VARCHAR, length=length, **_UTF8), "ROWIDTOCHAR({})", None, str
    )


# --- numbers


def _build_number_form(column: OracleColumn) -> OracleColumnForm:
    """Return the form of NUMBER(p, s).

    Without a scale, or with one outside the range of other databases (-84 to 127), the column is a
    decimal of any scale (precision 0), written without trailing zeros.
    """
    if column.scale is None:
        return _build_float_form(column)
    precision, scale = column.precision or 38, column.scale
    if scale < 0:
        precision, scale = precision - scale, 0
    if max(precision, scale) > WIDEST_DECIMAL[0] or scale > WIDEST_DECIMAL[1]:
        return _build_float_form(column)
    type_ = ColumnType(kind=Kind.DECIMAL, precision=max(precision, scale), scale=scale)
    return OracleColumnForm(type_, _NUMBER_FORMAT, "{}", lambda text: _format_scaled(text, scale), Decimal)


def _build_float_form(_: OracleColumn) -> OracleColumnForm:
    """Return the form of a NUMBER of any scale; FLOAT(b) is one, with b binary digits."""
    return OracleColumnForm(ColumnType(kind=Kind.DECIMAL), _NUMBER_FORMAT, "{}", normalize_decimal, Decimal)


def _format_scaled(text: str, scale: int) -> str:
    """Return a number with exactly `scale` digits after the point, as in "-0.50".

    The number has no more digits than that.
    """
    whole, _, fraction = normalize_decimal(text).partition(".")
    return f"{whole}.{fraction.ljust(scale, '0')}" if scale else whole


def _make_binary_float_builder(bits: Kind) -> Callable[[OracleColumn], OracleColumnForm]:
    return lambda _: OracleColumnForm(ColumnType(kind=bits), "{}", None, convert_oracle_float)


def convert_oracle_float(value: float) -> Value:
    """Return the float, or text for NaN and infinity, which JSON does not have."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


# --- times


def _build_date_form(_: OracleColumn) -> OracleColumnForm:
    """Return the form of DATE, which has a time of day."""
    form = f"{_DAY} HH24:MI:SS"
    return _build_time_form(Kind.DATETIME, 0, f"TO_CHAR({{}}, '{form}')", f"TO_DATE({{}}, '{form}')")


def _build_timestamp_form(column: OracleColumn) -> OracleColumnForm:
    digits = column.scale or 0
    form = f"{_DAY} HH24:MI:SS{f'.FF{digits}' if digits else ''}"
    return _build_time_form(
        Kind.DATETIME, digits, f"TO_CHAR({{}}, '{form}')", f"TO_TIMESTAMP({{}}, '{form}')"
    )


def _build_instant_form(column: OracleColumn) -> OracleColumnForm:
    """Return the form of TIMESTAMP WITH (LOCAL) TIME ZONE: the instant in UTC.

    The original time zone is not kept.
    """
    digits = column.scale or 0
    form = f'{_DAY}"T"HH24:MI:SS{f".FF{digits}" if digits else ""}"Z"'
    bind = f"FROM_TZ(TO_TIMESTAMP({{}}, '{form}'), 'UTC')"
    return _build_time_form(Kind.TIMESTAMP, digits, f"TO_CHAR(SYS_EXTRACT_UTC({{}}), '{form}')", bind)


def _build_time_form(kind: Kind, digits: int, select: str, bind: str) -> OracleColumnForm:
    type_ = ColumnType(kind=kind, fsp=digits)
    if digits > MAX_TIME_DIGITS:
        type_ = ColumnType(kind=Kind.VARCHAR, length=40, **_UTF8)
    return OracleColumnForm(type_, select, bind, _strip_blanks)


def _strip_blanks(text: str) -> str:
    """Strip the blank that SYYYY writes before the year in place of a minus."""
    return text.strip()


def _build_interval_form(_: OracleColumn) -> OracleColumnForm:
    """Return the form of an interval: Oracle's own text, "+000000002 03:04:05.000000" or "+02-03"."""
    type_ = ColumnType(kind=Kind.VARCHAR, length=40, **_UTF8)
    return OracleColumnForm(type_, "TO_CHAR({})", None, _strip_blanks)


# --- types that no log holds


def _build_clob_form(_: OracleColumn) -> OracleColumnForm:
    return OracleColumnForm(ColumnType(kind=Kind.TEXT, **_UTF8), "{}", None, str)


def _build_blob_form(_: OracleColumn) -> OracleColumnForm:
    return OracleColumnForm(ColumnType(kind=Kind.BLOB), "{}", None, to_base64)


# --- bytes


def _build_raw_form(column: OracleColumn) -> OracleColumnForm:
    return OracleColumnForm(
        ColumnType(kind=Kind.VARBINARY, length=column.bytes), "{}", "{}", to_base64, from_base64
    )


_FORMS: dict[str, Callable[[OracleColumn], OracleColumnForm]] = {
    "CHAR": _build_char_form, "NCHAR": _build_char_form, "VARCHAR2": _build_text_form,
    "NVARCHAR2": _build_text_form, "ROWID": _build_rowid_form, "UROWID": _build_rowid_form,
    "NUMBER": _build_number_form, "FLOAT": _build_float_form,
    "BINARY_FLOAT": _make_binary_float_builder(Kind.FLOAT),
    "BINARY_DOUBLE": _make_binary_float_builder(Kind.DOUBLE),
    "DATE": _build_date_form, "TIMESTAMP": _build_timestamp_form,
    "TIMESTAMP WITH TIME ZONE": _build_instant_form, "TIMESTAMP WITH LOCAL TIME ZONE": _build_instant_form,
    "INTERVAL YEAR TO MONTH": _build_interval_form, "INTERVAL DAY TO SECOND": _build_interval_form,
    "RAW": _build_raw_form,
    "CLOB": _build_clob_form, "NCLOB": _build_clob_form, "BLOB": _build_blob_form,
}  # fmt: skip
_IN_NO_LOG = frozenset({"CLOB", "NCLOB", "BLOB"})


def can_be_logged(column: OracleColumn) -> bool:
    """Return whether a materialized view log can hold the column."""
    return column.declared not in _IN_NO_LOG
