"""Literals of TDSQL's JSON subscription → wire values (schemas/table/model.py), by a column's type. Pure.

A reader takes a literal that is not NULL; it raises MisfitError or DoubtError.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

from producer.sources.tdsql_json.literals import DoubtError, LiteralForm, MisfitError, parse_bits, parse_hex
from producer.sources.tdsql_json.texts import (
    make_bytes_reader,
    make_enum_reader,
    make_json_reader,
    make_set_reader,
    make_text_reader,
)
from schemas.table.model import ColumnType, Kind, Value
from schemas.values.converter import encode_wire_int

ReadLiteral = Callable[[str], Value]
_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"(-?)0*([0-9]*)(?:\.([0-9]+))?")
_FLOAT = re.compile(r"-?([0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"'([0-9]{4}-([0-9]{2})-([0-9]{2}))'")
_DATETIME = re.compile(
    r"'(([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}))(?:\.([0-9]{1,6}))?'"
)
_TIME = re.compile(r"'(-?([0-9]{2,3}):([0-9]{2}):([0-9]{2}))(?:\.([0-9]{1,6}))?'")
_EPOCH = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([0-9]{1,6}))?")
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")
_SINGLE = struct.Struct("<f")
_LATEST_S = 2**32
"""The end of a TIMESTAMP's range, in seconds since 1970."""
_EXACT_DIGITS = {Kind.FLOAT: 9, Kind.DOUBLE: 17}
"""So many significant digits belong to one value only."""


def make_literal_reader(type_: ColumnType, form: LiteralForm) -> ReadLiteral:
    """Return the reader of a column's literals."""
    return _MAKE[type_.kind](type_, form)


def _make_int_reader(type_: ColumnType, _: LiteralForm) -> ReadLiteral:
    low, high = (
        (0, 2**type_.bits - 1) if type_.unsigned else (-(2 ** (type_.bits - 1)), 2 ** (type_.bits - 1) - 1)
    )
    is_safe = type_.bits < 64

    def read_int(literal: str) -> Value:
        try:
            number = int(literal)
        except ValueError:
            raise MisfitError("is not an integer") from None
        if str(number) != literal and not (
            type_.unsigned and _INTEGER.fullmatch(literal)
        ):  # ZEROFILL: "0042"
            raise MisfitError("is not an integer as a server prints it")
        if not low <= number <= high:
            raise MisfitError(f"is not within {low} and {high}")
        return number if is_safe else encode_wire_int(number)

    return read_int


def _make_year_reader(_type: ColumnType, _: LiteralForm) -> ReadLiteral:
    def read_year(literal: str) -> Value:
        if literal in ("0", "0000"):
            return 0
        if len(literal) != 4 or not literal.isdecimal() or not 1901 <= int(literal) <= 2155:
            raise MisfitError("is not a year of four digits")
        return int(literal)

    return read_year


def _make_bit_reader(type_: ColumnType, _: LiteralForm) -> ReadLiteral:
    def read_bit(literal: str) -> Value:
        number = parse_bits(literal)
        if number is None and (raw := parse_hex(literal)) is not None:
            number = int.from_bytes(raw, "big")
        if number is None:
            if _INTEGER.fullmatch(literal) is None:
                raise MisfitError("is neither a number nor a literal of bits")
            if len(literal) > 1 and set(literal) <= {"0", "1"}:
                raise DoubtError("is a decimal number or a list of bits")
            number = int(literal)
        if not 0 <= number < 2**type_.length:
            raise MisfitError(f"is not a number of {type_.length} bits")
        return encode_wire_int(number)

    return read_bit


def _make_decimal_reader(type_: ColumnType, _: LiteralForm) -> ReadLiteral:
    scale, most, match = type_.scale, type_.precision - type_.scale, _DECIMAL.fullmatch

    def read_decimal(literal: str) -> Value:
        found = match(literal)
        if found is None or literal in ("", "-"):
            raise MisfitError("is not a decimal number")
        sign, whole, fraction = found[1], found[2], found[3] or ""
        if len(fraction) > scale:
            if fraction[scale:].strip("0"):
                raise MisfitError(f"has more than {scale} digits after the point")
            fraction = fraction[:scale]
        if len(whole) > most:
            raise MisfitError(f"has more than {most} digits before the point")
        if sign and type_.unsigned:
            raise MisfitError("is negative in an unsigned column")
        text = f"{whole or '0'}.{fraction.ljust(scale, '0')}" if scale else whole or "0"
        return f"-{text}" if sign and text.strip("0.") else text

    return read_decimal


def _make_float_reader(type_: ColumnType, form: LiteralForm) -> ReadLiteral:
    digits = _EXACT_DIGITS[type_.kind]

    def read_float(literal: str) -> Value:
        found = _FLOAT.fullmatch(literal)
        if found is None:
            raise MisfitError("is not a number")
        if not form.are_floats_exact and len(found[1].replace(".", "").lstrip("0")) < digits:
            raise DoubtError(
                f"has fewer than {digits} digits, so the value may have been rounded to it: declare "
                "`are_floats_exact`"
            )
        number = float(literal)
        if type_.kind is Kind.FLOAT:
            try:
                number = _SINGLE.unpack(_SINGLE.pack(number))[0]
            except OverflowError:
                number = math.inf
        if not math.isfinite(number) or (type_.unsigned and number < 0):
            raise MisfitError(f"is not a value of the type {type_.kind.value}")
        return number

    return read_float


