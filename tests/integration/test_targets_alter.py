"""Changes of target tables on real servers: every step on a table with rows, judged by the catalogue and by all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.ordering.model import NetChange
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropTable,
    DropUnique,
    RenameColumn,
    altered,
)
from consumer.targets.session import SqlSession
from schemas.table.model import Column, ColumnType, Kind, Row, Table
from tests.targets_kit import Lane, Target, as_target, index, people, rows_of, text_type
from tests.targets_kit import target as target

INT = ColumnType(kind=Kind.INT, bits=32)
BIG = ColumnType(kind=Kind.INT, bits=64)
DECIMAL = ColumnType(kind=Kind.DECIMAL, precision=8, scale=2)
ROWS: list[Row] = [
    (1, "a@x", "de", 7, "first"),
    (2, None, None, None, None),
    (3, "ä%s'\\", "fr", -5, ""),
]


def column(name: str, type_: ColumnType, *, null: bool = True, default: str | None = None) -> Column:
    return Column(name=name, type=type_, nullable=null, default=default)


@dataclass
class Case:
    """`steps`: made from the real table; `rows`: what they shall be afterwards, by the columns of the wanted table."""

    steps: Callable[[Table], Sequence[Alteration]]
    rows: list[Row]


def with_value(*values: Any) -> list[Row]:
    return [(*row, *values) for row in ROWS]


def change(table: Table, name: str, type_: ColumnType, *, lossless: bool = True, null: bool = True) -> ChangeColumn:
    return ChangeColumn(table.column(name), column(name, type_, null=null), lossless)


HOSTILE = '100% of "it"\'s `x`; --'
CASES: dict[str, Case] = {
    "add nullable": Case(lambda t: [AddColumn(column("n", INT))], with_value(None)),
    "add with default": Case(
        lambda t: [AddColumn(column("n", text_type(20), default="it's 5%\\"))], with_value("it's 5%\\")
    ),
    "add not null with default": Case(
        lambda t: [AddColumn(column("n", DECIMAL, null=False, default="1.50"))], with_value("1.50")
    ),
    "add not null": Case(lambda t: [AddColumn(column("n", INT, null=False))], with_value(0)),
    "add text not null": Case(
        lambda t: [AddColumn(column("n", ColumnType(kind=Kind.TEXT, length=65535, charset="utf8mb4", collation="utf8mb4_bin"), null=False))],
        with_value(""),
    ),
    "add with a fill": Case(lambda t: [AddColumn(column("n", INT, null=False), fill=9)], with_value(9)),
    "add binary with a fill": Case(
        lambda t: [AddColumn(column("n", ColumnType(kind=Kind.VARBINARY, length=9), null=False), fill="AP8l")],
        with_value("AP8l"),
    ),
    "add several": Case(
        lambda t: [
            AddColumn(column("n", ColumnType(kind=Kind.TIMESTAMP, fsp=3), null=False, default="2020-01-02 03:04:05.678")),
            AddColumn(column("j", ColumnType(kind=Kind.JSON), null=False)),
            AddColumn(column("b", ColumnType(kind=Kind.BIT, length=5), null=False, default="5")),
            AddColumn(column("y", ColumnType(kind=Kind.TIME, fsp=1), null=False)),
        ],
        with_value("2020-01-02T03:04:05.678Z", "null", 5, "00:00:00.0"),
    ),
    "add a hostile name": Case(
        lambda t: [AddColumn(column(HOSTILE, INT, null=False, default="3")), AddUnique(index(HOSTILE, HOSTILE, "id"))],
        with_value(3),
    ),
    "drop": Case(lambda t: [DropColumn("note")], [row[:4] for row in ROWS]),
    "drop a column of a unique index": Case(
        lambda t: [DropColumn("land")], [(*row[:2], *row[3:]) for row in ROWS]
    ),
    "rename": Case(lambda t: [RenameColumn("note", "remark")], ROWS),
    "rename of the key and of a unique column": Case(
        lambda t: [RenameColumn("id", "number"), RenameColumn("mail", HOSTILE)], ROWS
    ),
    "names change places": Case(
        lambda t: [RenameColumn("mail", "note"), RenameColumn("note", "mail")], ROWS
    ),
    "rename, and a new one under the old name": Case(
        lambda t: [RenameColumn("note", "remark"), AddColumn(column("note", INT, null=False))], with_value(0)
    ),
    "rename, then change": Case(
        lambda t: [
            RenameColumn("passport", "p"),
            ChangeColumn(replace(t.column("passport"), name="p"), column("p", BIG), lossless=True),
        ],
        ROWS,
    ),
    "widen": Case(
        lambda t: [change(t, "passport", BIG), change(t, "note", text_type(500)), change(t, "land", text_type(30))], ROWS
    ),
    "integer to decimal": Case(
        lambda t: [change(t, "passport", ColumnType(kind=Kind.DECIMAL, precision=12, scale=2))],
        [(*row[:3], None if row[3] is None else f"{row[3]}.00", row[4]) for row in ROWS],
    ),
    "lossy without room": Case(
        lambda t: [change(t, "note", text_type(2), lossless=False), change(t, "passport", DECIMAL)], []
    ),
    "lossy to another kind": Case(
        lambda t: [
            change(t, "note", INT, lossless=False),
            change(t, "passport", ColumnType(kind=Kind.DATE), lossless=False),
        ],
        [],
    ),
    "lossy to json": Case(lambda t: [change(t, "note", ColumnType(kind=Kind.JSON), lossless=False)], []),
    "lossy and not null": Case(lambda t: [change(t, "note", INT, lossless=False, null=False)], []),
    "not null": Case(
        lambda t: [change(t, "note", text_type(100), null=False)],
        [(*row[:4], row[4] or "") for row in ROWS],
    ),
    "unique": Case(lambda t: [AddUnique(index("both", "note", "mail"))], ROWS),
    "no unique": Case(lambda t: [DropUnique(each) for each in t.unique], ROWS),
    "unique index changed": Case(
        lambda t: [
            *(DropUnique(each) for each in t.unique if each.columns == ("mail",)),
            AddUnique(index("mail", "mail", "note")),
        ],
        ROWS,
    ),
    "key": Case(
        lambda t: [
            AddColumn(column("branch", text_type(5), null=False, default="b")),
            ChangeKey(t.key, index("PRIMARY", "branch", "id")),
        ],
        with_value("b"),
    ),
    "key of a wider type": Case(
        lambda t: [change(t, "id", ColumnType(kind=Kind.DECIMAL, precision=30, scale=0), null=False)],
        [(str(row[0]), *row[1:]) for row in ROWS],
    ),
    "everything at once": Case(
        lambda t: [
            DropColumn("note"),
            RenameColumn("mail", "address"),
            RenameColumn("land", "mail"),
            AddColumn(column("land", INT, null=False, default="4")),
            ChangeColumn(t.column("passport"), column("passport", BIG), lossless=True),
            *(DropUnique(index(each.name, "mail", "passport")) for each in t.unique if each.columns == ("land", "passport")),
            AddUnique(index("pass", "passport", "land")),
            ChangeKey(t.key, index("PRIMARY", "id", "land")),
        ],
        [(*row[:4], 4) for row in ROWS],
    ),
}  # fmt: skip


@dataclass
class Fixture:
    target: Target
    session: SqlSession
    lane: Lane
    changes: list[AlterTable | DropTable] = field(default_factory=list)

    @classmethod
    def made(cls, target: Target, rows: Sequence[Row] = ROWS, **options: Any) -> Fixture:
        session = target.open(**options)
        table = people(target.schema)
        session.create_table(table)
        lane = Lane.start(session)
        lane.apply(NetChange(as_target(table), replaces=list(rows)))
        return cls(target, session, lane)

    @property
    def real(self) -> Table:
        found = self.session.read_table(self.target.schema, "people")
        assert found is not None
        return found

    def alter(self, *steps: Alteration) -> Table:
        change = AlterTable(self.real, steps)
        self.run(change)
        return altered(change)

    def run(self, change: AlterTable | DropTable) -> None:
        if self.session.transactional_ddl:
            with self.session.transaction(self.lane.unit, [self.lane.row]) as tx:
                tx.alter(change)
        else:
            self.session.alter(change, connection=self.session.connection())

    def rows(self, table: Table) -> list[Row]:
        return rows_of(self.session, as_target(table))


def shape(table: Table) -> object:
    """What must be alike, whatever the order of columns and the names of indexes."""
    columns = {each.name: (each.type, each.nullable) for each in table.columns}
    return columns, table.key.columns, sorted(each.columns for each in table.unique)


@pytest.mark.parametrize("name", CASES)
def test_a_changed_table_is_one_that_rowlock_would_make(target: Target, name: str) -> None:
    case, fixture = CASES[name], Fixture.made(target)
    change = AlterTable(fixture.real, case.steps(fixture.real))
    fixture.run(change)
    # by its types in the neutral model of the source
    wanted = altered(AlterTable(people(target.schema), case.steps(people(target.schema))))
    fixture.session.create_table(replace(wanted, name="made"))
    made = fixture.session.read_table(target.schema, "made")
    assert made is not None
    assert shape(fixture.real) == shape(made)
    rows = fixture.rows(wanted)
    assert [row[0] for row in rows] == [row[0] for row in case.rows or ROWS]
    if case.rows:
        assert rows == case.rows
    again: list[Row] = [(*row,) for row in rows]
    fixture.lane.apply(NetChange(as_target(wanted), replaces=again))
    fixture.lane.apply(NetChange(as_target(wanted), updates=again))
    assert fixture.rows(wanted) == rows
