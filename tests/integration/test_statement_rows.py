"""The judgement of statements against real servers: whatever passes has the rows it had, counted and
compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.actions import ACTIONS
from producer.statements.judgement import judge_statement
from producer.statements.statement import parse_statement
from schemas.io.mysql_catalog import read_table

COLUMNS = "(id INT PRIMARY KEY, v VARCHAR(20), KEY v_index (v))"
RANGE = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (300))"
TABLES = {
    "plain": COLUMNS,
    "range": f"{COLUMNS} {RANGE}",
    "bare": f"(id INT PRIMARY KEY, v VARCHAR(20)) {RANGE}",  # MariaDB 11.4 converts no partition with a second index  # noqa: E501
    "open": f"{COLUMNS} {RANGE[:-1]}, PARTITION pm VALUES LESS THAN MAXVALUE)",
    "hash": f"{COLUMNS} PARTITION BY HASH (id) PARTITIONS 4",
    "key": f"{COLUMNS} PARTITION BY KEY (id) PARTITIONS 4",
    "sub": f"{COLUMNS} PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) "
    "(PARTITION p0 VALUES LESS THAN (100) (SUBPARTITION p0s0, SUBPARTITION p0s1), "
    "PARTITION p1 VALUES LESS THAN (300) "
    "(SUBPARTITION p1s0, SUBPARTITION p1s1))",
    "list": f"{COLUMNS} PARTITION BY LIST (id % 3) (PARTITION p0 VALUES IN (0), "
    "PARTITION p1 VALUES IN (1, 2))",
}
ROWS = [(number, f"v{number}") for number in range(1, 200, 7)]


@dataclass(frozen=True)
class Case:
    """`passes`: whether capture goes on after it. `refused`: the server does not do it at all; None:
    either. `removes`: it removes rows, and changes none of the others."""

    kind: str
    sql: str
    passes: bool
    servers: tuple[str, ...] = ("mariadb", "mysql")
    refused: bool | None = False
    removes: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.sql}"


def _kind(example: str) -> str:
    if example.startswith("CONVERT PARTITION"):
        return "bare"
    if example.startswith("COALESCE"):
        return "hash"
    if example.startswith(("EXCHANGE", "PARTITION BY")):
        return "range" if example.startswith("EXCHANGE") else "plain"
    return "range" if "PARTITION" in example else "plain"


#: What the definition's change decides (ADD, MODIFY …) passes capture: apply stops at the new definition.
ALLOWED = [
    Case(
        _kind(action.example),
        "ALTER TABLE t "
        f"{action.example.format(other='taken_out' if action.words.startswith('CONVERT') else 'other')}",
        action.rows in ("kept", "removed") or action.definition == "changed",
        ("mariadb", "mysql") if action.servers == "both" else (action.servers,),
        None if action.example.startswith(("IMPORT", "CHECK", "REPAIR", "ADD UNIQUE")) else False,
        action.rows == "removed",
    )
    for action in ACTIONS
    if action.example
]
MONTHLY = (
    "ALTER TABLE t REORGANIZE PARTITION pm INTO (PARTITION p2 VALUES LESS THAN (400), "
    "PARTITION pm VALUES LESS THAN MAXVALUE)"
)
OTHERS = [
    Case("open", MONTHLY, True),
    Case("range", "ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (300))",
     True),
    Case("range", "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (150))", True,
     refused=True),
    Case("key", "ALTER TABLE t COALESCE PARTITION 2", True),
    Case("key", "ALTER TABLE t ADD PARTITION PARTITIONS 2", True),
    Case("hash", "ALTER TABLE t REBUILD PARTITION ALL", True),
    Case("key", "ALTER TABLE t OPTIMIZE PARTITION ALL", True),
    Case("list", "ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES IN (7))", True),
    Case("list", "ALTER TABLE t REMOVE PARTITIONING", True),
    Case("list", "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES IN (1))", False),
    Case("list", "ALTER TABLE t REBUILD PARTITION p0", False),
    *[
        Case(kind, f"ALTER TABLE t TRUNCATE PARTITION {which}", True, removes=True)
        for kind, which in (
            ("hash", "p1"), ("key", "p1"), ("list", "p1"), ("sub", "p1"), ("range", "ALL"),
        )
    ],
    Case("sub", "ALTER TABLE t TRUNCATE PARTITION p1s0", True, ("mysql",), removes=True),
    *[
        Case(kind, "ALTER TABLE t DROP PARTITION p1", passes, refused=not passes, removes=True)
        for kind, passes in (("hash", False), ("key", False), ("list", True), ("sub", True))
    ],
    Case("plain", "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))", True,
     refused=True),
    Case("hash", "ALTER TABLE t PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1, 8))", True, refused=True),
    Case("plain", "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000))", True),
    Case("plain", "ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC, COMMENT='a, b', ALGORITHM=COPY", True),
    Case("plain", "OPTIMIZE TABLE t", True),
    Case("plain", "ANALYZE TABLE t", True),
    Case("plain", "REPAIR TABLE t", False),
    Case("plain", "ALTER IGNORE TABLE t ADD UNIQUE (v)", False, ("mariadb",)),
    Case("plain", "ALTER TABLE t ADD COLUMN IF NOT EXISTS v INT", True, ("mariadb",)),
    Case("plain", "ALTER TABLE t DROP COLUMN v, ADD COLUMN v VARCHAR(20)", False),
    Case("plain", "CREATE TABLE IF NOT EXISTS t LIKE other", True),
    Case("plain", "CREATE OR REPLACE TABLE t LIKE other", False, ("mariadb",)),
    Case("plain", "RENAME TABLE t TO t_old, other TO t", False),
    Case("plain", "ALTER TABLE t CHANGE v v VARCHAR(20) COMMENT 'by a tool', CHANGE COLUMN `id` `id` INT",
     True),
    Case("plain", "DROP TABLE t", False),
    Case("plain", "CREATE INDEX another ON t (id, v)", True),
    Case("plain", "DROP INDEX v_index ON t", True),
]  # fmt: skip


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> tuple[str, Any]:
    return request.param, request.getfixturevalue(request.param)


@pytest.fixture
def connection(server: tuple[str, Any], unique: str) -> Iterator[Any]:
    database = server[1]
    database.create_database(unique)
    with contextlib.closing(database.connect(unique)) as connection:
        yield connection
    database.drop_database(unique)


class Bench:
    """The tables `t` and `other` (other rows, same columns), made anew for each case."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.db = connection.db.decode()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def begin(self, case: Case) -> None:
        self.query("DROP TABLE IF EXISTS t, t_old, other, taken_out")
        self.query(f"CREATE TABLE t {TABLES[case.kind]}")
        self.query(f"CREATE TABLE other {COLUMNS}")
        values = ", ".join(f"({key}, '{value}')" for key, value in ROWS)
        self.query(f"INSERT INTO t VALUES {values}")
        self.query("INSERT INTO other VALUES (2, 'another')")
        self.connection.commit()

    def rows(self) -> list[tuple[Any, ...]] | None:
        with contextlib.suppress(pymysql.err.ProgrammingError, pymysql.err.OperationalError):
            columns = {row[0] for row in self.query("SHOW COLUMNS FROM t")}
            return self.query(f"SELECT {'id, v' if 'v' in columns else 'id'} FROM t ORDER BY id")
        return None

    def definition(self) -> Any:
        from schemas.errors import SchemaError

        try:
            return read_table(self.connection, self.db, "t")
        except SchemaError:
            return None

    def partitioning(self) -> str:
        found = self.query(
            "SELECT DISTINCT COALESCE(partition_method, '') FROM information_schema.partitions "
            f"WHERE table_schema = '{self.db}' AND table_name = 't'"
        )
        return str(found[0][0])

    def judged(self, case: Case) -> bool:
        """Carry the case out; returns whether it was done. Judges that the verdict is as wanted, and true."""
        self.begin(case)
        before, definition, kind = self.rows(), self.definition(), self.partitioning()
        try:
            self.query(case.sql)
        except pymysql.MySQLError:
            if case.refused is False:
                raise
            assert self.rows() == before, case
            return False
        assert case.refused is not True, case
        passes = self._passes(case, same=self.definition() == definition, kind=kind)
        assert passes == case.passes, case
        if passes:
            now = self.rows()
            assert now is not None, case
            assert before is not None
            if case.removes:
                assert len(now) < len(before), case
                assert set(now) <= set(before), case
                return True
            width = len(now[0])
            assert [row[:width] for row in now] == [row[:width] for row in before], case
        return True

    def _passes(self, case: Case, *, same: bool, kind: str) -> bool:
        verdicts = [
            each
            for each in judge_statement(parse_statement(LoggedStatement(self.db, case.sql)))
            if each.table == (self.db, "t")
        ]
        if not verdicts:
            return True  # OPTIMIZE TABLE and the like: nothing is judged
        (verdict,) = verdicts
        if verdict.needs == "no list" and "LIST" in kind.upper():
            return False
        return not verdict.must_stop(same_definition=same)


def test_what_passes_keeps_its_rows(server: tuple[str, Any], connection: Any) -> None:
    bench = Bench(connection)
    cases = [case for case in (*ALLOWED, *OTHERS) if server[0] in case.servers]
    done = [case for case in cases if bench.judged(case)]
    assert len(done) >= len(cases) - 8, "most of them were really carried out"


def test_rows_really_vanish_where_it_says_so(server: tuple[str, Any], connection: Any) -> None:
    """The cases are no straw men: without any row event, rows are gone."""
    bench = Bench(connection)
    for case in (*ALLOWED, *OTHERS):
        if (
            server[0] in case.servers
            and case.refused is not True
            and any(
                word in case.sql
                for word in ("TRUNCATE", "DROP PARTITION", "EXCHANGE", "VALUES IN (1))", "RENAME TABLE")
            )
        ):
            bench.begin(case)
            bench.query(case.sql)
            assert bench.rows() != ROWS, case
