"""Converts MySQL's binary JSON to exactly the text that MySQL prints for the value.

The text, not a parsed document, is the wire value: so the log and a SELECT agree byte for byte, and
numbers lose nothing. Binary form: sql-common/json_binary.h; printing: Json_wrapper::to_string and
my_gcvt of the same source.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from json.encoder import encode_basestring

_INT16, _UINT16 = struct.Struct("<h"), struct.Struct("<H")
_INT32, _UINT32 = struct.Struct("<i"), struct.Struct("<I")
_INT64, _UINT64 = struct.Struct("<q"), struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_STRING, _OPAQUE = 0x0C, 0x0F
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS: dict[int, Callable[[bytes, int], tuple[int]]] = {
    5: _INT16.unpack_from,
    6: _UINT16.unpack_from,
    7: _INT32.unpack_from,
    8: _UINT32.unpack_from,
    9: _INT64.unpack_from,
    10: _UINT64.unpack_from,
}
_INLINE_SMALL = frozenset({_LITERAL, 5, 6})
_INLINE_LARGE = frozenset({_LITERAL, 5, 6, 7, 8})
_BASE64_LINE = 76
_NEWDECIMAL, _TIMESTAMP, _DATE, _TIME, _DATETIME = 246, 7, 10, 11, 12


def render_json_latin1(data: bytes) -> str:
    """Return the text as UTF-8 carried in a latin-1 string (producer/binlog_format/charsets.py)."""
    if not data:
        return "null"  # stored by servers before 5.7.22 for a generated column without a value
    return _render_value(data[0], data, data.decode("latin-1"), 1)


def _render_value(kind: int, data: bytes, text: str, at: int) -> str:
    """Return the text of the value of type `kind` that begins at `at`."""
    if kind == _STRING:
        length, start = _read_varint(data, at)
        return encode_basestring(text[start : start + length])
    if kind in _NUMBERS:
        return str(_NUMBERS[kind](data, at)[0])
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind == 0x0B:
        return format_double(_DOUBLE.unpack_from(data, at)[0])
    if kind == _OPAQUE:
        length, start = _read_varint(data, at + 1)
        return _render_opaque(data[at], data[start : start + length])
    return _render_container(kind, data, text, at)


def _render_container(kind: int, data: bytes, text: str, at: int) -> str:
    if kind > _LARGE_ARRAY:
        raise ValueError(f"JSON value of unknown type {kind}")
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    size, number = (4, _UINT32) if large else (2, _UINT16)
    inline = _INLINE_LARGE if large else _INLINE_SMALL
    count = number.unpack_from(data, at)[0]
    entries = at + 2 * size
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    values = entries + count * (size + 2) * is_object
    parts = []
    for i in range(count):
        entry = values + i * (size + 1)
        member = data[entry]
        where = entry + 1 if member in inline else at + number.unpack_from(data, entry + 1)[0]
        value = _render_value(member, data, text, where)
        parts.append(
            f"{_read_key(data, text, at, entries + i * (size + 2), number)}: {value}" if is_object else value
        )
    joined = ", ".join(parts)
    return f"{{{joined}}}" if is_object else f"[{joined}]"


def _read_key(data: bytes, text: str, at: int, entry: int, number: struct.Struct) -> str:
    start = at + number.unpack_from(data, entry)[0]
    length = _UINT16.unpack_from(data, entry + number.size)[0]
    return encode_basestring(text[start : start + length])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a length in groups of 7 bits, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def format_double(value: float) -> str:
    """Return a double as MySQL prints it in JSON.

    It has the shortest digits, in exponent form outside 1e-15 … 1e15 unless a digit follows the point;
    otherwise an integer ends with ".0".
    """
    sign, digits, point = _find_shortest_digits(value)
    if point < -14 or 15 < point >= len(digits):
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits}{'0' * (point - len(digits))}.0"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _find_shortest_digits(value: float) -> tuple[str, str, int]:
    """Return sign, shortest digits that represent the same double, and the number of digits before the
    point.
    """
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (sign, digits, point) if digits else (sign, "0", 1)


def _render_opaque(kind: int, data: bytes) -> str:
    """Return the text of a value of a MySQL type that JSON does not have."""
    if kind == _NEWDECIMAL:
        return _format_decimal(data)
    if kind == _TIME:
        return _format_time(data)
    if kind in (_DATE, _DATETIME, _TIMESTAMP):
        return _format_datetime(kind, data)
    # MySQL breaks its base64 into lines, and the line ends are escaped with the string.
    encoded = base64.b64encode(data).decode()
    lines = (encoded[i : i + _BASE64_LINE] for i in range(0, len(encoded), _BASE64_LINE))
    return f'"base64:type{kind}:' + "\\n".join(lines) + '"'


def _format_decimal(data: bytes) -> str:
    """Return a decimal from bytes of precision and scale, then DECIMAL's order-preserving groups of 9
    digits.
    """
    precision, scale, raw = data[0], data[1], data[2:]
    negative = not raw[0] & 0x80
    raw = bytes([raw[0] ^ 0x80]) + raw[1:]
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    whole = precision - scale
    sizes = [whole % 9] * bool(whole % 9) + [9] * (whole // 9)
    fraction_sizes = [9] * (scale // 9) + [scale % 9] * bool(scale % 9)
    digits, at = "", 0
    for count in sizes + fraction_sizes:
        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[count]
        digits += f"{int.from_bytes(raw[at : at + size], 'big'):0{count}d}"
        at += size
    text = digits[:whole].lstrip("0") or "0"
    return f"{'-' if negative else ''}{text}" + (f".{digits[whole:]}" if scale else "")


def _format_datetime(kind: int, data: bytes) -> str:
    """Return a packed DATE or DATETIME: 17 bits year * 13 + month, 5 day, 5 + 6 + 6 h m s, 24
    microseconds.
    """
    packed = _INT64.unpack(data)[0]
    day, clock = packed >> 41, packed >> 24 & 0x1FFFF
    year, month = divmod(day >> 5, 13)
    date = f"{year:04d}-{month:02d}-{day & 31:02d}"
    return f'"{date}"' if kind == _DATE else f'"{date} {_format_clock(clock)}.{packed & 0xFFFFFF:06d}"'


def _format_time(data: bytes) -> str:
    packed = _INT64.unpack(data)[0]
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f'"{sign}{_format_clock(packed >> 24)}.{packed & 0xFFFFFF:06d}"'


def _format_clock(packed: int) -> str:
    return f"{packed >> 12 & 0x3FF:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
