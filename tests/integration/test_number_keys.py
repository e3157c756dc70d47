"""Keys that are the extreme values of every numeric type: each row is found under its key, in each target."""

from __future__ import annotations

import pytest

from consumer.ordering.model import RowChange
from consumer.ordering.netchange import NetChangeReducer
from schemas.table.equality import are_same_values, are_wire_equal
from schemas.table.model import Column, ColumnType, Kind, Row, Table, Value
from tests.kits.schemas_strategies import TABLE, bounds
from tests.kits.targets import Lane, Target, as_target, index, rows_of, targets

target = targets("postgres", "mariadb", "mysql")
NUMBERS = [
    column
    for column in TABLE.columns
    if column.type.kind in (Kind.INT, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.BIT, Kind.YEAR)
]
NOTE = Column(name="note", type=ColumnType(kind=Kind.INT, bits=32))


def tables(schema: str, column: Column) -> tuple[Table, Table]:
    """The number as the whole key, and behind another column."""
    key = Column(name="k", type=column.type, nullable=False)
    part = Column(name="part", type=ColumnType(kind=Kind.INT, bits=8), nullable=False)
    return (
        Table(db=schema, name="alone", columns=(key, NOTE), key=index("PRIMARY", "k")),
        Table(db=schema, name="parted", columns=(key, NOTE, part), key=index("PRIMARY", "part", "k")),
    )


def keys(type_: ColumnType) -> list[Value]:
    """Return the bounds of a type, but one of the two zeros that a key holds equal."""
    found = dict.fromkeys(value for value in bounds(type_) if value is not None)
    return list(found)


@pytest.mark.parametrize("column", NUMBERS, ids=lambda column: column.name)
def test_rows_are_found_under_the_extremes_of_a_number(target: Target, column: Column) -> None:
    for table in tables(target.schema, column):
        session = target.open()
        session.create_table(table)
        wrapped, lane = as_target(table), Lane.start(session)
        rest: Row = () if table.name == "alone" else (7,)
        rows: list[Row] = [(key, 0, *rest) for key in keys(column.type)]
        changed: list[Row] = [(row[0], 1, *row[2:]) for row in rows]
        for before, after in ((None, rows), (rows, changed), (changed, None)):
            images = zip(before or [None] * len(rows), after or [None] * len(rows), strict=True)
            changes = [RowChange((at, 0), *pair) for at, pair in enumerate(images)]
            assert lane.apply_net_change(NetChangeReducer(wrapped).reduce(changes)) == 0
            _same(table, rows_of(session, wrapped), after or [])
        lane.apply_net_change(
            NetChangeReducer(wrapped).reduce([RowChange((at, 0), None, row) for at, row in enumerate(rows)])
        )
        asked = [tuple(row[at] for at in wrapped.key_at) for row in rows]
        _same(table, session.fetch_keys(wrapped, asked), rows)


def _same(table: Table, found: list[Row], expected: list[Row]) -> None:
    assert len(found) == len(expected)
    kinds = [column.type.kind for column in table.columns]
    for row in expected:
        assert any(
            all(are_wire_equal(*cell) for cell in zip(kinds, row, other, strict=True)) for other in found
        ), row


@pytest.mark.parametrize("kind", [Kind.FLOAT, Kind.DOUBLE])
def test_a_key_that_becomes_the_other_zero_is_written(target: Target, kind: Kind) -> None:
    """As a whole key and as a part of one, in one statement and by COPY; columns that rowlock does not write
    keep their values."""
    for table in tables(target.schema, Column(name="k", type=ColumnType(kind=kind), nullable=False)):
        session = target.open()
        session.create_table(table)
        target.sql(
            f"ALTER TABLE {target.name(table.name)} ADD COLUMN extra varchar(60) DEFAULT 'of a new row'"
        )
        wrapped, lane = as_target(table), Lane.start(session)
        rest: Row = () if table.name == "alone" else (7,)
        others: list[Row] = [(float(each), 0, *rest) for each in range(1, 300)]
        for many in (others, []):
            for old, new in ((-0.0, 0.0), (0.0, -0.0)):
                before, after = (old, 1, *rest), (new, 1, *rest)
                first = [RowChange((at, 0), None, row) for at, row in enumerate([before, *many])]
                lane.apply_net_change(NetChangeReducer(wrapped).reduce(first))
                target.sql(f"UPDATE {target.name(table.name)} SET extra = 'its own' WHERE k = 0")
                lane.apply_net_change(
                    NetChangeReducer(wrapped).reduce(
                        [RowChange((0, 0), before, after), *(RowChange((1, 0), row, row) for row in many)]
                    )
                )
                [found] = [row for row in rows_of(session, wrapped) if row[0] == 0]
                assert are_same_values(found, after)
                assert target.sql(f"SELECT extra FROM {target.name(table.name)} WHERE k = 0") == [
                    ("its own",)
                ]
