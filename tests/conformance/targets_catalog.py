"""Definitions of real target tables, and what `check` refuses about them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from consumer.errors import UnitStoppedError
from consumer.tables.definition import prepare_definition
from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import find_table_misfit
from consumer.targets.checks.table_findings import check_session, check_table
from consumer.targets.dialect import load_dialect
from schemas.findings import Finding
from schemas.table.model import Column, ColumnType, Kind, Table
from tests.kits.targets import Lane, NetChange, Target, as_target, index, people, rows_of, text_type


def judged(target: Target, ddl: list[str], desired: Table | None = None, **more: Any) -> list[Finding]:
    """Create people as rowlock does, change it by `ddl` ("{t}" is the table), and judge it."""
    session = target.open()
    table = desired or people(target.schema)
    session.create_table(people(target.schema))
    for text in ddl:
        target.sql(text.format(t=target.name("people"), schema=target.schema))
    return check_table(session, table, **more)


def messages(found: list[Finding], level: str = "error") -> str:
    return " | ".join(finding.message for finding in found if finding.level == level)


def test_a_table_that_rowlock_made_reads_back_and_has_no_findings(target: Target) -> None:
    session = target.open()
    desired = people(target.schema)
    assert session.read_table(target.schema, "people") is None
    assert check_table(session, desired) == []
    session.create_table(desired)
    session.create_table(desired)
    real = session.read_table(target.schema, "people")
    assert real is not None
    assert real.column_names == desired.column_names
    assert real.key.columns == ("id",)
    assert sorted(each.columns for each in real.unique) == [("land", "passport"), ("mail",)]
    assert [column.nullable for column in real.columns] == [False, True, True, True, True]
    assert check_table(session, desired) == []


def test_two_tables_may_have_unique_indexes_of_one_name(target: Target) -> None:
    session = target.open()
    long = "n" * 60
    for name in ("a", "b", long):
        table = people(target.schema, name)
        session.create_table(structs.replace(table, unique=(index(long, "mail"), index("other", "note"))))
        real = session.read_table(target.schema, name)
        assert real is not None
        assert len(real.unique) == 2


def test_a_unique_index_over_a_whole_text_is_left_out_and_said_where_there_is_none(target: Target) -> None:
    """MariaDB's tables may have it, MySQL's may not (error 1170); the unit had stopped, and nothing but a
    table made by hand helped."""
    session = target.open()
    text = ColumnType(kind=Kind.TEXT, length=65535, charset="utf8mb4", collation="utf8mb4_bin")
    table = people(target.schema)
    columns = tuple(
        structs.replace(each, type=text) if each.name == "mail" else each for each in table.columns
    )
    table = structs.replace(table, columns=columns)
    without = target.kind in ("mysql", "mariadb") and not target.has_whole_texts
    assert [each.level for each in check_table(session, table)] == ["warning"] * without
    with capture_logs() as reported:
        session.create_table(table)
    real = session.read_table(target.schema, "people")
    assert real is not None
    left_out = [("mail",)] * without
    assert [
        each.columns for each in table.unique if all(each.columns != one.columns for one in real.unique)
    ] == left_out
    reasons = [line["reason"] for line in reported if line["log_level"] == "warning"]
    assert len(reasons) == len(left_out)
    assert all("(mail), which is over the whole text mail" in reason for reason in reasons)
    assert check_table(session, table) == []


def test_a_schema_that_is_missing_is_made(target: Target) -> None:
    session = target.open()
    schema = f"{target.database}_made"
    try:
        session.create_table(people(schema))
        assert session.read_table(schema, "people") is not None
    finally:
        target.sql(f"DROP SCHEMA {target.quoted(schema)}" + (" CASCADE" if target.kind == "postgres" else ""))


def test_odd_names_work_everywhere(target: Target) -> None:
    odd = '100% of "it"\'s `x`; --'
    table = Table(
        db=target.schema,
        name=odd,
        columns=(
            Column(name=odd, type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
            Column(name="%s", type=text_type(20)),
        ),
        key=index("PRIMARY", odd),
        unique=(index("%u", "%s"),),
    )
    session = target.open()
    session.create_table(table)
    assert session.read_table(target.schema, odd) is not None
    lane, wrapped = Lane.start(session), as_target(table)
    for many in (3, 100):
        rows: list[Any] = [(each, f"%{each}") for each in range(many)]
        lane.apply_net_change(NetChange(wrapped, replaces=rows))
        lane.apply_net_change(NetChange(wrapped, updates=rows))
        lane.apply_net_change(NetChange(wrapped, replaces=rows), displacing="{}")
        assert rows_of(session, wrapped) == rows
        lane.apply_net_change(NetChange(wrapped, deletes=[(each,) for each in range(many)]))


@pytest.mark.parametrize("made", ["by rowlock", "by hand", "with a column of that spelling from the route"])
def test_a_column_in_another_spelling_is_the_same_where_the_server_says_so(target: Target, made: str) -> None:
    """`NOTE` at the source: to MySQL, MariaDB and Oracle that is the target's `note`, and Oracle shows every
    `NOTE` as `note`; PostgreSQL has both."""
    session, table = target.open(), people(target.schema)
    names = {"note": "NOTE"}
    columns = tuple(structs.replace(each, name=names.get(each.name, each.name)) for each in table.columns)
    source, added = structs.replace(table, columns=columns), (("note", "b1"),)
    twice = made.startswith("with")
    routes = (TableRoute("*.*", "{db}.{table}", add=added if twice else ()),)
    if made != "by rowlock":
        session.create_table(table)
    alike = target.kind != "postgres"
    if alike if twice else (made == "by hand" and not alike):
        refused = "adds the column note" if twice else "lacks the columns NOTE"
        with pytest.raises(UnitStoppedError, match=refused):
            prepare_definition(
                session, StoredDefinition(source), source_name="b1", routes=routes, create=True
            )
        return
    if twice:
        return
    found = prepare_definition(
        session, StoredDefinition(source), source_name="b1", routes=routes, create=True
    )
    kept = made == "by hand" or not session.column_names.keeps_spelling
    assert found.stored.names == ({"NOTE": "note"} if kept else {})
    rows: list[Any] = [(1, "a", "de", 1, "first"), (2, "b", "de", 2, None)]
    Lane.start(session).apply_net_change(NetChange(found.target, replaces=rows))
    assert rows_of(session, found.target) == rows
    assert find_table_misfit(session, found.stored, "b1", routes) is None


CASES: dict[str, tuple[list[str], str]] = {
    "missing column": (["ALTER TABLE {t} DROP COLUMN note"], "lacks the columns note"),
    "required column": (["ALTER TABLE {t} ADD COLUMN must int NOT NULL"], "must"),
    "stricter index": (["CREATE UNIQUE INDEX stricter ON {t} (land)"], "stricter"),
    "incoming foreign key": ([("CREATE TABLE child (id int primary key, p bigint, FOREIGN "
        "KEY (p) REFERENCES {t} (id))")], "foreign keys"),
    "outgoing foreign key": (
        ["CREATE TABLE parent (id bigint primary key)",
         "ALTER TABLE {t} ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES parent (id)"],
        "foreign keys",
    ),
    "other type": (
        ["ALTER TABLE {t} DROP COLUMN note", "ALTER TABLE {t} ADD COLUMN note date"],
        "column note is date in the target",
    ),
}  # fmt: skip
POSTGRES: dict[str, tuple[list[str], str]] = {
    "trigger": (
        [
            "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER tr BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION public.f()",
        ],
        "triggers: tr",
    ),
    "nulls not distinct": (
        ["CREATE UNIQUE INDEX loose ON {t} (mail) NULLS NOT DISTINCT"],
        "NULLS NOT DISTINCT",
    ),
    "expression": (["CREATE UNIQUE INDEX e ON {t} (lower(note))"], "expression"),
    "partial": (["CREATE UNIQUE INDEX e ON {t} (mail) WHERE note IS NULL"], "part of the rows"),
    "deferrable": (["ALTER TABLE {t} ADD CONSTRAINT late UNIQUE (mail) DEFERRABLE"], "late"),
    "no key": (["ALTER TABLE {t} DROP CONSTRAINT people_pkey"], "neither a primary key"),
    "unknown type in an index": (
        ["CREATE TYPE public.mood AS ENUM ('a')", "ALTER TABLE {t} ADD COLUMN m public.mood UNIQUE"],
        "mood",
    ),
}
MYSQL: dict[str, tuple[list[str], str]] = {
    "trigger": (["CREATE TRIGGER tr BEFORE INSERT ON {t} FOR EACH ROW SET NEW.note = 'x'"], "triggers: tr"),
    "engine": (["ALTER TABLE {t} ENGINE = MyISAM"], "MyISAM"),
    "prefix": (["CREATE UNIQUE INDEX p ON {t} (mail(5))"], "only 5 characters"),
    "coarser collation": (
        ["ALTER TABLE {t} MODIFY mail varchar(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"],
        "utf8mb4_general_ci",
    ),
}


def test_what_check_refuses(target: Target) -> None:
    cases = CASES | (POSTGRES if target.kind == "postgres" else MYSQL)
    for name, (ddl, expected) in cases.items():
        found = judged(target, ddl)
        assert expected in messages(found), f"{name}: {found}"
        assert all(finding.remedy for finding in found)
        target.sql("DROP TABLE IF EXISTS child")
        target.sql(f"DROP TABLE {target.name('people')}")
        target.sql("DROP TABLE IF EXISTS parent")


def test_a_key_coarser_than_the_source_is_refused(target: Target) -> None:
    desired = structs.replace(people(target.schema), key=index("PRIMARY", "id", "note"))
    assert "lacks note" in messages(judged(target, [], desired))


def test_narrow_columns_are_a_warning(target: Target) -> None:
    columns = list(people(target.schema).columns)
    columns[4] = structs.replace(columns[4], type=text_type(101))
    columns[3] = structs.replace(columns[3], type=ColumnType(kind=Kind.INT, bits=64))
    found = judged(target, [], structs.replace(people(target.schema), columns=tuple(columns)))
    assert messages(found) == ""
    assert messages(found, "warning").count("cannot store every value") == 2


def test_many_sources_need_an_added_column_in_every_unique_index(target: Target) -> None:
    found = judged(target, [], sources=2, added=("note",))
    assert [finding.level for finding in found] == ["error"] * 3
    columns = [
        structs.replace(each, nullable=each.nullable and each.name != "note") for each in people("").columns
    ]
    keyed = structs.replace(
        people(target.schema),
        columns=tuple(columns),
        key=index("PRIMARY", "id", "note"),
        unique=(index("m", "mail", "note"),),
    )
    target.sql(f"DROP TABLE {target.name('people')}")
    target.open().create_table(keyed)
    assert check_table(target.open(), keyed, sources=2, added=("note",)) == []


def test_every_target_has_a_dialect_of_its_own(target: Target) -> None:
    assert load_dialect(target.config()).name == target.kind


def test_a_user_who_cannot_see_lock_holders_is_told_the_grant(target: Target) -> None:
    found = check_session(target.open(), "target hq")
    assert [each for each in found if each.level == "error"] == []
    if target.kind == "postgres":
        return  # no right is needed there
    user = f"{target.database}_u"
    target.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'pw'")
    try:
        target.sql(f"GRANT SELECT ON {target.database}.* TO {user}@'%'")
        blind = check_session(target.open(user=user, password="pw"), "target hq")
        assert "see who holds a lock" in messages(blind)
        target.sql(next(each.remedy for each in blind if each.level == "error"))
        assert messages(check_session(target.open(user=user, password="pw"), "target hq")) == ""
    finally:
        target.sql(f"DROP USER {user}@'%'")
