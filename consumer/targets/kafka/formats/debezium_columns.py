"""Columns in the form of Debezium's MySQL connector: a Connect schema and the conversions of values to
it and back. Pure.

The forms follow Debezium's default settings: `decimal.handling.mode` precise, `time.precision.mode`
adaptive_time_microseconds, `bigint.unsigned.handling.mode` long, `binary.handling.mode` bytes;
Connect's JSON converter writes bytes as base64. A value that these would lose is refused (a zero date,
which Debezium replaces). Types for which Debezium has no form get one of ours, listed in
docs/reference/kafka-formats.md.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from schemas.table.model import Column, ColumnType, Kind, Value
from schemas.values.converter import Convert, from_base64, to_base64
from schemas.wire.debezium_values import make_debezium_converter as reader_of

Schema = dict[str, object]
FINEST_DIGITS = 6
"""Digits of a second that Debezium's forms for MySQL can hold."""

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall time
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_SIGN = 2**63
_INT32 = 2**31


class ColumnForm(NamedTuple):
    """The form of a column."""

    schema: Schema
    """The schema of Kafka Connect, without optional, default and field."""
    write: Convert | None
    """Wire value → JSON value; None: the same value."""
    read: Convert | None
    """JSON value → wire value; None: the same value."""


def build_debezium_form(type_: ColumnType) -> ColumnForm | None:
    """Return Debezium's form of a type; None: it has no form that keeps every value."""
    if type_.fsp > FINEST_DIGITS or type_.kind not in _FORMS:
        return None
    schema, write = _FORMS[type_.kind](type_)
    if type_.kind is Kind.DECIMAL and not type_.precision:
        return ColumnForm(schema, write, _read_any_scale)
    read = reader_of(type_, decimal_strings=False)
    wrapped = {
        Kind.FLOAT: _read_nan_as_text,
        Kind.DOUBLE: _read_nan_as_text,
        Kind.INT: _reject_booleans,
        Kind.YEAR: _reject_booleans,
    }
    wrap = wrapped.get(type_.kind)
    return ColumnForm(schema, write, read if wrap is None else wrap(read))


def build_column_field(column: Column, form: ColumnForm) -> Schema:
    """Return the field of a struct's schema, with members in the order of Connect's JSON converter.

    Only NOT NULL columns have a default: readers of the schema would replace a NULL by it.
    """
    schema = dict(form.schema)
    field: Schema = {"type": schema.pop("type")}
    if "fields" in schema:
        field["fields"] = schema.pop("fields")
    field |= {"optional": column.nullable, **schema}
    default = None if column.nullable or column.default is None else _convert_default(column, form)
    if default is not None:
        field["default"] = default
    return {**field, "field": column.name}


# --- defaults

#: Kinds with an unambiguous literal in a definition → its wire value. A TIMESTAMP's depends on the
#: reader's time zone.
_LITERALS: dict[Kind, Callable[[ColumnType, str], Value]] = {
    **dict.fromkeys((Kind.INT, Kind.YEAR, Kind.BIT), lambda _, text: int(text)),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), lambda _, text: float(text)),
    **dict.fromkeys(
        (Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET, Kind.DATE), lambda _, text: text
    ),
    Kind.DECIMAL: lambda type_, text: _pad_fraction(text, type_.scale),
    Kind.TIME: lambda type_, text: _pad_fraction(text, type_.fsp),
    Kind.DATETIME: lambda type_, text: _pad_fraction(text, type_.fsp),
}


def _pad_fraction(text: str, digits: int) -> str:
    """Return a literal with exactly `digits` digits after the decimal point."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')}" if digits else whole


def _convert_default(column: Column, form: ColumnForm) -> object | None:
    """Return a literal default in Debezium's form; None: it has none there, for instance a zero date."""
    read = _LITERALS.get(column.type.kind)
    if read is None or column.default is None:
        return None
    try:
        value = read(column.type, column.default)
        written: object = form.write(value) if form.write is not None else value
    except (TypeError, ValueError, OverflowError, KeyError):
        return None
    return written


