"""Decimals of any scale (precision 0, Oracle's NUMBER): which columns take them, and that none is rounded
without a word."""

from __future__ import annotations

from decimal import Decimal

import pytest

from consumer.tables.evolution.widening import join_types
from consumer.targets.checks.column_fit import has_room
from consumer.targets.oracle.values import from_oracle
from schemas.errors import ValueRefusedError
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.oracle_ddl import render_oracle_type
from schemas.table.typemap import render_mysql_type, render_postgres_type
from schemas.values.mysql import make_select_row_converter, to_mysql
from schemas.values.postgres_rows import make_postgres_row_converter

ANY = ColumnType(kind=Kind.DECIMAL)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale)


def test_their_columns() -> None:
    assert render_postgres_type(ANY) == "numeric"
    assert render_mysql_type(ANY) == "decimal(65,30)"
    assert render_oracle_type(ANY) == "NUMBER"


def test_only_the_widest_column_holds_them() -> None:
    assert has_room(ANY, ANY)
    assert has_room(ANY, decimal(65, 30))
    assert not has_room(ANY, decimal(38, 10))
    assert has_room(decimal(38, 10), ANY)


def test_joined_with_another_they_stay_of_any_scale() -> None:
    assert join_types(ANY, decimal(10, 2)) == ANY


@pytest.mark.parametrize("type_", [ANY, decimal(65, 30)])
def test_mysql_refuses_a_fraction_that_it_would_round(type_: ColumnType) -> None:
    write = to_mysql(_table(type_))
    assert write(("0." + "1" * 30,)) == ("0." + "1" * 30,)
    with pytest.raises(ValueRefusedError, match="30 digits"):
        write(("0." + "1" * 31,))


@pytest.mark.parametrize(("given", "wire"), [
    ("1.500000000000000000000000000000", "1.5"), ("-0.50", "-0.5"), ("100.00", "100"), ("100", "100"), ("0.00", "0"), ("0E+2", "0"),  # noqa: E501
])  # fmt: skip
def test_they_are_read_back_as_the_source_writes_them(given: str, wire: str) -> None:
    """A column of 30 digits shows them all, and `numeric` shows as many as were written: a key read so would
    be another one."""
    assert from_oracle(_table(ANY))((Decimal(given),)) == (wire,)
    if "E" not in given:
        assert make_select_row_converter(_table(ANY))((given,)) == (wire,)
        assert make_postgres_row_converter(_table(ANY))((given,)) == (wire,)


def test_a_decimal_with_a_scale_keeps_its_zeros() -> None:
    table = _table(decimal(10, 2))
    assert from_oracle(table)((Decimal("1.5"),)) == make_postgres_row_converter(table)(("1.5",)) == ("1.50",)
    assert make_select_row_converter(table)(("1.50",)) == ("1.50",)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_mysql_refuses_what_is_no_number(value: str) -> None:
    with pytest.raises(ValueRefusedError, match="neither NaN nor infinity"):
        to_mysql(_table(ColumnType(kind=Kind.DOUBLE)))((value,))


def _table(type_: ColumnType) -> Table:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="c"),))
    return Table(db="d", name="t", columns=(Column(name="c", type=type_),), key=key)


@pytest.mark.parametrize(("shown", "wire"), [
    (float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (-0.0, -0.0), (1.5, 1.5), (None, None),  # noqa: E501
])  # fmt: skip
@pytest.mark.parametrize("kind", [Kind.FLOAT, Kind.DOUBLE])
def test_what_is_no_finite_number_is_read_back_as_the_source_writes_it(
    kind: Kind, shown: float | None, wire: object
) -> None:
    """Else `verify` would find such a row different for ever."""
    for read in (from_oracle, make_postgres_row_converter):
        assert repr(read(_table(ColumnType(kind=kind)))((shown,))) == repr((wire,))
