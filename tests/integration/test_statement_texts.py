"""Statements whose text is easily misread: in the client's character set, after SET STATEMENT, on a table
that a temporary one hides. Each stops the table that it concerns, or removes rows of it, and no other.
Before, each of them left rows at the target without a word.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.capturing import Capturing
from tests.kits.capture import position, running
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

PARTITIONED = (
    "(id INT PRIMARY KEY, v VARCHAR(20)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
    "PARTITION p1 VALUES LESS THAN (100))"
)
#: A captured table → the character set of a client, and its statement.
CLIENTS = {
    "客户": ("gbk", "ALTER TABLE 客户 DROP PARTITION p0"),
    "é": ("latin1", "ALTER TABLE é DROP PARTITION p0"),
    "gbk": ("gbk", "RENAME TABLE gbk TO `gbk_昞`"),  # its last character ends in a backslash
    "big5": ("big5", "RENAME TABLE big5 TO `big5_功`"),
    "joined": ("gbk", "UPDATE uncaptured u, joined j SET u.v = '昞', j.v = 'unseen'"),
    "online": ("utf8mb4", "ALTER TABLE online DROP PARTITION p0"),
}


def _as_client(capturing: Capturing, charset: str, *statements: str) -> None:
    with contextlib.closing(capturing.database.connect(capturing.db, charset=charset)) as connection:
        for statement in statements:
            connection.cursor().execute(statement)
        connection.commit()


def _stopped_exactly(capturing: Capturing, *tables: str) -> None:
    expected = {f"{capturing.db}.{table}" for table in tables}
    assert set(position(capturing.kafka.bootstrap, capturing.db, "s").stops) == expected


def test_a_statement_is_read_in_its_clients_character_set(capturing: Capturing) -> None:
    capturing.change(*(f"CREATE TABLE `{name}` {PARTITIONED}" for name in [*CLIENTS, "uncaptured"]))
    capturing.change(*(f"INSERT INTO `{name}` VALUES (1, 'x'), (50, 'y')" for name in CLIENTS))
    captured = ("a", "b", *CLIENTS)
    capturing.run(patterns=captured)
    for charset, statement in CLIENTS.values():
        _as_client(capturing, charset, "SET SESSION binlog_format = 'STATEMENT'", statement)
    _as_client(
        capturing, "gbk", "SET SESSION binlog_format = 'STATEMENT'", "UPDATE uncaptured SET v = '昞, joined'"
    )
    capturing.run("INSERT INTO a VALUES (1, 'x')", patterns=captured)
    removing = {name for name, (_, statement) in CLIENTS.items() if "DROP PARTITION" in statement}
    _stopped_exactly(capturing, *CLIENTS.keys() - removing)
    assert {name for name in CLIENTS if "p" in {event.op for event in capturing.events(name)}} == removing
    assert capturing.values("a") == {"x"}


def test_a_name_in_a_set_with_a_table_of_its_own_is_read(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    named = ("SET NAMES dec8", "CREATE TABLE `other_é` (id INT PRIMARY KEY)", "SET NAMES utf8mb4")
    capturing.run(*named, "INSERT INTO a VALUES (2, 'y')")
    assert capturing.values("a") == {"x", "y"}


def test_a_name_that_is_no_text_may_be_any_table(capturing: Capturing) -> None:
    """The second byte of ä has no character in dec8."""
    if "MariaDB" in type(capturing.database).__name__:
        pytest.skip("MariaDB refuses such a name")
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    with running(capturing.config(), "s") as unit:
        capturing.change("SET NAMES dec8", "CREATE TABLE `other_ä` (id INT)")
        until(lambda: len(capturing.notified()) == 2, f"all stop: {unit.output()[-3000:]}", 200)
        assert unit.stop() == 0, unit.output()


def test_a_statement_behind_many_settings(capturing: Capturing) -> None:
    if "MariaDB" not in type(capturing.database).__name__:
        pytest.skip("SET STATEMENT is MariaDB's")
    settings = (
        "max_statement_time=100, sort_buffer_size=1000000, join_buffer_size=200000, lock_wait_timeout=10"
    )
    capturing.change(f"CREATE TABLE p {PARTITIONED}", "CREATE TABLE s (id INT PRIMARY KEY, v VARCHAR(20))")
    capturing.run("INSERT INTO p VALUES (1, 'x')", "INSERT INTO s VALUES (1, 'x')")
    capturing.run(
        f"SET STATEMENT {settings} FOR ALTER TABLE p DROP PARTITION p0",
        f"SET STATEMENT {settings}, binlog_format=STATEMENT FOR DELETE FROM s",
    )
    assert "p" in {event.op for event in capturing.events("p")}
    capturing.stopped("s", "statement")
    _stopped_exactly(capturing, "s")


def test_truncate_of_a_temporary_table_empties_no_captured_one(capturing: Capturing) -> None:
    """MariaDB logs it in MIXED, too. What it is that stops is one table, whose rows are all still there."""
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    capturing.run(
        "SET SESSION binlog_format = 'STATEMENT'",
        "CREATE TEMPORARY TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
        "TRUNCATE TABLE a", "DROP TEMPORARY TABLE a",
    )  # fmt: skip
    assert [event.op for event in capturing.events("a") if event.op == "t"] == []
    capturing.stopped("a", "statement")
    assert (
        "temporary"
        in position(capturing.kafka.bootstrap, capturing.db, "s").stops[f"{capturing.db}.a"].reason
    )
    _stopped_exactly(capturing, "a")


def test_truncate_in_a_routine_with_temporary_tables_goes_on(capturing: Capturing) -> None:
    """MySQL marks it as if it might be one of a temporary table."""
    capturing.change(
        f"CREATE TABLE p {PARTITIONED}", "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))",
        "CREATE PROCEDURE load_all() BEGIN CREATE TEMPORARY TABLE IF NOT EXISTS work (id INT PRIMARY "
        "KEY); INSERT INTO work VALUES (1); TRUNCATE TABLE a; TRUNCATE TABLE p; TRUNCATE TABLE child; "
        "DROP TEMPORARY TABLE work; END",
    )  # fmt: skip
    captured = ("a", "b", "p", "child")
    capturing.run("INSERT INTO a VALUES (1, 'x')", "INSERT INTO p VALUES (1, 'x')", patterns=captured)
    capturing.run("CALL load_all()", "INSERT INTO a VALUES (2, 'y')", patterns=captured)
    capturing.run("SET SESSION binlog_format = 'MIXED'", "CALL load_all()", patterns=captured)
    for table in ("a", "p", "child"):
        assert [event.op for event in capturing.events(table) if event.op == "t"] == ["t", "t"], table
    _stopped_exactly(capturing)


def test_names_in_brackets_may_be_any(capturing: Capturing) -> None:
    if "MariaDB" not in type(capturing.database).__name__:
        pytest.skip("sql_mode MSSQL is MariaDB's")
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    with running(capturing.config(), "s") as unit:
        capturing.change(
            "SET SESSION binlog_format = 'STATEMENT'",
            "SET sql_mode = 'MSSQL'",
            "INSERT INTO [a] VALUES (2, 'unseen')",
        )
        until(lambda: len(capturing.notified()) == 2, f"all stop: {unit.output()[-3000:]}", 200)
        assert unit.stop() == 0, unit.output()