# --- the forms


def _build_named_schema(type_: str, name: str, **parameters: object) -> Schema:
    schema: Schema = {"type": type_, "name": name, "version": 1}
    return {**schema, "parameters": parameters} if parameters else schema


def _build_int_form(type_: ColumnType) -> tuple[Schema, Convert | None]:
    if type_.bits == 64:
        return {"type": "int64"}, _wrap_to_int64
    wide = type_.bits + 1 if type_.unsigned else type_.bits
    return {"type": "int16" if wide <= 16 else "int32" if wide <= 32 else "int64"}, None


def _wrap_to_int64(value: Any) -> int:
    """Return BIGINT UNSIGNED as signed: from 2^63 on it is negative, as in Debezium (the same 64 bits)."""
    number = int(value)
    return number - 2 * _SIGN if number >= _SIGN else number


def _encode_unscaled(number: int) -> str:
    """Return base64 of the shortest big-endian two's complement, like Java's BigInteger."""
    size = (~number if number < 0 else number).bit_length() // 8 + 1
    return to_base64(number.to_bytes(size, "big", signed=True))


def _build_decimal_form(type_: ColumnType) -> tuple[Schema, Convert | None]:
    scale = type_.scale
    if not type_.precision:
        fields = [_build_plain_schema("int32", "scale"), _build_plain_schema("bytes", "value")]
        return {
            **_build_named_schema("struct", "io.debezium.data.VariableScaleDecimal"),
            "fields": fields,
        }, _encode_variable_scale

    def write(value: Any) -> str:
        whole, _, fraction = value.partition(".")
        if len(fraction) != scale:
            raise ValueError("its number of decimal places differs from the column's scale")
        return _encode_unscaled(int(whole + fraction))

    name = "org.apache.kafka.connect.data.Decimal"
    parameters: Schema = {"scale": str(scale), "connect.decimal.precision": str(type_.precision)}
    return {**_build_named_schema("bytes", name), "parameters": parameters}, write


