"""Which changes of a type keep every value, and what a target column holds: every pair of types, judged value
by value."""

from __future__ import annotations

import base64
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumer.tables.evolution.widening import is_lossless, join_types
from consumer.targets.checks.column_fit import can_hold_all_values
from schemas.table.fills import ColumnFill, find_fill
from schemas.table.model import Column, ColumnType, Kind, Value
from schemas.table.typemap import convert_postgres_type, render_postgres_type
from tests.kits.schemas_strategies import LATIN1, TYPES, UTF8, bounds, values

MORE = {
    "dec_wide": ColumnType(kind=Kind.DECIMAL, precision=12, scale=2),
    "dec_20": ColumnType(kind=Kind.DECIMAL, precision=20, scale=0),
    "dec_u8": ColumnType(kind=Kind.DECIMAL, precision=8, scale=6, unsigned=True),
    "ch20": ColumnType(kind=Kind.CHAR, length=20, **UTF8),
    "vc10": ColumnType(kind=Kind.VARCHAR, length=10, **UTF8),
    "vc80": ColumnType(kind=Kind.VARCHAR, length=80, **UTF8),
    "vc3": ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb3", collation="utf8mb3_bin"),
    "vca": ColumnType(kind=Kind.VARCHAR, length=40, charset="ascii", collation="ascii_bin"),
    "vcci": ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4", collation="utf8mb4_general_ci"),
    "tx_l": ColumnType(kind=Kind.TEXT, length=2**16 - 1, **LATIN1),
    "bin9": ColumnType(kind=Kind.BINARY, length=9),
    "vb9": ColumnType(kind=Kind.VARBINARY, length=9),
    "en_more": ColumnType(kind=Kind.ENUM, members=(*TYPES["en"].members, "new"), **UTF8),
    "en_less": ColumnType(kind=Kind.ENUM, members=TYPES["en"].members[1:], **UTF8),
    "en_other": ColumnType(kind=Kind.ENUM, members=tuple(reversed(TYPES["en"].members)), **UTF8),
    "st_more": ColumnType(kind=Kind.SET, members=(*TYPES["st"].members, "new"), **UTF8),
    "flt_u": ColumnType(kind=Kind.FLOAT, unsigned=True),
}
ALL = {**TYPES, **MORE}
CODECS = {"latin1": "cp1252", "ascii": "ascii"}


def limits_of(type_: ColumnType) -> list[Value]:
    """Values that are at the limits of a type."""
    if type_.charset == "ascii":
        return ["", "a" * type_.length]
    if type_.charset == "utf8mb3":
        return ["", "ü" * type_.length, "￥" * type_.length]
    if type_ == MORE["tx_l"]:
        return ["", "€" * type_.length]
    return [value for value in bounds(type_) if belongs(value, type_)]


def converted(value: Value, new: ColumnType) -> Value:
    """The same value in the form of the new type, as both servers convert it."""
    if value is None:
        return None
    if new.kind is Kind.DECIMAL:
        return f"{Decimal(str(value)):.{new.scale}f}"
    if new.kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        whole, _, digits = str(value).removesuffix("Z").partition(".")
        return (
            whole
            + ("." + digits.ljust(new.fsp, "0") if new.fsp else "")
            + ("Z" if str(value).endswith("Z") else "")
        )
    return value


