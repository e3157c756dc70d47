"""MySQL's binary JSON, written byte by byte by the format's description (sql-common/json_binary.h), against
the text that MySQL prints."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from producer.decoders.jsonb import format_double, render_json_latin1

#: (type byte, value) of a literal, a number or a double.
PLAIN: list[tuple[int, bytes, str]] = [
    (4, b"\x00", "null"), (4, b"\x01", "true"), (4, b"\x02", "false"),
    (5, struct.pack("<h", -(2**15)), "-32768"), (5, struct.pack("<h", 2**15 - 1), "32767"),
    (6, struct.pack("<H", 0), "0"), (6, struct.pack("<H", 2**16 - 1), "65535"),
    (7, struct.pack("<i", -(2**31)), "-2147483648"), (7, struct.pack("<i", 2**31 - 1), "2147483647"),
    (8, struct.pack("<I", 2**32 - 1), "4294967295"),
    (9, struct.pack("<q", -(2**63)), "-9223372036854775808"),
    (9, struct.pack("<q", 2**63 - 1), "9223372036854775807"),
    (10, struct.pack("<Q", 2**64 - 1), "18446744073709551615"),
    (11, struct.pack("<d", 0.5), "0.5"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "raw", "text"), PLAIN)
def test_a_value_alone(kind: int, raw: bytes, text: str) -> None:
    assert render_json_latin1(bytes([kind]) + raw) == text


def test_no_bytes_are_null() -> None:
    assert render_json_latin1(b"") == "null"


@pytest.mark.parametrize("kind", [0x0D, 0x0E, 0x10, 0xFF])
def test_a_type_that_is_none_is_said(kind: int) -> None:
    with pytest.raises(ValueError, match=f"unknown type {kind}"):
        render_json_latin1(bytes([kind, 0, 0, 0, 0]))


def varint(length: int) -> bytes:
    out = b""
    while length > 0x7F:
        out += bytes([length & 0x7F | 0x80])
        length >>= 7
    return out + bytes([length])


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 255, 256, 16383, 16384, 16385])
def test_a_string_of_any_length(length: int) -> None:
    raw = b"\x0c" + varint(length) + b"x" * length
    assert render_json_latin1(raw + b"behind") == '"' + "x" * length + '"'
    assert varint(128) == b"\x80\x01"


def test_text_is_escaped_as_the_server_does() -> None:
    text = 'a"\\\n\x01é漢'.encode()
    assert render_json_latin1(
        b"\x0c" + varint(len(text)) + text
    ) == '"a\\"\\\\\\n\\u0001é漢"'.encode().decode("latin-1")


# --- containers

Member = tuple[int, bytes]


def container(members: list[Any], *, large: bool) -> bytes:
    """An array of members, or an object of (key, member), with the type byte before it."""
    is_object = bool(members) and isinstance(members[0][0], str)
    keys = [key.encode() for key, _ in members] if is_object else []
    values: list[Member] = [member for _, member in members] if is_object else members
    width, code = (4, "<I") if large else (2, "<H")
    at = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    head, tail = b"", b""
    for key in keys:
        head += struct.pack(code, at + len(tail)) + struct.pack("<H", len(key))
        tail += key
    inline = {4, 5, 6, 7, 8} if large else {4, 5, 6}
    for kind, raw in values:
        head += bytes([kind])
        if kind in inline:
            head += raw.ljust(width, b"\0")
        else:
            head += struct.pack(code, at + len(tail))
            tail += raw
    body = struct.pack(code, len(values)) + struct.pack(code, at + len(tail)) + head + tail
    return bytes([(0 if is_object else 2) + large]) + body


@pytest.mark.parametrize("large", [False, True])
def test_members_of_every_type_stand_where_their_size_puts_them(large: bool) -> None:
    members = [(kind, raw) for kind, raw, _ in PLAIN] + [(0x0C, varint(130) + b"y" * 130)]
    texts = [text for _, _, text in PLAIN] + ['"' + "y" * 130 + '"']
    assert render_json_latin1(container(members, large=large)) == f"[{', '.join(texts)}]"
    named = [(f"key {n}", member) for n, member in enumerate(members)]
    reported = ", ".join(f'"key {n}": {text}' for n, text in enumerate(texts))
    assert render_json_latin1(container(named, large=large)) == f"{{{reported}}}"


@pytest.mark.parametrize("large", [False, True])
def test_containers_in_containers(large: bool) -> None:
    """Their offsets count from their own beginning."""
    inner = container([("a", (5, b"\x01\x00")), ("long", (7, struct.pack("<i", 70000)))], large=large)
    outer = container([(4, b"\x01"), (inner[0], inner[1:]), (inner[0], inner[1:])], large=large)
    assert render_json_latin1(outer) == '[true, {"a": 1, "long": 70000}, {"a": 1, "long": 70000}]'


def test_empty_containers() -> None:
    assert render_json_latin1(b"\x00" + struct.pack("<HH", 0, 4)) == "{}"
    assert render_json_latin1(b"\x01" + struct.pack("<II", 0, 8)) == "{}"
    assert render_json_latin1(b"\x02" + struct.pack("<HH", 0, 4)) == "[]"
    assert render_json_latin1(b"\x03" + struct.pack("<II", 0, 8)) == "[]"


# --- values of types that JSON does not have


def opaque(kind: int, data: bytes) -> str:
    return render_json_latin1(b"\x0f" + bytes([kind]) + varint(len(data)) + data + b"behind")


def packed_decimal(text: str) -> bytes:
    """Precision, scale, and groups of nine digits counted from the point, the sign bit inverted, a negative
    number's bits all so."""
    negative, digits = text.startswith("-"), text.lstrip("-")
    whole, _, fraction = digits.partition(".")
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    first = len(whole) % 9
    groups = [whole[:first]] * bool(first) + [whole[i : i + 9] for i in range(first, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    raw = b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups)
    raw = bytes([raw[0] | 0x80]) + raw[1:]
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([len(whole) + len(fraction), len(fraction)]) + raw


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("whole", range(1, 20))
def test_a_decimal_of_any_whole_digits(sign: str, whole: int) -> None:
    text = sign + "9123456789123456789"[:whole]
    assert opaque(246, packed_decimal(text)) == text
    assert opaque(246, packed_decimal(text + ".5")) == text + ".5"


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("scale", range(1, 20))
def test_a_decimal_of_any_fraction(sign: str, scale: int) -> None:
    text = f"{sign}7." + "9123456789123456789"[:scale]
    assert opaque(246, packed_decimal(text)) == text
    assert opaque(246, packed_decimal(f"{sign}12.{'0' * (scale - 1)}3")) == f"{sign}12.{'0' * (scale - 1)}3"


def test_a_decimal_has_no_zeros_before_it() -> None:
    assert opaque(246, packed_decimal("007.50")) == "7.50"
    assert opaque(246, packed_decimal("000.50")) == "0.50"


def packed_time(*clock: int, date: int = 0) -> int:
    hour, minute, second, micro = clock
    return ((date << 17 | hour << 12 | minute << 6 | second) << 24) + micro


def packed_date(year: int, month: int, day: int) -> int:
    return (year * 13 + month) << 5 | day


@pytest.mark.parametrize(
    ("kind", "packed", "text"),
    [
        (10, packed_time(0, 0, 0, 0, date=packed_date(2026, 12, 31)), "2026-12-31"),
        (10, packed_time(0, 0, 0, 0, date=packed_date(1, 2, 3)), "0001-02-03"),
        (12, packed_time(23, 59, 58, 999_999, date=packed_date(9999, 11, 30)), "9999-11-30 23:59:58.999999"),
        (12, packed_time(1, 2, 3, 4, date=packed_date(2000, 1, 1)), "2000-01-01 01:02:03.000004"),
        (7, packed_time(31, 63, 63, 0xFFFFFF, date=packed_date(2000, 1, 1)), "2000-01-01 31:63:63.16777215"),
        (7, packed_time(10, 20, 30, 0, date=packed_date(1999, 10, 31)), "1999-10-31 10:20:30.000000"),
        (11, packed_time(838, 59, 58, 1), "838:59:58.000001"),
        (11, -packed_time(838, 59, 58, 1), "-838:59:58.000001"),
        (11, packed_time(0, 0, 0, 0), "00:00:00.000000"),
        (11, -packed_time(0, 0, 0, 1), "-00:00:00.000001"),
    ],
)  # fmt: skip
def test_dates_and_times(kind: int, packed: int, text: str) -> None:
    assert opaque(kind, struct.pack("<q", packed)) == f'"{text}"'


@pytest.mark.parametrize("kind", [8, 9, 13, 16, 245, 247, 252, 255])
def test_other_types_are_bytes(kind: int) -> None:
    assert opaque(kind, b"\x01\x02") == f'"base64:type{kind}:AQI="'


@pytest.mark.parametrize("length", [0, 1, 56, 57, 58, 113, 114, 115, 200])
def test_long_bytes_are_broken_into_lines_of_76(length: int) -> None:
    data = bytes(n % 256 for n in range(length))
    encoded = base64.b64encode(data).decode()
    lines = [encoded[i : i + 76] for i in range(0, len(encoded), 76)]
    assert opaque(252, data) == '"base64:type252:' + "\\n".join(lines) + '"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (10.0, "10.0"), (-1.5, "-1.5"), (123.25, "123.25"),
        (1e14, "100000000000000.0"), (123456789012345.0, "123456789012345.0"), (1e15, "1e15"), (1.25e15, "1.25e15"),  # noqa: E501
        (0.1, "0.1"), (0.05, "0.05"), (1e-14, "0.00000000000001"), (1e-15, "0.000000000000001"), (1.5e-15, "0.0000000000000015"),  # noqa: E501
        (1e-16, "1e-16"), (1.5e-16, "1.5e-16"), (1e300, "1e300"), (-2.5e-300, "-2.5e-300"), (100.5, "100.5"),
    ],
)  # fmt: skip
def test_doubles(value: float, text: str) -> None:
    assert format_double(value) == text
