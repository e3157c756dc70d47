"""Column types at every width, the bounds of their wire values, and Hypothesis strategies for what lies
between."""

from __future__ import annotations

import base64
import datetime
import json
import struct
from collections.abc import Callable

from hypothesis import strategies as st

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex, Value

UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
LATIN1 = {"charset": "latin1", "collation": "latin1_swedish_ci"}
MEMBERS = ("open", "it's", "b\\c", "d\ne", 'q"r', "ü")
SET_MEMBERS = ("vip", "it's", "b\\c", "ü")

TYPES: dict[str, ColumnType] = {
    **{f"i{bits}": ColumnType(kind=Kind.INT, bits=bits) for bits in (8, 16, 24, 32, 64)},
    **{f"u{bits}": ColumnType(kind=Kind.INT, bits=bits, unsigned=True) for bits in (8, 16, 24, 32, 64)},
    "dec": ColumnType(kind=Kind.DECIMAL, precision=10, scale=2),
    "dec0": ColumnType(kind=Kind.DECIMAL, precision=18, scale=0),
    "dec_all": ColumnType(kind=Kind.DECIMAL, precision=65, scale=30),
    "dec_u": ColumnType(kind=Kind.DECIMAL, precision=6, scale=6, unsigned=True),
    "flt": ColumnType(kind=Kind.FLOAT),
    "dbl": ColumnType(kind=Kind.DOUBLE),
    **{f"bit{length}": ColumnType(kind=Kind.BIT, length=length) for length in (1, 8, 53, 54, 64)},
    "yr": ColumnType(kind=Kind.YEAR),
    "ch": ColumnType(kind=Kind.CHAR, length=10, **UTF8),
    "ch_l": ColumnType(kind=Kind.CHAR, length=10, **LATIN1),
    "vc": ColumnType(kind=Kind.VARCHAR, length=40, **UTF8),
    "vc_l": ColumnType(kind=Kind.VARCHAR, length=40, **LATIN1),
    **{f"tx{n}": ColumnType(kind=Kind.TEXT, length=2**n - 1, **UTF8) for n in (8, 16, 24, 32)},
    "bin": ColumnType(kind=Kind.BINARY, length=6),
    "vb": ColumnType(kind=Kind.VARBINARY, length=20),
    **{f"bl{n}": ColumnType(kind=Kind.BLOB, length=2**n - 1) for n in (8, 16, 24, 32)},
    "dt": ColumnType(kind=Kind.DATE),
    **{f"ti{fsp}": ColumnType(kind=Kind.TIME, fsp=fsp) for fsp in (0, 3, 6)},
    **{f"dt{fsp}": ColumnType(kind=Kind.DATETIME, fsp=fsp) for fsp in (0, 3, 6)},
    **{f"ts{fsp}": ColumnType(kind=Kind.TIMESTAMP, fsp=fsp) for fsp in (0, 3, 6)},
    "js": ColumnType(kind=Kind.JSON),
    "en": ColumnType(kind=Kind.ENUM, members=MEMBERS, **UTF8),
    "st": ColumnType(kind=Kind.SET, members=SET_MEMBERS, **UTF8),
    "en_n": ColumnType(kind=Kind.ENUM_NUMBER, members=("a", "", "it's"), **UTF8),
    "st_n": ColumnType(kind=Kind.SET_NUMBER, members=("", "a", "b", "c"), **UTF8),
    "st_64": ColumnType(
        kind=Kind.SET_NUMBER, members=tuple("" if n == 40 else f"m{n}" for n in range(64)), **UTF8
    ),
    "geo": ColumnType(kind=Kind.GEOMETRY),
}
#: A table with a column of each type.
TABLE = Table(
    db="d",
    name="everything",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        *(Column(name=name, type=type_) for name, type_ in TYPES.items()),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)


def wire_int(value: int) -> Value:
    return value if abs(value) <= 2**53 else str(value)


def decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
    return ("-" if unscaled < 0 else "") + whole + (f".{fraction}" if scale else "")


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def point(x: float, y: float, srid: int) -> Value:
    return {"wkb": b64(struct.pack("<BIdd", 1, 1, x, y)), "srid": srid}


def _int_range(type_: ColumnType) -> tuple[int, int]:
    return (0, 2**type_.bits - 1) if type_.unsigned else (-(2 ** (type_.bits - 1)), 2 ** (type_.bits - 1) - 1)


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _time(micros: int, fsp: int) -> str:
    step = 10 ** (6 - fsp)
    whole = abs(micros) // step * step
    seconds, rest = divmod(whole, 1_000_000)
    sign = "-" if micros < 0 and whole else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest, fsp)}"


def _wall(moment: datetime.datetime, fsp: int, between: str = " ", end: str = "") -> str:
    date = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    clock = f"{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"
    return f"{date}{between}{clock}{_fraction(moment.microsecond, fsp)}{end}"