def belongs(value: Value, type_: ColumnType) -> bool:
    """Whether a wire value is one of the type: the oracle, which knows nothing of how the product decides."""
    kind = type_.kind
    if value is None:
        return True
    if kind in (Kind.INT, Kind.BIT):
        bits = type_.bits if kind is Kind.INT else type_.length
        low, high = (
            (0, 2**bits - 1)
            if type_.unsigned or kind is Kind.BIT
            else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return low <= int(str(value)) <= high
    if kind is Kind.DECIMAL:
        whole, _, digits = str(value).lstrip("-").partition(".")
        fits_ = len(whole.lstrip("0")) <= type_.precision - type_.scale and len(digits) == type_.scale
        return fits_ and not (type_.unsigned and Decimal(str(value)) < 0)
    if kind in (Kind.CHAR, Kind.VARCHAR, Kind.TEXT):
        try:
            raw = str(value).encode(CODECS.get(str(type_.charset), "utf-8"))
        except UnicodeEncodeError:
            return False
        short = type_.charset != "utf8mb3" or all(ord(char) < 0x10000 for char in str(value))
        return short and (len(raw) if kind is Kind.TEXT else len(str(value))) <= type_.length
    if kind in (Kind.BINARY, Kind.VARBINARY, Kind.BLOB):
        size = len(base64.b64decode(str(value)))
        return size == type_.length if kind is Kind.BINARY else size <= type_.length
    if kind is Kind.ENUM:
        return value in type_.members
    if kind is Kind.SET:
        return all(each in type_.members for each in str(value).split(",") if each)
    if kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        return len(str(value).removesuffix("Z").partition(".")[2]) == type_.fsp
    if kind in (Kind.FLOAT, Kind.DOUBLE) and type_.unsigned:
        return float(str(value)) >= 0
    return True


KINDS = {
    (Kind.INT, Kind.DECIMAL), (Kind.YEAR, Kind.INT), (Kind.CHAR, Kind.VARCHAR), (Kind.CHAR, Kind.TEXT),
    (Kind.VARCHAR, Kind.TEXT), (Kind.VARBINARY, Kind.BLOB),
}  # fmt: skip


@pytest.mark.parametrize("old", ALL)
def test_a_lossless_change_keeps_each_value(old: str) -> None:
    one = ALL[old]
    for other in ALL.values():
        if is_lossless(one, other):
            wrong = [value for value in limits_of(one) if not belongs(converted(value, other), other)]
            assert not wrong, (other, wrong)
            assert one.kind is other.kind or (one.kind, other.kind) in KINDS


LOSSLESS = [(a, b) for a, b in product(TYPES.values(), ALL.values()) if a != b and is_lossless(a, b)]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_lossless_change_keeps_values_that_nobody_chose(data: st.DataObject) -> None:
    one, other = data.draw(st.sampled_from(LOSSLESS))
    value = data.draw(values(one))
    assert belongs(converted(value, other), other)


#: What is told to be lossless, so that no rule gives up more than it must.
WIDENINGS = {
    ("i8", "i16"), ("i32", "i64"), ("u8", "i16"), ("u32", "i64"), ("i64", "dec_20"), ("dec", "dec_wide"),
    ("dec_u", "dec_u8"), ("yr", "i16"), ("ch", "ch20"), ("ch", "vc"), ("vc10", "vc"), ("vc", "vc80"),
    ("vc", "tx8"), ("tx8", "tx16"), ("tx16", "tx24"), ("ch_l", "ch"), ("vc_l", "vc"), ("vc_l", "vc3"),
    ("vca", "vc_l"), ("vc3", "vc"), ("vc", "vcci"), ("vcci", "vc"), ("tx_l", "tx24"), ("vb9", "vb"),
    ("vb", "bl8"), ("bl8", "bl16"), ("ti0", "ti3"), ("dt3", "dt6"), ("ts0", "ts6"), ("en", "en_more"),
    ("st", "st_more"), ("flt_u", "flt"),
}  # fmt: skip
LOSSES = {
    ("i16", "i8"), ("i8", "u8"), ("u64", "i64"), ("dec_wide", "dec"), ("dec", "dec0"), ("dec", "dec_u"),
    ("vc80", "vc"), ("vc", "ch20"), ("tx16", "vc"), ("tx16", "tx8"), ("tx_l", "tx16"), ("vc", "vc_l"),
    ("vc", "vc3"), ("vc3", "vca"), ("bin", "bin9"), ("bin", "vb"), ("bl16", "bl8"), ("ti3", "ti0"),
    ("dt0", "ts0"), ("dt", "dt0"), ("en", "en_less"), ("en", "en_other"), ("en_more", "en"), ("en", "vc"),
    ("i32", "vc"), ("flt", "dbl"), ("flt", "flt_u"), ("bit8", "bit53"), ("js", "tx32"), ("vc", "js"),
    ("yr", "i8"),
}  # fmt: skip


def test_what_widens_is_lossless_and_what_loses_is_not() -> None:
    assert {pair for pair in WIDENINGS if not is_lossless(ALL[pair[0]], ALL[pair[1]])} == set()
    assert {pair for pair in LOSSES if is_lossless(ALL[pair[0]], ALL[pair[1]])} == set()


@pytest.mark.parametrize("one", ALL)
def test_a_join_holds_both(one: str) -> None:
    for other in ALL.values():
        found = join_types(ALL[one], other)
        if found is None:
            continue
        assert can_hold_all_values(ALL[one], found)
        assert can_hold_all_values(other, found)
        for type_ in (ALL[one], other):
            if Kind.GEOMETRY not in (type_.kind, found.kind) and (type_.kind is Kind.JSON) == (
                found.kind is Kind.JSON
            ):
                wrong = [value for value in limits_of(type_) if not belongs(converted(value, found), found)]
                assert not wrong, (type_, found, wrong)


def test_joins_of_related_types() -> None:
    unsigned, signed = ColumnType(kind=Kind.INT, bits=32, unsigned=True), ColumnType(kind=Kind.INT, bits=32)
    assert join_types(unsigned, signed) == ColumnType(kind=Kind.INT, bits=64)
    assert join_types(ALL["dec"], ALL["dec0"]) == ColumnType(kind=Kind.DECIMAL, precision=20, scale=2)
    assert join_types(ALL["vc"], ALL["tx8"]) == ColumnType(kind=Kind.TEXT, length=255, **UTF8)
    joined = join_types(ALL["en_less"], ALL["en"])
    assert joined is not None
    assert set(joined.members) == set(ALL["en"].members)
    assert join_types(ALL["i32"], ALL["vc"]) is None
    assert join_types(ALL["dt6"], ALL["ts6"]) is None
    small = ColumnType(kind=Kind.INT, bits=16, unsigned=True)
    assert is_lossless(small, unsigned), "both begin at 0"
    fine = ColumnType(kind=Kind.DECIMAL, precision=40, scale=31)
    assert join_types(fine, ColumnType(kind=Kind.INT, bits=64)) is None, (
        "no DECIMAL of MySQL has 31 digits there"
    )


def test_joined_labels_have_a_charset_for_all_of_them() -> None:
    latin = ColumnType(kind=Kind.ENUM, members=("é",), charset="latin1", collation="latin1_bin")
    wide = ColumnType(kind=Kind.ENUM, members=("王",), **UTF8)
    for one, other in ((latin, wide), (wide, latin)):
        joined = join_types(one, other)
        assert joined is not None
        assert joined.charset == "utf8mb4"
    same = join_types(latin, replace(latin, members=("ü",)))
    assert same == replace(latin, members=("é", "ü"))


@pytest.mark.parametrize("name", ALL)
def test_what_rowlock_makes_of_a_type_fits_it(name: str) -> None:
    """Else a table that it made itself would be altered at once."""
    assert can_hold_all_values(ALL[name], ALL[name])
    shown = render_postgres_type(ALL[name]).replace("varchar", "character varying")
    if shown.startswith("timestamp"):
        zone = "with" if shown.startswith("timestamptz") else "without"
        shown = f"{shown.replace('tz', '')} {zone} time zone"
    assert can_hold_all_values(ALL[name], convert_postgres_type(shown))


def column(type_: ColumnType, **more: object) -> Column:
    return Column(name="n", type=type_, **more)  # type: ignore[arg-type]


FILLS: list[tuple[Column, ColumnFill | None]] = [
    (column(ALL["i32"]), ColumnFill(None)),
    (column(ALL["i32"], default="7"), ColumnFill(7)),
    (column(ALL["u64"], default="18446744073709551615"), ColumnFill("18446744073709551615")),
    (column(ALL["i32"], nullable=False), ColumnFill(0)),
    (column(ALL["dec"], default="1.5"), ColumnFill("1.50")),
    (column(ALL["dec"], nullable=False), ColumnFill("0.00")),
    (column(ALL["dec"], default="1.555"), None),
    (column(ALL["dbl"], default="1e3"), ColumnFill(1000.0)),
    (column(ALL["flt"], default="0.1"), ColumnFill(0.10000000149011612)),
    (column(ALL["bit8"], default="5"), ColumnFill(5)),
    (column(ALL["vc"], default="it's"), ColumnFill("it's")),
    (column(ALL["ch"], default="a  "), ColumnFill("a")),
    (column(ALL["vc"], nullable=False), ColumnFill("")),
    (column(ALL["en"], default="open"), ColumnFill("open")),
    (column(ALL["en"], nullable=False), ColumnFill("open")),
    (column(ALL["en"], default="OPEN"), None),
    (column(ALL["st"], default="vip,ü"), ColumnFill("vip,ü")),
    (column(ALL["st"], default="ü,vip"), None),
    (column(ALL["dt"], default="2026-01-02"), ColumnFill("2026-01-02")),
    (column(ALL["dt"], default="0000-00-00"), None),
    (column(ALL["dt"], nullable=False), None),
    (column(ALL["ti3"], default="10:00:00"), ColumnFill("10:00:00.000")),
    (column(ALL["ti3"], nullable=False), ColumnFill("00:00:00.000")),
    (column(ALL["dt6"], default="2026-01-02 03:04:05.1"), ColumnFill("2026-01-02 03:04:05.100000")),
    (column(ALL["dt0"], default="2026-01-02"), ColumnFill("2026-01-02 00:00:00")),
    (column(ALL["dt0"], default="2026-01-02 03:04:05.9"), None),
    (column(ALL["ts0"], default="2026-01-02 03:04:05"), None),
    (column(ALL["ts0"], default_expression="current_timestamp()"), None),
    (column(ALL["vb"], default_expression="'abc'"), None),
    (column(ALL["bin"], nullable=False), None),
    (column(ALL["js"], nullable=False), None),
    (column(ALL["geo"], nullable=False), None),
    (column(ALL["yr"], default="1970"), ColumnFill(1970)),
    (column(ALL["i32"], generated=True, expression="1"), None),
    (column(ALL["i32"], nullable=False, auto_increment=True), None),
]  # fmt: skip


@pytest.mark.parametrize(("added", "fill"), FILLS, ids=range(len(FILLS)))
def test_what_rows_have_in_an_added_column(added: Column, fill: ColumnFill | None) -> None:
    assert find_fill(added) == fill
    if fill is not None:
        assert belongs(fill.value, added.type)
