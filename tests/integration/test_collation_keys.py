"""Rows whose keys only the source tells apart: none is lost on the way to a server with other collations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from consumer.tables.router import ResolvedRoute, TableRoute, build_desired_table, build_target_table
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import find_table_misfit
from consumer.targets.checks.table_findings import check_table
from deploy.embedded.services import MariaDB, MySQL
from schemas.io.mysql_catalog import read_table
from schemas.table.model import Row, Table
from schemas.values.mysql import connect_mysql, make_select_row_converter, select_list
from tests.kits.targets import Lane, NetChange, Target, rows_of

#: (source, its collation, pairs of values that it distinguishes, and that a near collation of the other
#: server does not)
CASES = [
    ("mysql", "utf8mb4_0900_ai_ci", [("ა", "Ა"), ("a", "a "), ("x", "x\u0890"), ("1", "\U0001cf04" + "1")]),
    ("mysql", "utf8mb4_0900_as_cs", [("x", "x\u0890"), ("a", "a ")]),
    ("mysql", "utf8mb4_0900_bin", [("a", "a "), ("A", "b")]),
    ("mysql", "utf8mb4_tr_0900_ai_ci", [("ა", "Ა"), ("i", "ı")]),
    ("mysql", "gb18030_chinese_ci", [("a", "b"), ("ა", "Ა")]),
    ("mariadb", "utf8mb4_uca1400_ai_ci", [("가", "㉮")]),
    ("mariadb", "utf8mb4_uca1400_nopad_as_ci", [("가", "㉮"), ("a", "a "), ("\ua785", "ſ")]),
    ("mariadb", "utf8mb4_0900_ai_ci", [("가", "㉮"), ("a", "a ")]),
    ("mariadb", "utf8mb4_unicode_nopad_ci", [("a", "a ")]),
    ("mariadb", "gbk_chinese_nopad_ci", [("a", "a "), ("中", "中 ")]),
    ("mariadb", "latin1_swedish_nopad_ci", [("a", "a ")]),
]


class Ends:
    """A table of the source, its rows, and a target of the other kind."""

    def __init__(self, source: MariaDB | MySQL, db: str, target: Target) -> None:
        self.conn = connect_mysql(source.host, source.port, "root", "", db)
        self.db, self.target = db, target
        self.session = target.open()

    def run(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.conn.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return list(cursor.fetchall())

    def make(self, collation: str, pairs: list[tuple[str, str]]) -> Table:
        charset = collation.partition("_")[0]
        kind = f"CHARACTER SET {charset} COLLATE {collation}"
        self.run(
            f"CREATE TABLE t (k VARCHAR(20) {kind} PRIMARY KEY, v VARCHAR(20) {kind} NOT NULL, "
            f"note TEXT {kind}, UNIQUE (v))"
        )
        for text in (each for pair in pairs for each in pair):
            self.run("INSERT INTO t VALUES (%s, %s, %s)", text, f"{text}", f"{text}!")
        self.conn.commit()
        return read_table(self.conn, self.db, "t")

    def rows(self, table: Table) -> list[Row]:
        found = self.run(f"SELECT {', '.join(select_list(table))} FROM t")
        return sorted((make_select_row_converter(table)(row) for row in found), key=str)

    def expected(self, table: Table) -> Table:
        return build_desired_table(table, ResolvedRoute(schema=self.target.schema, table="t"))


@pytest.fixture
def ends(
    request: pytest.FixtureRequest, mariadb: MariaDB, mysql: MySQL, mariadb_db: str, mysql_db: str
) -> Iterator[Ends]:
    kind = request.param
    mine, other = (
        (mysql, Target("mariadb", mariadb, mariadb_db))
        if kind == "mysql"
        else (mariadb, Target("mysql", mysql, mysql_db))
    )
    made = Ends(mine, mysql_db if kind == "mysql" else mariadb_db, other)
    yield made
    made.conn.close()
    for session in made.target.sessions:
        session.close()


@pytest.mark.parametrize(("ends", "collation", "pairs"), CASES, indirect=["ends"])
def test_every_row_arrives(ends: Ends, collation: str, pairs: list[tuple[str, str]]) -> None:
    source = ends.make(collation, pairs)
    rows = ends.rows(source)
    assert len(rows) == 2 * len(pairs)
    expected = ends.expected(source)
    ends.session.create_table(expected)
    real = ends.session.read_table(expected.db, "t")
    assert real is not None
    assert check_table(ends.session, expected) == []
    target = build_target_table(expected, real)
    lane = Lane.start(ends.session)
    assert lane.apply_net_change(NetChange(table=target, replaces=rows)) == 0
    assert sorted(rows_of(ends.session, target), key=str) == rows
    for row in rows[::2]:  # and each is one row: what happens to it happens to no other
        lane.apply_net_change(NetChange(table=target, deletes=[row[:1]]))
    assert sorted(rows_of(ends.session, target), key=str) == rows[1::2]


@pytest.mark.parametrize("ends", ["mysql"], indirect=True)
def test_a_table_of_a_person_with_a_coarser_key_is_not_written(ends: Ends) -> None:
    """By any name of MariaDB's that looks like the source's. The remedy's collation is taken."""
    source = ends.make("utf8mb4_0900_ai_ci", [("ა", "Ა"), ("a", "a ")])
    expected, place = ends.expected(source), ends.target.name("t")
    routes = (TableRoute(from_="*.*", to=f"{expected.db}.t"),)
    for coarse in (
        "utf8mb4_0900_ai_ci",
        "utf8mb4_uca1400_nopad_ai_ci",
        "utf8mb4_0900_bin",
        "utf8mb4_bin",
        "utf8mb4_unicode_ci",
    ):
        ends.target.sql(f"DROP TABLE IF EXISTS {place}")
        ends.target.sql(
            f"CREATE TABLE {place} (k VARCHAR(20) COLLATE {coarse} PRIMARY KEY, v VARCHAR(20) COLLATE "
            "utf8mb4_nopad_bin NOT NULL UNIQUE, note TEXT)"
        )
        one, other = ("a", "a ") if "bin" in coarse else ("ა", "Ა")
        with contextlib.suppress(pymysql.err.IntegrityError):  # the loss that is meant
            ends.target.sql(f"INSERT INTO {place} VALUES ('{one}', 'x', ''), ('{other}', 'y', '')")
            assert (
                coarse == "utf8mb4_unicode_ci"
            )  # of Unicode 4: it has no capital letters of Georgian, but ignores trailing spaces
        ends.target.sql(f"DELETE FROM {place}")
        why = find_table_misfit(ends.session, StoredDefinition(source), "hq", routes)
        assert why is not None
        assert "compares k by" in str(why)
        assert "utf8mb4_nopad_bin (MariaDB)" in str(why)
    ends.target.sql(f"ALTER TABLE {place} MODIFY k VARCHAR(20) COLLATE utf8mb4_nopad_bin")
    assert find_table_misfit(ends.session, StoredDefinition(source), "hq", routes) is None


@pytest.mark.parametrize("ends", ["mysql"], indirect=True)
def test_labels_that_only_the_source_tells_apart(ends: Ends) -> None:
    ends.run("CREATE TABLE t (k INT PRIMARY KEY, e ENUM('ა', 'Ა') COLLATE utf8mb4_0900_ai_ci NOT NULL)")
    ends.run("INSERT INTO t VALUES (1, 'ა'), (2, 'Ა')")
    ends.conn.commit()
    source = read_table(ends.conn, ends.db, "t")
    expected = ends.expected(source)
    ends.session.create_table(expected)
    real = ends.session.read_table(expected.db, "t")
    assert real is not None
    target = build_target_table(expected, real)
    Lane.start(ends.session).apply_net_change(NetChange(table=target, replaces=ends.rows(source)))
    assert rows_of(ends.session, target) == [(1, "ა"), (2, "Ა")]
