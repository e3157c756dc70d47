"""Functions that convert a column's value in Debezium's JSON to the wire value (schemas/table/model.py).

A value that could be another value in another mode of the connector is refused if the mode is unknown:
bytes that could be hexadecimal, microseconds that could be milliseconds. With schemas on, the schema
shows the mode; the source's configuration may state it, too. Most values are unambiguous.
"""

from __future__ import annotations

import binascii
import datetime
import operator
import re
import struct
from collections.abc import Callable
from typing import Any

from schemas.problems import Problem
from schemas.table.model import ColumnType, Kind, TextOf, Value
from schemas.table.text_types import format_vector, normalize_text
from schemas.values.converter import Convert, encode_wire_int

_HEX = re.compile(r"(?:[0-9a-f]{4})+\Z")
LONGEST_TIME_MS = 3_020_399_999
"""838:59:59.999, the longest TIME, in milliseconds."""
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999 in milliseconds since 1970: as microseconds that is in January 1978."""

_SCHEMAS_REMEDY = (
    "turn schemas on in the connector's JSON converter (value.converter.schemas.enable), or set "
    "in the source's configuration"
)
_UNIT_DOUBT = Problem(
    "it could count microseconds or milliseconds (time.precision.mode=connect, which loses digits)",
    f"{_SCHEMAS_REMEDY} `times: adaptive_time_microseconds` if that is the connector's time.precision.mode",
)


class DoubtfulValueError(ValueError):
    """A value has two possible meanings."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _explain_doubtful_bytes(text: str) -> Problem | None:
    """Return why base64 could be hexadecimal; None: it could not, or it is empty."""
    if _HEX.match(text) is None:
        return None
    return Problem(
        "it could be base64 or hexadecimal",
        f"{_SCHEMAS_REMEDY} `binaries`, which is the connector's binary.handling.mode",
    )


def _explain_doubtful_time(value: int, fsp: int) -> Problem | None:
    """Return why the microseconds of a TIME could be milliseconds; None: they could not."""
    as_ms = abs(value) <= LONGEST_TIME_MS and value % 10 ** max(0, 3 - fsp) == 0
    return _UNIT_DOUBT if value and as_ms else None


def _explain_doubtful_datetime(value: int, fsp: int) -> Problem | None:
    """Return why the microseconds of a DATETIME could be milliseconds; None: they could not.

    Up to DATETIME(3), Debezium writes milliseconds anyway.
    """
    return _UNIT_DOUBT if fsp > 3 and value and abs(value) < LATEST_MS else None


_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall time

CONVERSION_ERRORS = (TypeError, ValueError, OverflowError, struct.error, KeyError)


def make_debezium_converter(
    type_: ColumnType, *, decimal_strings: bool, binaries: str | None = "bytes", times_known: bool = True
) -> Convert:
    """Return the converter of Debezium's values; it raises one of CONVERSION_ERRORS for a value of
    another type.

    `binaries`: binary.handling.mode, None: unknown. `times_known`: a schema or the configuration states
    the unit of times.
    """
    if type_.text_of is TextOf.VECTOR:
        return _convert_vector
    if type_.text_of is not None:
        return _make_text_type_converter(type_.text_of)
    if type_.kind is Kind.DECIMAL and decimal_strings:
        return _convert_text
    if type_.kind in BYTES:
        return _make_binary_converter(binaries)
    if type_.kind in (Kind.TIME, Kind.DATETIME) and not times_known:
        return _make_undoubted_converter(type_)
    make = _MAKE.get(type_.kind)
    return make(type_) if make else _convert_text


BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB})


def _make_undoubted_converter(type_: ColumnType) -> Convert:
    """Return the converter of a TIME or DATETIME that refuses values which could have another unit."""
    explain_doubt = _explain_doubtful_time if type_.kind is Kind.TIME else _explain_doubtful_datetime
    convert, fsp = _MAKE[type_.kind](type_), type_.fsp

    def convert_undoubted(value: Any) -> Value:
        why = explain_doubt(operator.index(value), fsp)
        if why is not None:
            raise DoubtfulValueError(why)
        found: Value = convert(value)
        return found

    return convert_undoubted


def _make_binary_converter(mode: str | None) -> Convert:
    """Return the converter to wire base64: standard, padded, without other characters."""
    if mode == "hex":
        return lambda value: _encode_base64(bytes.fromhex(_require_text(value)))
    if mode == "base64-url-safe":
        return lambda value: _encode_base64(_decode_base64(_require_text(value).translate(_STANDARD)))

    def convert(value: Any) -> Value:
        if mode is None and (why := _explain_doubtful_bytes(_require_text(value))) is not None:
            raise DoubtfulValueError(why)
        return _encode_base64(_decode_base64(_require_text(value)))

    return convert


_STANDARD = str.maketrans("-_+/", "+/\0\0")


