"""Changes of target tables on real servers: every step on a table with rows, judged by the catalog and by
all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from consumer.errors import ConsumerError, NotUniqueError, TableChangedError, TargetConfigError
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
    apply_alterations,
)
from schemas.table.model import ColumnType, Kind, Row, Table
from tests.kits.alter import BIG, DECIMAL, INT, ROWS, Altered, column, shape, with_value
from tests.kits.targets import Target, as_target, index, people, text_type


@dataclass
class Case:
    """`steps`: made from the real table; `rows`: what they shall be afterwards, by the columns of the desired
    table."""

    steps: Callable[[Table], Sequence[Alteration]]
    rows: list[Row]


def change(
    table: Table, name: str, type_: ColumnType, *, lossless: bool = True, null: bool = True
) -> ChangeColumn:
    return ChangeColumn(table.get_column(name), column(name, type_, null=null), lossless)


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
        lambda t: [AddColumn(column("n",
         ColumnType(kind=Kind.TEXT, length=65535, charset="utf8mb4", collation="utf8mb4_bin"), null=False))],
        with_value(""),
    ),
    "add with a fill": Case(lambda t: [AddColumn(column("n", INT, null=False), fill=9)], with_value(9)),
    "add binary with a fill": Case(
        lambda t: [AddColumn(column("n", ColumnType(kind=Kind.VARBINARY, length=9), null=False),
         fill="AP8l")],
        with_value("AP8l"),
    ),
    "add a date with default": Case(
        lambda t: [AddColumn(column("n", ColumnType(kind=Kind.DATE), null=False, default="2020-02-29"))],
        with_value("2020-02-29"),
    ),
    "add several": Case(
        lambda t: [
            AddColumn(column("n", ColumnType(kind=Kind.TIMESTAMP, fsp=3), null=False,
             default="2020-01-02 03:04:05.678")),
            AddColumn(column("j", ColumnType(kind=Kind.JSON), null=False)),
            AddColumn(column("b", ColumnType(kind=Kind.BIT, length=5), null=False, default="5")),
            AddColumn(column("y", ColumnType(kind=Kind.TIME, fsp=1), null=False)),
        ],
        with_value("2020-01-02T03:04:05.678Z", "null", 5, "00:00:00.0"),
    ),
    "add a hostile name": Case(
        lambda t: [AddColumn(column(HOSTILE, INT, null=False, default="3")),
         AddUnique(index(HOSTILE, HOSTILE, "id"))],
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
            ChangeColumn(replace(t.get_column("passport"), name="p"), column("p", BIG), lossless=True),
        ],
        ROWS,
    ),
    "widen": Case(
        lambda t: [change(t, "passport", BIG), change(t, "note", text_type(500)),
         change(t, "land", text_type(30))], ROWS
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
            ChangeColumn(t.get_column("passport"), column("passport", BIG), lossless=True),
            *(DropUnique(index(each.name, "mail",
             "passport")) for each in t.unique if each.columns == ("land", "passport")),
            AddUnique(index("pass", "passport", "land")),
            ChangeKey(t.key, index("PRIMARY", "id", "land")),
        ],
        [(*row[:4], 4) for row in ROWS],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_changed_table_is_one_that_rowlock_would_make(target: Target, name: str) -> None:
    case, fixture = CASES[name], Altered.made(target)
    change = AlterTable(fixture.real, case.steps(fixture.real))
    if name == "add several" and target.kind == "mysql" and target.version < (8, 0, 31):
        with pytest.raises(TargetConfigError, match="alter the target table by hand"):
            fixture.run(change)  # this version takes no expression as a default, which JSON needs
        return
    fixture.run(change)
    # by its types in the neutral model of the source
    expected = apply_alterations(AlterTable(people(target.schema), case.steps(people(target.schema))))
    fixture.session.create_table(replace(expected, name="made"))
    made = fixture.session.read_table(target.schema, "made")
    assert made is not None
    assert shape(fixture.real) == shape(made)
    rows = fixture.rows(expected)
    assert [row[0] for row in rows] == [row[0] for row in case.rows or ROWS]
    if case.rows:
        assert rows == target.holds(expected, case.rows)
    again: list[Row] = [(*row,) for row in rows]
    fixture.lane.apply_net_change(NetChange(as_target(expected), replaces=again))
    fixture.lane.apply_net_change(NetChange(as_target(expected), updates=again))
    assert fixture.rows(expected) == rows


# -- what cannot be done


def test_rows_that_are_equal_keep_an_index_from_being_built(target: Target) -> None:
    """And nothing else of the change is done: the attempt can distinguish this error from others, and leaves
    the index out."""
    twice: list[Row] = [(1, "a", "de", 1, "same"), (2, "b", "de", 2, "same")]
    fixture = Altered.made(target, twice)
    before, expected = fixture.real, index("by note", "note")
    other = AddUnique(index("notes", "mail", "note"))
    with pytest.raises(NotUniqueError, match=r"\(note\)[\s\S]*HAVING COUNT") as refused:
        fixture.alter(AddColumn(column("n", INT)), other, AddUnique(expected))
    assert refused.value.index == expected
    assert "same" not in str(refused.value), "values of rows are in no message"
    assert fixture.real == before
    table = fixture.alter(AddColumn(column("n", INT)), other)
    assert fixture.rows(table) == [(*row, None) for row in twice]
    with pytest.raises(NotUniqueError) as refused:
        fixture.alter(ChangeKey(table.key, index("PRIMARY", "land")))
    assert refused.value.index.columns == ("land",)


#: (what uses the column, the remedy that is named). "{t}" is the table, "{s}" its schema.
USED: dict[str, list[tuple[str, str]]] = {
    "postgres": [
        ("CREATE VIEW {s}.looks AS SELECT note FROM {t}", "run DROP VIEW looks"),
        ("CREATE MATERIALIZED VIEW {s}.kept AS SELECT note FROM {t}", "run DROP MATERIALIZED VIEW kept"),
        ("ALTER TABLE {t} ADD made text GENERATED ALWAYS AS (note || 'x') STORED",
         "run ALTER TABLE people DROP COLUMN made"),
        ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (note <> 'x')", "run ALTER TABLE people DROP CONSTRAINT c"),
    ],
    "mysql": [
        ("ALTER TABLE {t} ADD COLUMN made text AS (CONCAT(note, 'x'))", "drop the generated column"),
        ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (note <> mail)", "drop the check constraint"),
        (("ALTER TABLE {t} DROP INDEX mail, DROP INDEX pass, DROP PRIMARY KEY, ADD PRIMARY KEY (id, "
            "note) PARTITION BY KEY(note)"), "partition the target table by key columns"),
    ],
    "mariadb": [
        ("ALTER TABLE {t} ADD COLUMN made text AS (CONCAT(note, 'x'))", "drop what uses the column"),
        ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (note <> mail)", "drop what uses the column"),
        (("ALTER TABLE {t} DROP INDEX mail, DROP INDEX pass, DROP PRIMARY KEY, ADD PRIMARY KEY (id, "
            "note) PARTITION BY KEY(note)"), "partition the target table by key columns"),
    ],
}  # fmt: skip


def test_what_uses_a_column_is_named_with_a_remedy(target: Target) -> None:
    fixture = Altered.made(target, [(1, "a", "de", 1, "n")])
    uses = USED[target.kind]
    if target.kind == "mysql" and target.version < (8, 0, 16):  # it has no CHECK
        uses = [each for each in uses if "CHECK" not in each[0]]
    for at, (ddl, remedy) in enumerate(uses):
        name = f"people{at}" if at else "people"
        fixture.session.create_table(people(target.schema, name))
        target.sql(ddl.format(t=target.name(name), s=target.schema))
        real = fixture.session.read_table(target.schema, name)
        assert real is not None
        with pytest.raises(TargetConfigError) as refused:
            fixture.run(AlterTable(real, [DropColumn("note")]))
        assert remedy.replace("people", name) in str(refused.value) or remedy in str(refused.value)
        assert fixture.session.read_table(target.schema, name) == real


def test_what_refers_to_a_table_keeps_it_from_being_dropped(target: Target) -> None:
    fixture = Altered.made(target)
    real = fixture.real
    target.sql(
        "CREATE TABLE child (id int PRIMARY KEY, p bigint, FOREIGN KEY (p) REFERENCES "
        f"{target.name('people')} (id))"
    )
    with pytest.raises(TargetConfigError, match=r": drop "):
        fixture.run(DropTable(real))
    assert fixture.real == real
    target.sql("DROP TABLE child")
    for _ in range(2):
        fixture.run(DropTable(real))
        assert fixture.session.read_table(target.schema, "people") is None


def test_a_table_that_somebody_else_changed_is_left_alone(target: Target) -> None:
    fixture = Altered.made(target)
    stale = AlterTable(fixture.real, [AddColumn(column("n", INT))])
    fixture.alter(AddColumn(column("n", INT)))
    with pytest.raises(TableChangedError, match="the change is planned again"):
        fixture.run(stale)
    fixture.run(DropTable(fixture.real))
    with pytest.raises(ConsumerError):
        fixture.run(stale)
