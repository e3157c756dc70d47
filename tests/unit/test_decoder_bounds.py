"""Where a form of the log ends and the next begins: each decoder at its boundaries, as fixed cases.

Two neighbours follow every column that is read, so that a value read a byte too short or too long is another
row.
"""

from __future__ import annotations

import pytest

from producer.binlog_format.errors import UndecodableRow
from schemas.table.model import ColumnType, Kind
from tests.kits.row_images import AFTER, INT, Field, Made, bit, char, labels, lenenc, sized, text, varchar

LENGTHS = (0, 1, 63, 64, 255, 256)
#: Charset → (bytes of its longest character, such a character, its bytes).
CHARSETS = {
    "latin1": (1, "é", b"\xe9"),
    "utf8mb3": (3, "漢", "漢".encode()),
    "utf8mb4": (4, "😀", "😀".encode()),
    "utf32": (4, "😀", b"\x00\x01\xf6\x00"),
}
NEXT = (0x11223344,)


def read(field: Field, *stored: bytes | None) -> list[object]:
    """Return what is read of the values `stored` in a column with neighbours."""
    rows = Made([field, INT, INT]).read(*([value, AFTER, AFTER] for value in stored))
    assert all(row[1:] == NEXT * 2 for row in rows)
    return [row[0] for row in rows]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("declared", LENGTHS)
def test_varchar_takes_its_length_bytes_by_the_bytes_it_may_hold(charset: str, declared: int) -> None:
    width, character, encoded = CHARSETS[charset]
    size = 1 if declared * width < 256 else 2
    counts = [n for n in LENGTHS if n <= declared]
    stored = [sized(encoded * n, size) for n in counts]
    assert read(varchar(declared, charset, width), *stored, None) == [*(character * n for n in counts), None]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("declared", [1, 63, 64, 255])
def test_char_takes_its_length_bytes_by_the_bytes_it_may_hold(charset: str, declared: int) -> None:
    width, character, encoded = CHARSETS[charset]
    size = 1 if declared * width < 256 else 2
    counts = [n for n in LENGTHS if n <= declared]
    stored = [sized(encoded * n, size) for n in counts]
    assert read(char(declared, charset, width), *stored, None) == [*(character * n for n in counts), None]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_text_of_every_size(charset: str, length_bytes: int) -> None:
    width, character, encoded = CHARSETS[charset]
    counts = [n for n in LENGTHS if n * width < 1 << 8 * length_bytes]
    stored = [sized(encoded * n, length_bytes) for n in counts]
    assert read(text(length_bytes, charset), *stored, None) == [*(character * n for n in counts), None]


@pytest.mark.parametrize(
    ("field", "size"), [(text(2, "latin1"), 2), (text(3, "utf8mb4"), 3), (text(4, "utf8mb4"), 4)]
)
def test_text_longer_than_a_shorter_length_says(field: Field, size: int) -> None:
    lengths = [
        (1 << 8) - 1,
        1 << 8,
        (1 << 8) + 1,
        *([(1 << 16) - 1, 1 << 16, (1 << 16) + 1] if size > 2 else []),
    ]
    assert read(field, *(sized(b"x" * n, size) for n in lengths)) == ["x" * n for n in lengths]


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4"])
def test_char_has_no_spaces_at_its_end_and_varchar_keeps_them(charset: str) -> None:
    stored = [sized(value, 1) for value in (b" a  ", b"  ", b"")]
    assert read(char(9, charset, 1), *stored) == [" a", "", ""]
    assert read(varchar(9, charset, 1), *stored) == [" a  ", "  ", ""]


@pytest.mark.parametrize("length", [1, 255, 256])
def test_binary_is_filled_up_and_varbinary_is_not(length: int) -> None:
    size = 1 if length < 256 else 2
    metadata = length.to_bytes(2, "little")
    fixed = char(length, "binary", 1)
    fixed = fixed._replace(type=ColumnType(kind=Kind.BINARY, length=length))
    varying = Field(ColumnType(kind=Kind.VARBINARY, length=length), 15, metadata)
    zeros = {1: "AA==", 255: "AAAA" * 85, 256: "AAAA" * 85 + "AA=="}[length]
    assert read(fixed, sized(b"", size), sized(b"\0" * length, size)) == [zeros, zeros]
    assert read(varying, sized(b"", size), sized(b"\0", size)) == ["", "AA=="]


@pytest.mark.parametrize(
    ("count", "size"),
    [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (24, 3), (25, 4), (32, 4), (33, 8), (64, 8)],
)
def test_a_set_by_its_labels(count: int, size: int) -> None:
    masks = [0, 1, 1 << count - 1, (1 << count) - 1, *(1 << n for n in range(0, count, 8))]
    expected = [",".join(f"m{i}" for i in range(count) if mask >> i & 1) for mask in masks]
    stored = [mask.to_bytes(size, "little") for mask in masks]
    assert read(labels(Kind.SET, count, size), *stored, None) == [*expected, None]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (255, 1), (256, 2), (300, 2)])
def test_an_enum_by_its_labels(count: int, size: int) -> None:
    numbers = sorted({0, 1, min(count, 255), min(count, 256), count})
    expected = ["" if n == 0 else f"m{n - 1}" for n in numbers]
    stored = [n.to_bytes(size, "little") for n in numbers]
    assert read(labels(Kind.ENUM, count, size), *stored, None) == [*expected, None]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (8, 1), (9, 2), (24, 3), (32, 4), (33, 8), (64, 8)])
