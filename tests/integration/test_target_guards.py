"""What `check` and apply refuse about a target table is seen as exactly the user of
docs/how-to/target-setup.md, on all servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from consumer.targets.checks.table_findings import check_session, check_table
from consumer.targets.mysql.facts import find_partial_partitionings
from tests.kits.apply import ROOT
from tests.kits.targets import Lane, NetChange, Target, as_target, people
from tests.kits.targets import target as target

PAGE = ROOT / "docs" / "how-to" / "target-setup.md"
PASSWORD = "a password of its own"
HEADINGS = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}


def documented(target: Target, user: str) -> list[str]:
    """Return the statements of the page for this server, for `user` and the test's database."""
    block = re.search(
        rf"^## {HEADINGS[target.kind]} .*?\n\n```sql\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    text = re.sub(r"--.*", "", block[1]).replace("'…'", f"'{PASSWORD}'")
    text = text.replace("rowlock@'%'", f"`{user}`@'%'").replace("ON hq.*", f"ON `{target.database}`.*")
    text = re.sub(r"\b(TO|ROLE) rowlock\b", rf'\1 "{user}"', text).replace(
        "DATABASE hq", f'DATABASE "{target.database}"'
    )
    return [each.strip() for each in text.split(";") if each.strip()]


@pytest.fixture
def user(target: Target) -> Iterator[str]:
    name = f"{target.database}_doc"
    yield name
    for session in target.sessions:
        session.close()
    if target.kind == "postgres":
        if target.sql("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]):
            target.sql(f'DROP OWNED BY "{name}" CASCADE')
            target.sql(f'DROP ROLE "{name}"')
    else:
        target.sql(f"DROP USER IF EXISTS `{name}`")


def open_as(target: Target, user: str) -> Any:
    """Return a session as exactly the documented user; the page's example of a table that exists already
    exists."""
    if target.kind == "postgres":
        target.sql("CREATE TABLE public.acct (id int PRIMARY KEY)")
    for statement in documented(target, user):
        target.sql(statement)
    return target.open(user=user, password=PASSWORD)


#: what is done to the table → what is said; "{t}" the table, "{s}" its schema
COMMON = {
    "nothing": ([], ""),
    "incoming foreign key": (
        [
            (
                "CREATE TABLE child (id int primary key, p bigint, FOREIGN KEY (p) "
                "REFERENCES {t} (id) ON DELETE CASCADE)"
            )
        ],
        "has foreign keys",
    ),
    "outgoing foreign key": (
        [
            "CREATE TABLE parent (id bigint primary key)",
            "ALTER TABLE {t} ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES parent (id)",
        ],
        "has foreign keys",
    ),
}
MYSQL = {
    "trigger": (["CREATE TRIGGER tr BEFORE INSERT ON {t} FOR EACH ROW SET NEW.note = 'x'"], "triggers: tr"),
    "foreign key from elsewhere": (
        [
            "CREATE DATABASE `{s}_other`",
            ("CREATE TABLE `{s}_other`.child (id int primary key, p bigint, FOREIGN KEY (p) "
                "REFERENCES {t} (id) ON DELETE CASCADE)"),
        ],
        "has foreign keys",
    ),
    "engine": (["ALTER TABLE {t} ENGINE = MyISAM"], "no transactions"),
    "generated": (
        ["ALTER TABLE {t} DROP COLUMN note", "ALTER TABLE {t} ADD COLUMN note varchar(100) AS (mail) STORED"],
        "note is a generated column",
    ),
    "partitions": (
        [
            "ALTER TABLE {t} DROP INDEX mail", "ALTER TABLE {t} DROP INDEX pass",
            "ALTER TABLE {t} PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (100))",
        ],
        "do not cover every row (RANGE",
    ),
    "list partitions": (
        [
            "ALTER TABLE {t} DROP INDEX mail", "ALTER TABLE {t} DROP INDEX pass",
            "ALTER TABLE {t} PARTITION BY LIST (id) (PARTITION a VALUES IN (1, 2))",
        ],
        "do not cover every row (LIST",
    ),
    "partitions of all": (
        [
            "ALTER TABLE {t} DROP INDEX mail", "ALTER TABLE {t} DROP INDEX pass",
            ("ALTER TABLE {t} PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (100), PARTITION "
                "b VALUES LESS THAN MAXVALUE)"),
        ],
        "",
    ),
    "hash partitions": (
        [
            "ALTER TABLE {t} DROP INDEX mail", "ALTER TABLE {t} DROP INDEX pass",
            "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 4",
        ],
        "",
    ),
}  # fmt: skip
_FUNCTION = "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
_PARTED = [
    "DROP TABLE {t}",
    (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, mail varchar(60), land varchar(3), passport int, "
        "note varchar(100)) PARTITION BY "
    ),
    "GRANT SELECT, INSERT, UPDATE, DELETE ON {t} TO {u}",
]


def parted(by: str, *more: str) -> list[str]:
    return [_PARTED[0], _PARTED[1] + by, _PARTED[2], *more]


POSTGRES = {
    "trigger": (
        [_FUNCTION, "CREATE TRIGGER tr BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION public.f()"],
        "triggers: tr",
    ),
    "trigger of a partition": (
        parted(
            "RANGE (id)", "CREATE TABLE part PARTITION OF {t} DEFAULT", _FUNCTION,
            "CREATE TRIGGER tr BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION public.f()",
        ),
        "triggers: tr",
    ),
    "rule": (["CREATE RULE nothing AS ON DELETE TO {t} DO INSTEAD NOTHING"], "has rules: nothing"),
    "unlogged": (["ALTER TABLE {t} SET UNLOGGED"], "is UNLOGGED"),
    "unlogged partition": (
        parted("RANGE (id)", "CREATE UNLOGGED TABLE part PARTITION OF {t} DEFAULT"), "is UNLOGGED (part)"
    ),
    "row level security": (["ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"], "row level security that applies"),
    "forced row level security": (
        ["ALTER TABLE {t} OWNER TO {u}", "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
         "ALTER TABLE {t} FORCE ROW LEVEL SECURITY"],
        "row level security that applies",
    ),
    "row level security of the owner": (
        ["ALTER TABLE {t} OWNER TO {u}", "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"], ""
    ),
    "generated": (
        ["ALTER TABLE {t} DROP COLUMN note",
         "ALTER TABLE {t} ADD COLUMN note text GENERATED ALWAYS AS (mail) STORED"],
        "note is a generated column",
    ),
    "identity": (
        ["ALTER TABLE {t} ALTER passport SET NOT NULL",
         "ALTER TABLE {t} ALTER passport ADD GENERATED ALWAYS AS IDENTITY"],
        "passport are GENERATED ALWAYS",
    ),
    "identity of the key": (["ALTER TABLE {t} ALTER id ADD GENERATED ALWAYS AS IDENTITY"], ""),
    "view": (
        [
            "ALTER TABLE {t} RENAME TO base", "CREATE VIEW {t} AS SELECT * FROM public.base",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON {t} TO {u}",
        ],
        "neither a primary key",
    ),
    "inheritance": (["CREATE TABLE child () INHERITS ({t})"], "tables that inherit from it: child"),
    "no default": (
        parted("RANGE (id)", "CREATE TABLE part PARTITION OF {t} FOR VALUES FROM (1) TO (10)"),
        "do not cover every row",
    ),
    "default": (parted("LIST (id)", "CREATE TABLE part PARTITION OF {t} DEFAULT"), ""),
    "hash, a part missing": (
        parted("HASH (id)", "CREATE TABLE part PARTITION OF {t} FOR VALUES WITH (modulus 2, remainder 0)"),
        "do not cover every row",
    ),
    "hash, whole": (
        parted(
            "HASH (id)", "CREATE TABLE part PARTITION OF {t} FOR VALUES WITH (modulus 2, remainder 0)",
            "CREATE TABLE part2 PARTITION OF {t} FOR VALUES WITH (modulus 4, remainder 1)",
            "CREATE TABLE part3 PARTITION OF {t} FOR VALUES WITH (modulus 4, remainder 3)",
        ),
        "",
    ),
}  # fmt: skip


def test_every_guard_sees_as_the_documented_user(target: Target, user: str) -> None:
    session = open_as(target, user)
    assert [each for each in check_session(session, "target") if each.level == "error"] == []
    assert session.find_missing_rights([(target.schema, "people")], create=True) == []
    cases = COMMON | (POSTGRES if target.kind == "postgres" else MYSQL)
    root = target.open()
    desired = people(target.schema)
    for name, (ddl, expected) in cases.items():
        root.create_table(desired)
        if target.kind == "postgres":
            target.sql(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{user}"')
        for text in ddl:
            target.sql(text.format(t=target.name("people"), s=target.schema, u=f'"{user}"'))
        found = check_table(session, desired)
        notified = [str(each) for each in found if "stricter" not in each.message]
        if expected:
            assert any(expected in each for each in notified), f"{name}: {notified}"
        else:
            assert notified == [], name
        assert all(each.remedy for each in found), name
        clean(target)


def clean(target: Target) -> None:
    if target.kind == "postgres":
        target.sql(
            "DO $$ BEGIN IF EXISTS (SELECT FROM pg_views WHERE viewname = 'people' AND schemaname = "
            "'public') THEN DROP VIEW public.people; END IF; END $$"
        )
        for table in ("child", "people", "base", "parent"):
            target.sql(f"DROP TABLE IF EXISTS public.{table} CASCADE")
        target.sql("DROP FUNCTION IF EXISTS public.f() CASCADE")
        return
    target.sql(f"DROP DATABASE IF EXISTS `{target.database}_other`")
    for table in ("child", "people", "parent"):
        target.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize("right", ["TRIGGER", "PROCESS"])
def test_a_guard_that_cannot_see_says_so_and_demands_the_right(target: Target, user: str, right: str) -> None:
    if target.kind == "postgres":
        pytest.skip("PostgreSQL shows its catalog to everybody")
    open_as(target, user).close()
    where = f"`{target.database}`.*" if right == "TRIGGER" else "*.*"
    target.sql(f"REVOKE {right} ON {where} FROM `{user}`")
    session = target.open(user=user, password=PASSWORD)
    target.open().create_table(people(target.schema))
    (finding,) = [each for each in check_table(session, people(target.schema)) if each.level == "error"]
    assert "the target's user cannot see" in finding.message
    assert finding.remedy.startswith(f"GRANT {right} ON ")
    target.sql(finding.remedy.rstrip(";"))
    again = target.open(user=user, password=PASSWORD)
    assert check_table(again, people(target.schema)) == []


def test_the_documented_user_applies(target: Target, user: str) -> None:
    """Few rows and many, into a table that it makes itself."""
    session = open_as(target, user)
    session.create_table(people(target.schema))
    lane, wrapped = Lane.start(session), as_target(people(target.schema))
    for many in (3, 200):
        rows: list[Any] = [(each, None, None, None, "x") for each in range(many)]
        lane.apply_net_change(NetChange(wrapped, updates=rows))
        lane.apply_net_change(NetChange(wrapped, replaces=rows), displacing="{}")
    assert check_table(session, people(target.schema)) == []


@pytest.mark.parametrize(
    ("partitions", "open_"),
    [
        ([], False),
        ([("RANGE", "`id`", "10"), ("RANGE", "`id`", "MAXVALUE")], False),
        ([("RANGE", "`id`", "10")], True),
        ([("RANGE COLUMNS", "`a`,`b`", "10,5"), ("RANGE COLUMNS", "`a`,`b`", "MAXVALUE,MAXVALUE")], False),
        ([("RANGE COLUMNS", "`a`,`b`", "10,MAXVALUE")], True),
        ([("LIST", "`id`", "1,2")], True),
        ([("LIST", "`id`", "1,2"), ("LIST", "`id`", "DEFAULT")], False),
        ([("HASH", "`id`", "None")], False),
        ([("KEY", "`id`", "None")], False),
    ],
)
def test_which_partitions_take_every_row(partitions: list[tuple[str, str, str]], open_: bool) -> None:
    assert bool(find_partial_partitionings(partitions)) == open_