def _make_date_reader(_type: ColumnType, _: LiteralForm) -> ReadLiteral:
    def read_date(literal: str) -> Value:
        found = _DATE.fullmatch(literal)
        if found is None or found[2] > "12" or found[3] > "31":
            raise MisfitError("is not a date ('YYYY-MM-DD')")
        return found[1]

    return read_date


def _make_datetime_reader(type_: ColumnType, _: LiteralForm) -> ReadLiteral:
    fsp, match = type_.fsp, _DATETIME.fullmatch

    def read_datetime(literal: str) -> Value:
        found = match(literal)
        if found is None or not _is_wall_time(found):
            raise MisfitError("is not a time ('YYYY-MM-DD HH:MM:SS')")
        return found[1] + _fit_fraction(found[8], fsp)

    return read_datetime


def _is_wall_time(found: re.Match[str]) -> bool:
    return (
        found[3] <= "12" and found[4] <= "31" and found[5] <= "23" and found[6] <= "59" and found[7] <= "59"
    )


def _make_time_reader(type_: ColumnType, _: LiteralForm) -> ReadLiteral:
    def read_time(literal: str) -> Value:
        found = _TIME.fullmatch(literal)
        if found is None or int(found[2]) > 838 or found[3] > "59" or found[4] > "59":
            raise MisfitError("is not a time ('HH:MM:SS')")
        return found[1] + _fit_fraction(found[5], type_.fsp)

    return read_time


def _fit_fraction(digits: str | None, fsp: int) -> str:
    """Return ".f…" with `fsp` digits. Raises MisfitError if the literal has fewer, or others after them."""
    digits = digits or ""
    if len(digits) < fsp or digits[fsp:].strip("0"):
        raise MisfitError(f"has {len(digits)} digits of the second where the column has {fsp}")
    return f".{digits[:fsp]}" if fsp else ""


def _make_timestamp_reader(type_: ColumnType, form: LiteralForm) -> ReadLiteral:
    if form.timestamps == "epoch":
        return _make_epoch_reader(type_.fsp)
    zone = None if form.timestamps is None else _parse_offset(form.timestamps)

    def read_timestamp(literal: str) -> Value:
        found = _DATETIME.fullmatch(literal)
        if found is not None and found[1] == "0000-00-00 00:00:00":
            return found[1] + _fit_fraction(found[8], type_.fsp)
        if zone is None:
            raise DoubtError("is a time in a time zone that no message shows: declare `timestamps`")
        if found is None:
            raise MisfitError("is not a time ('YYYY-MM-DD HH:MM:SS')")
        try:
            seconds = int(datetime.fromisoformat(found[1]).replace(tzinfo=zone).timestamp())
        except ValueError:
            raise MisfitError("is not a time ('YYYY-MM-DD HH:MM:SS')") from None
        if not 0 < seconds < _LATEST_S:
            raise MisfitError("is not a time between 1970 and 2106")
        return _format_instant(seconds, _fit_fraction(found[8], type_.fsp))

    return read_timestamp


def _make_epoch_reader(fsp: int) -> ReadLiteral:
    def read_epoch(literal: str) -> Value:
        found = _EPOCH.fullmatch(literal)
        if found is None or int(found[1]) >= _LATEST_S:
            raise MisfitError("is not a number of seconds since 1970")
        fraction = _fit_fraction(found[2], fsp)
        if found[1] == "0" and not fraction.strip(".0"):
            return f"0000-00-00 00:00:00{fraction}"
        return _format_instant(int(found[1]), fraction)

    return read_epoch


def _format_instant(seconds: int, fraction: str) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _parse_offset(text: str) -> timezone:
    """Return the time zone of "+08:00". Raises ValueError."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is neither epoch nor the offset of a time zone")
    minutes = int(found[2]) * 60 + int(found[3])
    return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))


def _make_geometry_reader(_type: ColumnType, _: LiteralForm) -> ReadLiteral:
    def refuse_geometry(_literal: str) -> Value:
        raise DoubtError("is a geometry, of which no document shows the form")

    return refuse_geometry


_MAKE: dict[Kind, Callable[[ColumnType, LiteralForm], ReadLiteral]] = {
    Kind.INT: _make_int_reader,
    Kind.YEAR: _make_year_reader,
    Kind.BIT: _make_bit_reader,
    Kind.DECIMAL: _make_decimal_reader,
    Kind.FLOAT: _make_float_reader,
    Kind.DOUBLE: _make_float_reader,
    Kind.DATE: _make_date_reader,
    Kind.TIME: _make_time_reader,
    Kind.DATETIME: _make_datetime_reader,
    Kind.TIMESTAMP: _make_timestamp_reader,
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT), make_text_reader),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), make_bytes_reader),
    Kind.JSON: make_json_reader,
    **dict.fromkeys((Kind.ENUM, Kind.ENUM_NUMBER), make_enum_reader),
    **dict.fromkeys((Kind.SET, Kind.SET_NUMBER), make_set_reader),
    Kind.GEOMETRY: _make_geometry_reader,
}
