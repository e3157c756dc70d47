"""The value of a column, added by a statement, in the existing rows: the server sets it without a row
event. Pure.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from schemas.table.model import Column, ColumnType, Kind, Value
from schemas.table.text_types import get_zero_text

_TEXT = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)
_EXACT_INT = 2**53


@dataclass(frozen=True, slots=True)
class ColumnFill:
    """The value of an added column in existing rows. `value`: a wire value; None is NULL."""

    value: Value


def find_fill(column: Column) -> ColumnFill | None:
    """Return the value of an added `column` in the existing rows; None: only a read of the source would
    show it.
    """
    if column.generated or column.auto_increment or column.default_expression is not None:
        return None
    if column.default is not None:
        return _parse_literal(column.default, column.type)
    return ColumnFill(None) if column.nullable else _find_implicit_default(column.type)


def _parse_literal(text: str, type_: ColumnType) -> ColumnFill | None:
    convert = _LITERALS.get(type_.kind)
    if convert is None:
        return None
    try:
        value = convert(text, type_)
    except (ValueError, InvalidOperation, OverflowError):
        return None
    return None if value is None else ColumnFill(value)


def _find_implicit_default(type_: ColumnType) -> ColumnFill | None:
    """Return the implicit default of a NOT NULL column.

    Dates have none that every server accepts; JSON and geometry have none at all.
    """
    if type_.text_of is not None:
        zero = get_zero_text(type_.text_of)
        return None if zero is None else ColumnFill(zero)
    match type_.kind:
        case Kind.INT | Kind.BIT | Kind.YEAR:
            return ColumnFill(0)
        case Kind.FLOAT | Kind.DOUBLE:
            return ColumnFill(0.0)
        case Kind.DECIMAL:
            return _parse_literal("0", type_)
        case Kind.CHAR | Kind.VARCHAR | Kind.TEXT | Kind.VARBINARY | Kind.BLOB | Kind.SET:
            return ColumnFill("")
        case Kind.ENUM:
            return ColumnFill(type_.members[0]) if type_.members else None
        case Kind.TIME:
            return ColumnFill("00:00:00" + _format_fraction("", type_.fsp))
        case _:
            return None


# --- literals, as the catalog shows them


def _parse_whole_number(text: str, _type: ColumnType) -> Value:
    number = int(text)
    return number if abs(number) <= _EXACT_INT else str(number)


def _parse_decimal(text: str, type_: ColumnType) -> Value:
    number = Decimal(text)
    shown = f"{number:.{type_.scale}f}"
    return shown if Decimal(shown) == number else None


def _parse_double(text: str, _type: ColumnType) -> Value:
    number = float(text)
    return number if math.isfinite(number) else None


def _parse_float(text: str, _type: ColumnType) -> Value:
    (widened,) = struct.unpack("<f", struct.pack("<f", float(text)))
    return float(widened) if math.isfinite(widened) else None


def _parse_text(text: str, type_: ColumnType) -> Value:
    return text.rstrip(" ") if type_.kind is Kind.CHAR else text


def _parse_label(text: str, type_: ColumnType) -> Value:
    return text if text in type_.members else None


def _parse_labels(text: str, type_: ColumnType) -> Value:
    chosen = text.split(",") if text else []
    return text if [each for each in type_.members if each in chosen] == chosen else None


def _parse_year(text: str, _type: ColumnType) -> Value:
    return int(text) if re.fullmatch(r"0000|1901|19\d\d|20\d\d|21[0-4]\d|215[0-5]", text) else None


_DATE = re.compile(r"(?!0000)\d{4}-(?!00)\d\d-(?!00)\d\d")
_CLOCK = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
_TIME = re.compile(f"-?{_CLOCK}")
_MOMENT = re.compile(f"{_DATE.pattern} {_CLOCK}")


def _parse_date(text: str, _type: ColumnType) -> Value:
    return text if _DATE.fullmatch(text) else None


def _parse_time(text: str, type_: ColumnType) -> Value:
    return _with_fraction(text, type_) if _TIME.fullmatch(text) else None


def _parse_moment(text: str, type_: ColumnType) -> Value:
    whole = f"{text} 00:00:00" if _DATE.fullmatch(text) else text
    return _with_fraction(whole, type_) if _MOMENT.fullmatch(whole) else None


def _with_fraction(text: str, type_: ColumnType) -> str | None:
    whole, _, digits = text.partition(".")
    if digits[type_.fsp :].strip("0"):
        return None  # it would be rounded
    return whole + _format_fraction(digits, type_.fsp)


def _format_fraction(digits: str, fsp: int) -> str:
    return "." + digits[:fsp].ljust(fsp, "0") if fsp else ""


#: Kinds for which the catalog shows the default as a self-contained text. A TIMESTAMP's depends on the
#: session's time zone.
_LITERALS: dict[Kind, Callable[[str, ColumnType], Value]] = {
    Kind.INT: _parse_whole_number,
    Kind.BIT: _parse_whole_number,
    Kind.DECIMAL: _parse_decimal,
    Kind.FLOAT: _parse_float,
    Kind.DOUBLE: _parse_double,
    Kind.YEAR: _parse_year,
    **dict.fromkeys(_TEXT, _parse_text),
    Kind.ENUM: _parse_label,
    Kind.SET: _parse_labels,
    Kind.DATE: _parse_date,
    Kind.TIME: _parse_time,
    Kind.DATETIME: _parse_moment,
}
