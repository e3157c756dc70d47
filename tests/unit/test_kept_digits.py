"""What a target's server would round or cut without a word is refused in its stead; what it refuses itself, or keeps whole, is left to it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from consumer.errors import RefusedError
from consumer.ordering.model import ApplyUnit, NetChange
from consumer.tables.kept_digits import kept_parts, refuse_parts
from consumer.tables.router import target_table
from rowlock.inspect.quarantine import _Taken
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale)


def text(length: int, kind: Kind = Kind.VARCHAR) -> ColumnType:
    return ColumnType(kind=kind, length=length)


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
    (time(Kind.DATETIME, 6), time(Kind.DATETIME, 3), ["2026-01-01 00:00:00.123000"], ["2026-01-01 00:00:00.123400"]),
    (time(Kind.TIMESTAMP, 3), time(Kind.TIMESTAMP, 0), ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00.500Z"]),
    (time(Kind.TIME, 1), time(Kind.TIME, 0), ["-01:00:00.0"], ["-01:00:00.1"]),
    (text(20), text(4), ["abcd", "ab  ", "abcde", "abcd e"], ["abcd ", "a       ", "     "]),
    (text(0, Kind.TEXT), text(4), ["abcd"], ["abcd "]),
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
    (ColumnType(kind=Kind.INT, bits=64), ColumnType(kind=Kind.INT, bits=32)),
]


@pytest.mark.parametrize(("source", "real", "good", "bad"), CASES)
@pytest.mark.parametrize("where", ["replaces", "updates", "snapshot"])
def test_a_part_of_a_value_is_refused(
    source: ColumnType, real: ColumnType, good: list[Any], bad: list[Any], where: str
) -> None:
    target = target_table(of(source), of(real))
    for value in good:
        refuse_parts(NetChange(target, [], **{where: [(1, value)]}))
    for value in bad:
        with pytest.raises(
            RefusedError, match=r"^column v of s\.t has .*which its server would (round|drop)$"
        ):
            refuse_parts(NetChange(target, [], **{where: [(1, good[0]), (2, value)]}))


@pytest.mark.parametrize(("source", "real"), WHOLE)
def test_columns_that_keep_all_or_refuse_are_not_looked_at(source: ColumnType, real: ColumnType) -> None:
    assert kept_parts(of(source), of(real)) == ()


def test_a_column_that_the_target_lacks_is_not_looked_at() -> None:
    real = of(text(4))
    assert kept_parts(of(text(20)), structs.replace(real, columns=real.columns[:1])) == ()


def test_a_retry_writes_no_part_either() -> None:
    """The person who says `rowlock quarantine retry` has to alter the target first."""
    nothing: Any = None
    taken = _Taken(nothing, nothing, ApplyUnit("p", "t"), [], nothing)
    net = NetChange(target_table(of(text(20)), of(text(4))), [], [(1, "abcd ")])
    with pytest.raises(RefusedError, match="which its server would drop"):
        taken.close_held([], net, "")
