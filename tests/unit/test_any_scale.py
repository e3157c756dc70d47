"""Decimals of any scale (precision 0, Oracle's NUMBER): which columns take them, and that none is rounded without a word."""

from __future__ import annotations

import pytest

from consumer.tables.evolution.widening import join
from consumer.targets.checks.column_fit import holds
from schemas.errors import ValueRefusedError
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.typemap import mysql_type, postgres_type
from schemas.values.mysql import to_mysql

ANY = ColumnType(kind=Kind.DECIMAL)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale)


def test_their_columns() -> None:
    assert postgres_type(ANY) == "numeric"
    assert mysql_type(ANY) == "decimal(65,30)"


def test_only_the_widest_column_holds_them() -> None:
    assert holds(ANY, ANY)
    assert holds(ANY, decimal(65, 30))
    assert not holds(ANY, decimal(38, 10))
    assert holds(decimal(38, 10), ANY)


def test_joined_with_another_they_stay_of_any_scale() -> None:
    assert join(ANY, decimal(10, 2)) == ANY


@pytest.mark.parametrize("type_", [ANY, decimal(65, 30)])
def test_mysql_refuses_a_fraction_that_it_would_round(type_: ColumnType) -> None:
    write = to_mysql(_table(type_))
    assert write(("0." + "1" * 30,)) == ("0." + "1" * 30,)
    with pytest.raises(ValueRefusedError, match="30 digits"):
        write(("0." + "1" * 31,))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_mysql_refuses_what_is_no_number(value: str) -> None:
    with pytest.raises(ValueRefusedError, match="neither NaN nor infinity"):
        to_mysql(_table(ColumnType(kind=Kind.DOUBLE)))((value,))


def _table(type_: ColumnType) -> Table:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="c"),))
    return Table(db="d", name="t", columns=(Column(name="c", type=type_),), key=key)