_MAX_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000
_FIRST, _LAST = datetime.datetime(1970, 1, 1, 0, 0, 1), datetime.datetime(2038, 1, 19, 3, 14, 7)  # noqa: DTZ001
_LONG = {8: 63, 16: 16383, 24: 70000, 32: 70000}


def _float32(value: float) -> float:
    (widened,) = struct.unpack("<f", struct.pack("<f", value))
    return float(widened)


def bounds(type_: ColumnType) -> list[Value]:
    """The wire values at the bounds of a type that every server holds (see ZERO_DATES and NUL for the
    others)."""
    found = _BOUNDS[type_.kind](type_)
    return [*found, None]


def _int_bounds(type_: ColumnType) -> list[Value]:
    low, high = _int_range(type_)
    inner = [2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 0, 1, -1]
    return [wire_int(n) for n in (low, high, *(n for n in inner if low <= n <= high))]


def _decimal_bounds(type_: ColumnType) -> list[Value]:
    high = 10**type_.precision - 1
    low = [] if type_.unsigned else [-high, -1]
    return [decimal_text(n, type_.scale) for n in (high, 0, 1, *low)]


def _text_bounds(type_: ColumnType) -> list[Value]:
    if type_.charset == "latin1":
        return ["", "a" * type_.length, "€ÿ\\'\"\t\n\r", "\\N"]
    size = type_.length if type_.kind in (Kind.CHAR, Kind.VARCHAR) else _LONG[type_.length.bit_length()]
    return [
        "",
        "😀" * size,
        " a",
        "\\N",
        "\\.",
        "a\tb\nc\rd\\",
        "NULL",
        "'; --",
        "%s",
        "\x01\x1a",
        "e\u0301",
        "\u00a0",
    ]


def _bytes_bounds(type_: ColumnType) -> list[Value]:
    size = min(type_.length, 70000)
    if type_.kind is Kind.BINARY:
        return [b64(b"\0" * size), b64(b"\xff" * size), b64(b"a\\'\n".ljust(size, b"\0"))]
    return [b64(b""), b64(b"\0\xff" * (size // 2)), b64(b"\\'\"\n\0\x1a"), b64(b"a "), b64(b"a\0")]


def _time_bounds(type_: ColumnType) -> list[Value]:
    return [_time(n, type_.fsp) for n in (_MAX_TIME, -_MAX_TIME, 0, 1_500_000, -1_500_000, 86_400_000_000)]


def _datetime_bounds(type_: ColumnType) -> list[Value]:
    moments = (
        datetime.datetime(1, 1, 1),  # noqa: DTZ001
        datetime.datetime(9999, 12, 31, 23, 59, 59),  # noqa: DTZ001
        datetime.datetime(2026, 10, 25, 2, 30, 0, 1000),  # noqa: DTZ001
    )
    return [_wall(moment, type_.fsp) for moment in moments]


def _timestamp_bounds(type_: ColumnType) -> list[Value]:
    moments = (_FIRST, _LAST, datetime.datetime(2026, 10, 25, 1, 30, 0, 120_000))  # noqa: DTZ001
    return [_wall(moment, type_.fsp, "T", "Z") for moment in moments]


_SMALLEST = _float32(1.401298464324817e-45)
_BOUNDS: dict[Kind, Callable[[ColumnType], list[Value]]] = {
    Kind.INT: _int_bounds,
    Kind.DECIMAL: _decimal_bounds,
    Kind.FLOAT: lambda _: [0.0, -0.0, 3.4028234663852886e38, -3.4028234663852886e38, 1.1754943508222875e-38,
     _float32(0.1), 16777216.0, _SMALLEST, -_SMALLEST, 1.1754942106924411e-38, 1.0000001192092896],
    Kind.DOUBLE: lambda _: [0.0, -0.0, 1.7976931348623157e308, -1.7976931348623157e308,
     2.2250738585072014e-308, 5e-324, 0.1, 1e22, 123456789.123456789, -5e-324, 2.225073858507201e-308,
      0.30000000000000004],
    Kind.BIT: lambda t: [wire_int(n) for n in (0, 1, 2**t.length - 1, 2 ** (t.length - 1))],
    Kind.YEAR: lambda _: [0, 1901, 2155],
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT), _text_bounds),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _bytes_bounds),
    Kind.DATE: lambda _: ["0001-01-01", "9999-12-31", "2024-02-29"],
    Kind.TIME: _time_bounds,
    Kind.DATETIME: _datetime_bounds,
    Kind.TIMESTAMP: _timestamp_bounds,
    Kind.JSON: lambda _: ["null", "[]", "{}", '"\\\\u0000"', '"a\\"b\\\\c\\n"',
     '{"a": [1, -2.5, true, null, {"b": "ü😀"}]}', "18446744073709551615", "-9223372036854775808", "1e300",
      '{"": 1}'],
    Kind.ENUM: lambda t: [*t.members],
    Kind.SET: lambda t: ["", ",".join(t.members), t.members[-1]],
    Kind.ENUM_NUMBER: lambda t: [1, 2, len(t.members)],
    Kind.SET_NUMBER: lambda t: [wire_int(n) for n in (0, 1, 3, 14, 15, 2 ** (len(t.members) - 1),
     2 ** len(t.members) - 1)],
    Kind.GEOMETRY: lambda _: [point(0.0, 0.0, 0), point(-180.0 + 1e-9, 90.0, 4326), point(-1e300, 5e-324, 0),
     {"wkb": b64(struct.pack("<BII4d", 1, 2, 2, 0, 0, 1, 1)), "srid": 0}],
}  # fmt: skip