def test_a_set_by_its_number(count: int, size: int) -> None:
    masks = [0, 1, 1 << count - 1, (1 << count) - 1]
    expected = [mask if mask <= 2**53 else str(mask) for mask in masks]
    stored = [mask.to_bytes(size, "little") for mask in masks]
    assert read(labels(Kind.SET_NUMBER, count, size), *stored, None) == [*expected, None]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (255, 1), (256, 2), (300, 2)])
def test_an_enum_by_its_number(count: int, size: int) -> None:
    numbers = sorted({0, 1, min(count, 255), min(count, 256), count})
    stored = [n.to_bytes(size, "little") for n in numbers]
    assert read(labels(Kind.ENUM_NUMBER, count, size), *stored, None) == [*numbers, None]


@pytest.mark.parametrize("kind", [Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER])
def test_a_value_beyond_the_labels_of_the_definition_is_refused(kind: Kind) -> None:
    """The definition is not the one that the value was written under."""
    with pytest.raises(UndecodableRow):
        read(labels(kind, 3, 1), b"\x08")


@pytest.mark.parametrize(
    "length", [1, 7, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41, 48, 49, 53, 54, 56, 57, 63, 64]
)
def test_a_bit_field_by_its_bytes(length: int) -> None:
    size = (length + 7) // 8
    mixed = 0x0102030405060708 & (1 << length) - 1
    values = [0, 1, mixed, 1 << length - 1, (1 << length) - 1, *([2**53, 2**53 + 1] if length > 53 else [])]
    expected = [n if n <= 2**53 else str(n) for n in values]
    assert read(bit(length), *(n.to_bytes(size, "big") for n in values), None) == [*expected, None]


#: Decimal digits that are no whole group of nine → the bytes that they take, as MySQL's manual has it.
LEFT = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 4}


def stored_decimal(whole: str, fraction: str, *, negative: bool) -> bytes:
    """Return a DECIMAL's bytes: groups of nine digits around the point, the first bit for the sign, all bits
    turned where it is negative."""
    head = len(whole) % 9
    groups = [whole[:head], *(whole[at : at + 9] for at in range(head, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    data = b"".join(int(group or "0").to_bytes(LEFT[len(group)], "big") for group in groups)
    first = bytes([data[0] ^ 0x80]) + data[1:]
    return bytes(byte ^ 0xFF for byte in first) if negative else first


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 18])
@pytest.mark.parametrize("whole", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 18])
def test_a_decimal_by_its_groups_of_digits(whole: int, scale: int) -> None:
    if not whole + scale:
        return
    field = Field(
        ColumnType(kind=Kind.DECIMAL, precision=whole + scale, scale=scale),
        246,
        bytes([whole + scale, scale]),
    )
    first, behind = ("987654321" * 2)[:whole], ("918273645" * 2)[:scale]
    expected = f"{first or '0'}{'.' * bool(behind)}{behind}"
    stored = [stored_decimal(first, behind, negative=negative) for negative in (False, True)]
    assert read(field, *stored, None) == [expected, f"-{expected}", None]


@pytest.mark.parametrize(("bits", "code"), [(8, 1), (16, 2), (24, 9), (32, 3), (64, 8)])
@pytest.mark.parametrize("unsigned", [False, True])
def test_an_integer_at_both_ends(bits: int, code: int, unsigned: bool) -> None:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = [low, high, 0, 1, *([] if unsigned else [-1])]
    if bits == 64:
        values += [2**53, 2**53 + 1, *([] if unsigned else [-(2**53), -(2**53) - 1])]
    expected = [n if abs(n) <= 2**53 else str(n) for n in values]
    stored = [n.to_bytes(bits // 8, "little", signed=not unsigned) for n in values]
    assert read(Field(ColumnType(kind=Kind.INT, bits=bits, unsigned=unsigned), code), *stored, None) == [
        *expected,
        None,
    ]


@pytest.mark.parametrize("columns", [7, 8, 9, 16, 17, 250, 251, 300])
def test_null_bitmaps_of_many_columns(columns: int) -> None:
    """`columns`: all of them. A count from 251 on takes three bytes, in TABLE_MAP and in the row event."""
    others = columns - 1
    values = [(n * 7 + 1).to_bytes(4, "little") for n in range(others)]
    numbers = [n * 7 + 1 for n in range(others)]
    patterns = [
        set(),
        set(range(others)),
        {0},
        {others - 1},
        set(range(0, others, 2)),
        set(range(6, others, 8)),
        {5, 6, 7},
    ]
    rows = [[None if n in nulls else values[n] for n in range(others)] for nulls in patterns]
    expected = [tuple(None if n in nulls else numbers[n] for n in range(others)) for nulls in patterns]
    assert Made([INT] * others).read(*rows) == expected


@pytest.mark.parametrize("columns", [8, 9, 17])
def test_more_patterns_of_null_than_are_compiled(columns: int) -> None:
    """Beyond so many patterns one function asks each column; it knows the same columns as NULL."""
    others = columns - 1
    patterns = [pattern * 16411 % (1 << others) for pattern in range(128)]
    rows = [[None if nulls >> n & 1 else AFTER for n in range(others)] for nulls in patterns]
    expected = [tuple(None if nulls >> n & 1 else NEXT[0] for n in range(others)) for nulls in patterns]
    assert len(set(patterns)) > 64
    assert Made([INT] * others).read(*rows) == expected


def test_the_metadata_of_a_wide_table_is_longer_than_a_byte_says() -> None:
    """125 VARCHARs have 250 bytes of metadata, 126 have 252."""
    for count in (125, 126):
        field = varchar(256, "latin1", 1)
        row = [sized(b"x" * (n % 3), 2) for n in range(count)]
        assert Made([field] * count).read(row) == [tuple("x" * (n % 3) for n in range(count))]
    assert (lenenc(250), lenenc(251)) == (b"\xfa", b"\xfc\xfb\x00")