def _build_plain_schema(type_: str, field: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": field}


def _encode_variable_scale(value: Any) -> dict[str, object]:
    whole, _, fraction = value.partition(".")
    return {"scale": len(fraction), "value": _encode_unscaled(int(whole + fraction))}


def _read_any_scale(value: Any) -> Value:
    scale = int(value["scale"])
    read = reader_of(ColumnType(kind=Kind.DECIMAL, precision=1, scale=scale), decimal_strings=False)
    found: Value = read(value["value"])
    return found


_single = struct.Struct("<f")


def _convert_float(value: Any) -> Value:
    """Return the shortest digits for this 32-bit float.

    NaN and the infinities, which Oracle has, are text.
    """
    if isinstance(value, str):
        return value
    bits = _single.pack(value)
    if _single.unpack(bits)[0] != value:
        raise ValueError("it has more digits than a float of 32 bits")
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        try:
            if _single.pack(short) == bits:
                return short
        except OverflowError:  # rounded up, past the largest float
            continue
    raise ValueError("it is no float of 32 bits")


def _read_nan_as_text(read: Convert) -> Convert:
    return lambda value: value if value in ("NaN", "Infinity", "-Infinity") else read(value)


def _reject_booleans(read: Convert) -> Convert:
    """Return `read` for numbers only: a boolean, which Python takes for a number, was written for a
    BIT(1).
    """

    def number(value: Any) -> Value:
        if isinstance(value, bool):
            raise TypeError("a number is expected")
        found: Value = read(value)
        return found

    return number


def _build_bit_form(type_: ColumnType) -> tuple[Schema, Convert | None]:
    if type_.length == 1:
        return {"type": "boolean"}, lambda value: bool(int(value))
    size = (type_.length + 7) // 8
    schema = _build_named_schema("bytes", "io.debezium.data.Bits", length=str(type_.length))
    return schema, lambda value: to_base64(int(value).to_bytes(size, "little"))


def _encode_date(value: Any) -> int:
    return datetime.date.fromisoformat(value).toordinal() - _EPOCH_DAY


def _encode_time(value: Any) -> int:
    """Return microseconds; hours up to 838, either sign."""
    clock, _, fraction = value.lstrip("-").partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0"))
    return -micros if value.startswith("-") else micros


def _build_datetime_form(type_: ColumnType) -> tuple[Schema, Convert | None]:
    """Return the form of a DATETIME: milliseconds up to DATETIME(3), else microseconds, of wall time as
    if it were UTC.
    """
    coarse = type_.fsp <= 3
    unit = datetime.timedelta(microseconds=1000 if coarse else 1)
    schema = _build_named_schema("int64", f"io.debezium.time.{'Timestamp' if coarse else 'MicroTimestamp'}")
    return schema, lambda value: (datetime.datetime.fromisoformat(value) - _EPOCH) // unit


def _format_timestamp(value: Any) -> str:
    datetime.datetime.fromisoformat(value)  # fails for the zero timestamp, and for a day that no calendar has
    if not value.endswith("Z"):
        raise ValueError("it is no instant")
    return str(value)


def _encode_geometry(value: Any) -> dict[str, object]:
    srid = int(value["srid"])
    if srid >= _INT32:
        raise ValueError("its SRID is no int32")
    from_base64(value["wkb"])
    return {"wkb": value["wkb"], "srid": srid}


def _make_labels_form(name: str) -> Callable[[ColumnType], tuple[Schema, Convert | None]]:
    return lambda type_: (_build_named_schema("string", name, allowed=",".join(type_.members)), None)


def _make_fixed_form(
    schema: Schema, write: Convert | None = None
) -> Callable[[ColumnType], tuple[Schema, Convert | None]]:
    return lambda _: (schema, write)


_GEOMETRY: Schema = {
    **_build_named_schema("struct", "io.debezium.data.geometry.Geometry"),
    "fields": [_build_plain_schema("bytes", "wkb"), _build_plain_schema("int32", "srid", optional=True)],
}
_FORMS: dict[Kind, Callable[[ColumnType], tuple[Schema, Convert | None]]] = {
    Kind.INT: _build_int_form,
    Kind.DECIMAL: _build_decimal_form,
    Kind.FLOAT: _make_fixed_form({"type": "float"}, _convert_float),
    Kind.DOUBLE: _make_fixed_form({"type": "double"}),
    Kind.BIT: _build_bit_form,
    Kind.YEAR: _make_fixed_form(_build_named_schema("int32", "io.debezium.time.Year")),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT), _make_fixed_form({"type": "string"})),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _make_fixed_form({"type": "bytes"})),
    Kind.DATE: _make_fixed_form(_build_named_schema("int32", "io.debezium.time.Date"), _encode_date),
    Kind.TIME: _make_fixed_form(_build_named_schema("int64", "io.debezium.time.MicroTime"), _encode_time),
    Kind.DATETIME: _build_datetime_form,
    Kind.TIMESTAMP: _make_fixed_form(
        _build_named_schema("string", "io.debezium.time.ZonedTimestamp"), _format_timestamp
    ),
    Kind.JSON: _make_fixed_form(_build_named_schema("string", "io.debezium.data.Json")),
    Kind.ENUM: _make_labels_form("io.debezium.data.Enum"),
    Kind.SET: _make_labels_form("io.debezium.data.EnumSet"),
    Kind.ENUM_NUMBER: _make_fixed_form({"type": "int32"}),
    Kind.SET_NUMBER: _make_fixed_form({"type": "int64"}, _wrap_to_int64),
    Kind.GEOMETRY: _make_fixed_form(_GEOMETRY, _encode_geometry),
}
