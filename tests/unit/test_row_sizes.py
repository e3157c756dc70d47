"""The longest columns of a row that is too large for the target."""

from __future__ import annotations

import pytest

from consumer.errors import RowTooLargeError
from consumer.ordering.model import NetChange, TargetTable
from consumer.ordering.row_sizes import name_longest_columns
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex, Value

COLUMNS = (
    ("id", Kind.INT), ("t", Kind.TEXT), ("b", Kind.BLOB), ("g", Kind.GEOMETRY), ("j", Kind.JSON),
)  # fmt: skip


@pytest.fixture
def table() -> TargetTable:
    columns = tuple(Column(name=name, type=ColumnType(kind=kind)) for name, kind in COLUMNS)
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return TargetTable(Table(db="d", name="t", columns=columns, key=key), (0,), ((0,),))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((1, "äö", "AAECAw==", None, None), "t 4 bytes, b 4 bytes"),
        ((1, "", None, {"srid": 0, "wkb": "AAEC"}, "[1]"), "g 7 bytes, j 3 bytes"),
        ((10**9, "secret", "AAEC", {"srid": 0, "wkb": "AAEC"}, "[1, 2]"), "g 7 bytes, t 6 bytes, j 6 bytes"),
    ],
)
def test_the_longest_columns_of_one_row_are_named_with_their_bytes(
    table: TargetTable, values: tuple[Value, ...], named: str
) -> None:
    found = name_longest_columns(RowTooLargeError("it is too big", "do"), NetChange(table, replaces=[values]))
    assert found.problem.what == f"it is too big; longest columns of the row: {named}"
    assert found.problem.remedy == "do"


@pytest.mark.parametrize("rows", [[], [(1, "a", None, None, None)] * 2, [(1, None, None, None, None)]])
def test_no_column_is_named_unless_one_row_has_texts(table: TargetTable, rows: list[Row]) -> None:
    error = RowTooLargeError("it is too big")
    assert name_longest_columns(error, NetChange(table, updates=rows)) is error