def _encode_base64(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode()


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _convert_vector(value: Any) -> Value:
    """Return the text of FloatVector's array of numbers."""
    if not isinstance(value, list):
        raise TypeError(f"an array is expected, not {type(value).__name__}")
    return format_vector(struct.pack(f"<{len(value)}f", *value))


def _make_text_type_converter(text_of: TextOf) -> Convert:
    """Return the converter of a text that must be in the source's spelling."""

    def convert(value: Any) -> Value:
        text = _require_text(value)
        if normalize_text(text_of, text) != text:
            raise ValueError(f"{text!r} is not the source's spelling of a value of {text_of}")
        return text

    return convert


def _convert_text(value: Any) -> Value:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _make_int_converter(type_: ColumnType) -> Convert:
    if type_.bits < 64:
        return operator.index  # refuses all but integers and booleans
    most = 2**64 if type_.unsigned else 0

    def convert(value: Any) -> Value:
        if isinstance(value, str):  # bigint.unsigned.handling.mode=precise: Decimal of scale 0
            return encode_wire_int(int.from_bytes(_decode_base64(value), "big", signed=True))
        number = operator.index(value)
        return encode_wire_int(number + most if number < 0 else number)

    return convert


def _make_decimal_converter(type_: ColumnType) -> Convert:
    """Return the converter of a precise decimal: base64 of the unscaled number, big-endian two's
    complement.
    """
    scale = type_.scale

    def convert(value: Any) -> Value:
        unscaled = int.from_bytes(_decode_base64(value), "big", signed=True)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        number = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return f"-{number}" if unscaled < 0 else number

    return convert


def _decode_base64(value: Any) -> bytes:
    return binascii.a2b_base64(value, strict_mode=True)


def _make_float_converter(_: ColumnType) -> Convert:
    """Return the converter of a FLOAT: Debezium prints its shortest digits, the wire value is the float
    widened exactly.
    """
    single = struct.Struct("<f")
    return lambda value: single.unpack(single.pack(value))[0]


def _make_bit_converter(_: ColumnType) -> Convert:
    """Return the converter of a BIT: BIT(1) is a boolean, others are base64 of little-endian bytes."""
    return lambda value: (
        int(value)
        if isinstance(value, bool)
        else encode_wire_int(int.from_bytes(_decode_base64(value), "little"))
    )


def _make_date_converter(_: ColumnType) -> Convert:
    return lambda value: _format_datetime(operator.index(value) * 86_400_000_000, 0)[:10]


def _make_time_converter(type_: ColumnType) -> Convert:
    fsp = type_.fsp
    step = 10 ** (6 - fsp)

    def convert(value: Any) -> Value:
        micros = operator.index(value)
        if micros % step:
            raise ValueError(f"it has digits beyond TIME({fsp}): its unit is not microseconds")
        seconds, rest = divmod(abs(micros), 1_000_000)
        clock = (
            f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_format_fraction(rest, fsp)}"
        )
        return f"-{clock}" if micros < 0 else clock

    return convert


def _make_datetime_converter(type_: ColumnType) -> Convert:
    """Return the converter of a DATETIME: milliseconds up to DATETIME(3), microseconds beyond."""
    unit, fsp = 1000 if type_.fsp <= 3 else 1, type_.fsp
    return lambda value: _format_datetime(operator.index(value) * unit, fsp)


def _format_datetime(micros: int, fsp: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.isoformat(" ", "microseconds")[: 20 + fsp if fsp else 19]


def _format_fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _make_timestamp_converter(type_: ColumnType) -> Convert:
    fsp = type_.fsp

    def convert(value: Any) -> Value:
        moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC).replace(tzinfo=None)
        return moment.isoformat("T", "microseconds")[: 20 + fsp if fsp else 19] + "Z"

    return convert


def _make_geometry_converter(_: ColumnType) -> Convert:
    return lambda value: {"wkb": _encode_base64(_decode_base64(value["wkb"])), "srid": value.get("srid") or 0}


def _make_enum_number_converter(type_: ColumnType) -> Convert:
    """Return the converter of a label to its number.

    A connector writes "" for the empty label and for the error value.
    """
    places: dict[Any, int] = {label: place for place, label in enumerate(type_.members, 1) if label}

    def convert(value: Any) -> Value:
        if not isinstance(value, str):
            return operator.index(value)
        if not value:
            raise ValueError("it is either the empty label or the error value")
        return places[value]

    return convert


def _set_number(type_: ColumnType) -> Convert:
    """Return the converter of comma-separated labels to bits.

    A connector writes "" both for the empty label alone and for no label. Its snapshot contains the
    server's text, which has no comma after a leading empty label: "a" of SET('', 'a') is 2 or 3.
    """
    bits = {label: 1 << place for place, label in enumerate(type_.members)}
    empty = bits[""]

    def convert(value: Any) -> Value:
        if not isinstance(value, str):
            number = operator.index(value)
            return encode_wire_int(number + 2**64 if number < 0 else number)
        if not value:
            raise ValueError("it is either the empty label or no label")
        chosen = [bits[label] for label in value.split(",")]
        if chosen[0] > empty:
            raise ValueError("a snapshot's text does not show whether the empty label precedes it")
        return encode_wire_int(sum(chosen))

    return convert


def _make_label_text_converter(type_: ColumnType) -> Convert:
    """Return the converter of labels as text.

    Definitions of versions before 0.1.0 have text even if one label is empty.
    """
    if "" not in type_.members:
        return _convert_text
    number = (_make_enum_number_converter if type_.kind is Kind.ENUM else _set_number)(type_)

    def convert(value: Any) -> Value:
        number(_require_text(value))
        return _require_text(value)

    return convert


_MAKE: dict[Kind, Callable[[ColumnType], Convert]] = {
    **dict.fromkeys((Kind.ENUM, Kind.SET), _make_label_text_converter),
    Kind.ENUM_NUMBER: _make_enum_number_converter,
    Kind.SET_NUMBER: _set_number,
    Kind.INT: _make_int_converter,
    Kind.YEAR: lambda _: operator.index,
    Kind.DECIMAL: _make_decimal_converter,
    Kind.FLOAT: _make_float_converter,
    Kind.DOUBLE: lambda _: lambda value: value * 1.0,
    Kind.BIT: _make_bit_converter,
    Kind.DATE: _make_date_converter,
    Kind.TIME: _make_time_converter,
    Kind.DATETIME: _make_datetime_converter,
    Kind.TIMESTAMP: _make_timestamp_converter,
    Kind.GEOMETRY: _make_geometry_converter,
}
