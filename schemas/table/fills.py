"""Says what a column that a statement added holds in the rows that were there: the server gives them a value without a row event. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from schemas.table.model import Column, ColumnType, Kind, Value

_TEXT = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)
_EXACT_INT = 2**53


@dataclass(frozen=True, slots=True)
class Fill:
    """`value`: a wire value; None is NULL."""

    value: Value


def fill_of(column: Column) -> Fill | None:
    """Return what the rows that were there have in an added `column`; None: nobody can tell without reading the source."""
    if column.generated or column.auto_increment or column.default_expression is not None:
        return None
    if column.default is not None:
        return _literal(column.default, column.type)
    return Fill(None) if column.nullable else _implicit(column.type)


def _literal(text: str, type_: ColumnType) -> Fill | None:
    convert = _LITERALS.get(type_.kind)
    if convert is None:
        return None
    try:
        value = convert(text, type_)
    except (ValueError, InvalidOperation, OverflowError):
        return None
    return None if value is None else Fill(value)


def _implicit(type_: ColumnType) -> Fill | None:
    """The value of NOT NULL without a default. Dates have none that every server holds; JSON and geometry none at all."""
    match type_.kind:
        case Kind.INT | Kind.BIT | Kind.YEAR:
            return Fill(0)
        case Kind.FLOAT | Kind.DOUBLE:
            return Fill(0.0)
        case Kind.DECIMAL:
            return _literal("0", type_)
        case Kind.CHAR | Kind.VARCHAR | Kind.TEXT | Kind.VARBINARY | Kind.BLOB | Kind.SET:
            return Fill("")
        case Kind.ENUM:
            return Fill(type_.members[0]) if type_.members else None
        case Kind.TIME:
            return Fill("00:00:00" + _fraction("", type_.fsp))
        case _:
            return None


# --- literals, as the catalogue shows them


def _whole(text: str, _type: ColumnType) -> Value:
    number = int(text)
    return number if abs(number) <= _EXACT_INT else str(number)


def _decimal(text: str, type_: ColumnType) -> Value:
    number = Decimal(text)
    shown = f"{number:.{type_.scale}f}"
    return shown if Decimal(shown) == number else None


def _double(text: str, _type: ColumnType) -> Value:
    number = float(text)
    return number if math.isfinite(number) else None


def _float(text: str, _type: ColumnType) -> Value:
    (widened,) = struct.unpack("<f", struct.pack("<f", float(text)))
    return float(widened) if math.isfinite(widened) else None


def _text(text: str, type_: ColumnType) -> Value:
    return text.rstrip(" ") if type_.kind is Kind.CHAR else text


def _label(text: str, type_: ColumnType) -> Value:
    return text if text in type_.members else None


def _labels(text: str, type_: ColumnType) -> Value:
    chosen = text.split(",") if text else []
    return text if [each for each in type_.members if each in chosen] == chosen else None


def _year(text: str, _type: ColumnType) -> Value:
    return int(text) if re.fullmatch(r"0000|1901|19\d\d|20\d\d|21[0-4]\d|215[0-5]", text) else None


_DATE = re.compile(r"(?!0000)\d{4}-(?!00)\d\d-(?!00)\d\d")
_CLOCK = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
_TIME = re.compile(f"-?{_CLOCK}")
_MOMENT = re.compile(f"{_DATE.pattern} {_CLOCK}")


def _date(text: str, _type: ColumnType) -> Value:
    return text if _DATE.fullmatch(text) else None


def _time(text: str, type_: ColumnType) -> Value:
    return _with_fraction(text, type_) if _TIME.fullmatch(text) else None


def _moment(text: str, type_: ColumnType) -> Value:
    whole = f"{text} 00:00:00" if _DATE.fullmatch(text) else text
    return _with_fraction(whole, type_) if _MOMENT.fullmatch(whole) else None


def _with_fraction(text: str, type_: ColumnType) -> str | None:
    whole, _, digits = text.partition(".")
    if digits[type_.fsp :].strip("0"):
        return None  # it would be rounded
    return whole + _fraction(digits, type_.fsp)


def _fraction(digits: str, fsp: int) -> str:
    return "." + digits[:fsp].ljust(fsp, "0") if fsp else ""


#: Kinds whose default the catalogue shows as a text that says the value by itself. A TIMESTAMP's depends on the session's time zone.
_LITERALS: dict[Kind, Callable[[str, ColumnType], Value]] = {
    Kind.INT: _whole,
    Kind.BIT: _whole,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _double,
    Kind.YEAR: _year,
    **dict.fromkeys(_TEXT, _text),
    Kind.ENUM: _label,
    Kind.SET: _labels,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.DATETIME: _moment,
}
