"""One function a column from Debezium's JSON value to the wire value (schemas/table.py)."""

from __future__ import annotations

import binascii
import datetime
import operator
import struct
from collections.abc import Callable
from typing import Any

from schemas.converter import Convert, wire_int
from schemas.table import ColumnType, Kind, Value

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall time

CONVERSION = (TypeError, ValueError, OverflowError, struct.error, KeyError)


def converter(type_: ColumnType, *, decimal_strings: bool) -> Convert:
    """Return what makes a wire value of Debezium's; it raises one of CONVERSION for what is none of this type."""
    if type_.kind is Kind.DECIMAL and decimal_strings:
        return _text
    make = _MAKE.get(type_.kind)
    return make(type_) if make else _text


def _text(value: Any) -> Value:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _int(type_: ColumnType) -> Convert:
    if type_.bits < 64:
        return operator.index  # refuses all but integers and booleans
    most = 2**64 if type_.unsigned else 0

    def convert(value: Any) -> Value:
        if isinstance(value, str):  # bigint.unsigned.handling.mode=precise: Decimal of scale 0
            return wire_int(int.from_bytes(_bytes(value), "big", signed=True))
        number = operator.index(value)
        return wire_int(number + most if number < 0 else number)

    return convert


def _decimal(type_: ColumnType) -> Convert:
    """Precise: base64 of the unscaled number, big-endian two's complement."""
    scale = type_.scale

    def convert(value: Any) -> Value:
        unscaled = int.from_bytes(_bytes(value), "big", signed=True)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        number = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return f"-{number}" if unscaled < 0 else number

    return convert


def _bytes(value: Any) -> bytes:
    return binascii.a2b_base64(value, strict_mode=True)


def _float(_: ColumnType) -> Convert:
    """Debezium prints a float's shortest digits; the wire has the float widened exactly."""
    single = struct.Struct("<f")
    return lambda value: single.unpack(single.pack(value))[0]


def _bit(_: ColumnType) -> Convert:
    """BIT(1) is a boolean, others base64 of little-endian bytes."""
    return lambda value: (
        int(value) if isinstance(value, bool) else wire_int(int.from_bytes(_bytes(value), "little"))
    )


def _date(_: ColumnType) -> Convert:
    return lambda value: _wall(operator.index(value) * 86_400_000_000, 0)[:10]


def _time(type_: ColumnType) -> Convert:
    fsp = type_.fsp

    def convert(value: Any) -> Value:
        micros = operator.index(value)
        seconds, rest = divmod(abs(micros), 1_000_000)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest, fsp)}"
        return f"-{clock}" if micros < 0 else clock

    return convert


def _datetime(type_: ColumnType) -> Convert:
    """Milliseconds up to DATETIME(3), microseconds beyond."""
    unit, fsp = 1000 if type_.fsp <= 3 else 1, type_.fsp
    return lambda value: _wall(operator.index(value) * unit, fsp)


def _wall(micros: int, fsp: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.isoformat(" ", "microseconds")[: 20 + fsp if fsp else 19]


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _timestamp(type_: ColumnType) -> Convert:
    fsp = type_.fsp

    def convert(value: Any) -> Value:
        moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC).replace(tzinfo=None)
        return moment.isoformat("T", "microseconds")[: 20 + fsp if fsp else 19] + "Z"

    return convert


def _geometry(_: ColumnType) -> Convert:
    return lambda value: {"wkb": value["wkb"], "srid": value.get("srid") or 0}


_MAKE: dict[Kind, Callable[[ColumnType], Convert]] = {
    Kind.INT: _int,
    Kind.YEAR: lambda _: operator.index,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.DOUBLE: lambda _: lambda value: value * 1.0,
    Kind.BIT: _bit,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.DATETIME: _datetime,
    Kind.TIMESTAMP: _timestamp,
    Kind.GEOMETRY: _geometry,
}
