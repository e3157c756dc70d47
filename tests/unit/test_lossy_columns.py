"""What a target's server would change without an error is refused in its stead; what it refuses itself, or
stores as it is, is left to it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from msgspec import structs

from consumer.errors import RefusedError
from consumer.ordering.model import ApplyUnit, NetChange
from consumer.ordering.netchange import refuse_losses
from consumer.tables.router import build_target_table
from consumer.targets.checks.column_fit import find_lossy_columns, get_int_range
from rowlock.inspect.quarantine import _OwnedUnit
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale)


def text(length: int, kind: Kind = Kind.VARCHAR) -> ColumnType:
    return ColumnType(kind=kind, length=length)


def b64(value: bytes) -> str:
    return b64encode(value).decode()


def time(kind: Kind, fsp: int) -> ColumnType:
    return ColumnType(kind=kind, fsp=fsp)


def of(type_: ColumnType) -> Table:
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="v", type=type_),
    )
    return Table(
        db="s", name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    )


#: (source's type, target's type) → values that go, values that are refused here.
CASES: list[tuple[ColumnType, ColumnType, list[Any], list[Any]]] = [
    (decimal(12, 4), decimal(12, 2), [None, "1.50", "1.5000", "-0.2500", "7"], ["1.505", "-0.0001"]),
    (decimal(0, 0), decimal(65, 30), ["1." + "0" * 31, "1." + "1" * 30], ["1." + "1" * 31]),
    (decimal(12, 4), decimal(12, 0), ["3.0000"], ["3.4999"]),
    (time(Kind.DATETIME, 6), time(Kind.DATETIME, 3), ["2026-01-01 00:00:00.123000"],
     ["2026-01-01 00:00:00.123400"]),
    (time(Kind.TIMESTAMP, 3), time(Kind.TIMESTAMP, 0), ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"],
     ["2026-01-01T00:00:00.500Z"]),
    (time(Kind.TIME, 1), time(Kind.TIME, 0), ["-01:00:00.0"], ["-01:00:00.1"]),
    (text(20), text(4), ["abcd", "ab  ", "abcde", "abcd e"], ["abcd ", "a       ", "     "]),
    (text(0, Kind.TEXT), text(4), ["abcd"], ["abcd "]),
    (text(20), text(20, Kind.CHAR), ["", "ab", " a b"], ["ab ", " "]),
    (text(65535, Kind.TEXT), text(255, Kind.TEXT),
     ["a" * 255, "é" * 127 + "a", "é" * 127 + " ", "é" * 128, "a" * 256],
      ["é" * 127 + "  ", "a" * 255 + " "]),
    (text(100), text(255, Kind.TEXT), ["é" * 100], ["😀" * 63 + "    "]),
    (text(4, Kind.VARBINARY), text(4, Kind.BINARY), [b64(b"abcd"), b64(b"abcde")],
     ["", b64(b"abc"), b64(b"ab")]),
    (text(2, Kind.BINARY), text(3, Kind.BINARY), [b64(b"abc")], [b64(b"ab")]),
    (ColumnType(kind=Kind.ENUM, members=("a",)), ColumnType(kind=Kind.ENUM_NUMBER, members=("a", "")),
     [None, "a"], [""]),
]  # fmt: skip
#: The target has room for all, or its server refuses what it has no room for.
WHOLE = [
    (decimal(12, 2), decimal(12, 2)),
    (decimal(12, 2), decimal(14, 4)),
    (decimal(12, 4), decimal(0, 0)),
    (decimal(12, 2), decimal(5, 2)),
    (time(Kind.DATETIME, 3), time(Kind.DATETIME, 6)),
    (text(4), text(4)),
    (text(4), text(0, Kind.TEXT)),
    (text(4), text(255, Kind.TEXT)),
    (text(4, Kind.CHAR), text(4, Kind.CHAR)),
    (structs.replace(text(4), charset="utf8mb4"), structs.replace(text(0, Kind.TEXT), charset="latin1")),
    (text(4, Kind.CHAR), text(4)),
    (text(4, Kind.BINARY), text(4, Kind.BINARY)),
    (text(4, Kind.BINARY), text(8, Kind.VARBINARY)),
    (ColumnType(kind=Kind.INT, bits=64), ColumnType(kind=Kind.INT, bits=32)),
    (ColumnType(kind=Kind.ENUM, members=("a", "bc")), text(4)),
    (text(100, Kind.TEXT), text(65535, Kind.TEXT)),
]


@pytest.mark.parametrize(("source", "real", "good", "bad"), CASES)
@pytest.mark.parametrize("where", ["replaces", "updates", "snapshot"])
def test_a_value_that_would_change_is_refused(
    source: ColumnType, real: ColumnType, good: list[Any], bad: list[Any], where: str
) -> None:
    target = build_target_table(of(source), of(real))
    for value in good:
        refuse_losses(NetChange(target, [], **{where: [(1, value)]}))
    for value in bad:
        with pytest.raises(
            RefusedError,
            match=r"^column v of s\.t (has|is a CHAR).* server would (round|drop|pad with zero bytes|store the value.* as that label)$",  # noqa: E501
        ):
            refuse_losses(NetChange(target, [], **{where: [(1, good[0]), (2, value)]}))


@pytest.mark.parametrize(("source", "real"), WHOLE)
def test_columns_that_store_all_or_refuse_are_not_looked_at(source: ColumnType, real: ColumnType) -> None:
    assert find_lossy_columns(of(source), of(real)) == ()


@pytest.mark.parametrize(("bits", "unsigned", "limits"), [(8, False, (-128, 127)), (16, True, (0, 65535))])
def test_the_range_of_an_integer(bits: int, unsigned: bool, limits: tuple[int, int]) -> None:
    assert get_int_range(ColumnType(kind=Kind.INT, bits=bits, unsigned=unsigned)) == limits


def test_a_column_that_the_target_lacks_is_not_looked_at() -> None:
    real = of(text(4))
    assert find_lossy_columns(of(text(20)), structs.replace(real, columns=real.columns[:1])) == ()


def test_a_retry_changes_no_value_either() -> None:
    """The person who says `rowlock quarantine retry` has to alter the target first."""
    nothing: Any = None
    taken = _OwnedUnit(nothing, nothing, ApplyUnit("p", "t"), [], nothing)
    net = NetChange(build_target_table(of(text(20)), of(text(4))), [], [(1, "abcd ")])
    with pytest.raises(RefusedError, match="which the target server would drop"):
        taken.close_entries([], net, "")