def bound_rows(table: Table, first_id: int = 0) -> list[Row]:
    """Rows that hold every bound of every column at least once; id counts from `first_id`."""
    columns = [bounds(column.type) for column in table.columns[1:]]
    count = max(len(values) for values in columns)
    return [(first_id + i, *(values[i % len(values)] for values in columns)) for i in range(count)]


_ANY_CHAR = st.characters(codec="utf-8", exclude_characters="\0")
_LATIN_CHAR = st.characters(codec="latin-1", min_codepoint=1).filter(
    lambda char: not 0x80 <= ord(char) < 0xA0
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False,
     allow_infinity=False) | st.text(_ANY_CHAR, max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(_ANY_CHAR, max_size=4), inner,
     max_size=3),
    max_leaves=6,
)  # fmt: skip


def values(type_: ColumnType) -> st.SearchStrategy[Value]:
    """Strategy for wire values of a type, NULL included; no NUL characters and no zero dates."""
    return st.none() | st.sampled_from(bounds(type_)) | _VALUES[type_.kind](type_)


def _texts(type_: ColumnType) -> st.SearchStrategy[str]:
    found = st.text(_LATIN_CHAR if type_.charset == "latin1" else _ANY_CHAR, max_size=min(type_.length, 30))
    return found.map(lambda text: text.rstrip(" ")) if type_.kind is Kind.CHAR else found


def _bytes(type_: ColumnType) -> st.SearchStrategy[str]:
    low = type_.length if type_.kind is Kind.BINARY else 0
    return st.binary(min_size=low, max_size=min(type_.length, 30)).map(b64)


def _decimals(type_: ColumnType) -> st.SearchStrategy[str]:
    high = 10**type_.precision - 1
    return st.integers(0 if type_.unsigned else -high, high).map(lambda n: decimal_text(n, type_.scale))


def _sets(type_: ColumnType) -> st.SearchStrategy[str]:
    chosen = st.sets(st.sampled_from(type_.members))
    return chosen.map(lambda found: ",".join(member for member in type_.members if member in found))


def _timestamps(type_: ColumnType) -> st.SearchStrategy[str]:
    return st.datetimes(_FIRST, _LAST).map(lambda moment: _wall(moment, type_.fsp, "T", "Z"))


_VALUES: dict[Kind, Callable[[ColumnType], st.SearchStrategy[Value]]] = {
    Kind.INT: lambda t: st.integers(*_int_range(t)).map(wire_int),
    Kind.DECIMAL: _decimals,
    Kind.FLOAT: lambda _: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Kind.DOUBLE: lambda _: st.floats(allow_nan=False, allow_infinity=False),
    Kind.BIT: lambda t: st.integers(0, 2**t.length - 1).map(wire_int),
    Kind.YEAR: lambda _: st.integers(1901, 2155),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.TEXT), _texts),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _bytes),
    Kind.DATE: lambda _: st.dates().map(lambda day: f"{day.year:04d}-{day.month:02d}-{day.day:02d}"),
    Kind.TIME: lambda t: st.integers(-_MAX_TIME, _MAX_TIME).map(lambda n: _time(n, t.fsp)),
    Kind.DATETIME: lambda t: st.datetimes().map(lambda moment: _wall(moment, t.fsp)),
    Kind.TIMESTAMP: _timestamps,
    Kind.JSON: lambda _: _JSON.map(lambda document: json.dumps(document, ensure_ascii=False)),
    Kind.ENUM: lambda t: st.sampled_from(t.members),
    Kind.SET: _sets,
    Kind.ENUM_NUMBER: lambda t: st.integers(1, len(t.members)),
    Kind.SET_NUMBER: lambda t: st.integers(0, 2 ** len(t.members) - 1).map(wire_int),
    Kind.GEOMETRY: lambda _: st.builds(point, st.floats(-180, 180, exclude_min=True), st.floats(-90, 90),
     st.sampled_from([0, 4326])),
}  # fmt: skip


def rows(table: Table) -> st.SearchStrategy[Row]:
    """Strategy for rows of `table` whose first column, the id, is 0."""
    return st.tuples(st.just(0), *(values(column.type) for column in table.columns[1:]))
