"""How a transaction ends decides what of it is published: real servers, real logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from tests.capturing import Capturing
from tests.kits.capture import (
    position,
    running,
    size,
)
from tests.kits.waiting import until


def test_what_was_rolled_back_is_not_published(capturing: Capturing) -> None:
    """MariaDB logs these as rows and ROLLBACK: they reached the target, and capture then died for ever."""
    capturing.run(
        "BEGIN", "INSERT INTO a VALUES (1, 'gone')", "CREATE TEMPORARY TABLE t1 (i INT)",
        "INSERT INTO a VALUES (2, 'gone')", "ROLLBACK",
        "CREATE TEMPORARY TABLE t2 (i INT)", "BEGIN", "INSERT INTO a VALUES (3, 'gone')",
        "INSERT INTO t2 VALUES (1)", "DROP TEMPORARY TABLE t2", "ROLLBACK",
        "BEGIN", "INSERT INTO a VALUES (4, 'kept')", "CREATE TEMPORARY TABLE t3 (i INT)",
        "INSERT INTO b VALUES (4, 'kept')", "COMMIT",
    )  # fmt: skip
    capturing.run("INSERT INTO a VALUES (5, 'kept')")
    assert capturing.values("a") == {"kept"}
    capturing.holds_source_rows("a", "b")


def test_what_was_rolled_back_to_a_savepoint_is_not_published(capturing: Capturing) -> None:
    capturing.run(
        "BEGIN", "INSERT INTO a VALUES (1, 'kept')", "SAVEPOINT `One more`",
        "INSERT INTO a VALUES (2, 'gone')", "CREATE TEMPORARY TABLE t1 (i INT)", "SAVEPOINT two",
        "INSERT INTO b VALUES (3, 'gone')", "ROLLBACK TO two", "UPDATE a SET v = 'gone' WHERE id = 1",
        "ROLLBACK TO SAVEPOINT `one MORE`", "INSERT INTO b VALUES (4, 'kept')", "COMMIT",
        "BEGIN", "SAVEPOINT early", "INSERT INTO a VALUES (5, 'gone')", "CREATE TEMPORARY TABLE t2 (i INT)",
        "ROLLBACK TO early", "INSERT INTO a VALUES (6, 'kept')", "COMMIT",
    )  # fmt: skip
    assert capturing.values("a") == {"kept"}
    capturing.holds_source_rows("a", "b")


def test_tables_without_transactions_in_a_transaction(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    """They have groups of their own in the log; what is beside them is published as it came to be."""
    capturing = Capturing(kafka, mariadb, mariadb_db, tmp_path)
    capturing.change("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    capturing.run(
        "BEGIN", "INSERT INTO a VALUES (1, 'gone')", "INSERT INTO m VALUES (1)",
        "INSERT INTO a VALUES (2, 'gone')", "ROLLBACK", "BEGIN", "INSERT INTO a VALUES (3, 'kept')",
        "SAVEPOINT s", "INSERT INTO m VALUES (2)", "INSERT INTO a VALUES (4, 'gone')", "ROLLBACK TO s",
        "INSERT INTO a VALUES (5, 'kept')", "COMMIT", patterns=("a", "b"),
    )  # fmt: skip
    assert capturing.values("a") == {"kept"}
    capturing.holds_source_rows("a", "b")


def test_create_select_beside_rows(capturing: Capturing) -> None:
    capturing.run(
        "INSERT INTO a VALUES (1, 'x'), (2, 'y')",
        "CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(20)) AS SELECT * FROM a",
        "INSERT INTO c VALUES (3, 'z')", "BEGIN", "INSERT INTO a VALUES (4, 'gone')",
        "CREATE TEMPORARY TABLE t AS SELECT * FROM c", "ROLLBACK",
    )  # fmt: skip
    capturing.holds_source_rows("a", "b", "c")


def test_compressed_transactions_are_read(kafka: Kafka, mysql: MySQL, mysql_db: str, tmp_path: Path) -> None:
    capturing = Capturing(kafka, mysql, mysql_db, tmp_path)
    capturing.run(
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO a VALUES (1, 'x'), (2, 'y')",
        "BEGIN", "UPDATE a SET v = REPEAT('z', 20)", "INSERT INTO b VALUES (2, 'x')",
        "DELETE FROM a WHERE id = 2", "COMMIT",
        "CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(20)) AS SELECT * FROM a", "BEGIN",
        "INSERT INTO a VALUES (7, 'kept')", "SAVEPOINT s", "INSERT INTO a VALUES (8, 'gone')",
        "ROLLBACK TO s", "COMMIT", "ALTER TABLE a ADD COLUMN n INT",
        "SET SESSION binlog_transaction_compression = OFF", "INSERT INTO a VALUES (9, 'y', 1)",
    )  # fmt: skip
    assert capturing.values("c") == {"z" * 20}
    capturing.change("ALTER TABLE a DROP COLUMN n")
    capturing.holds_source_rows("a", "b", "c")


def test_compressed_rows_and_statements_are_read(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    capturing = Capturing(kafka, mariadb, mariadb_db, tmp_path)
    capturing.change("CREATE TABLE other (id INT PRIMARY KEY, t TEXT)")
    mariadb.execute("SET GLOBAL log_bin_compress_min_len = 10")
    mariadb.execute("SET GLOBAL log_bin_compress = ON")
    try:
        capturing.run(
            "INSERT INTO a VALUES (1, 'xxxxxxxxxxxxxxxxxxxx'), (2, 'yyyyyyyyyyyyyyyyyyyy')",
            "BEGIN", "INSERT INTO other VALUES (1, REPEAT('x', 5000)), (2, REPEAT('y', 5000))",
            "UPDATE other SET t = REPEAT('z', 900)", "UPDATE a SET v = REPEAT('z', 20)",
            "DELETE FROM a WHERE id = 2", "COMMIT",
            "CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(20)) AS SELECT * FROM a", patterns=("a", "b", "c"),
        )  # fmt: skip
    finally:
        mariadb.execute("SET GLOBAL log_bin_compress = OFF")
        mariadb.execute("SET GLOBAL log_bin_compress_min_len = 256")
    capturing.holds_source_rows("a", "b", "c")
    updates = [event.source.row for event in capturing.events("a") if event.op == "u"]
    assert updates == [4, 5], "compressed rows of tables that nobody captures are counted"


@pytest.mark.parametrize("large", ["read-again", "spill"])
def test_a_large_transaction_is_published_whole_whatever_kills_capture(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, large: str
) -> None:
    """80 MB, with a part undone; capture is killed while it reads it first, and while it publishes it."""
    capturing = Capturing(kafka, database, db, tmp_path, large_transactions=large)
    capturing.change("CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(20), x LONGTEXT)")
    capturing.run()
    filled = [f"INSERT INTO big VALUES ({n}, 'kept', REPEAT('x', 1000000))" for n in range(80)]
    capturing.change(
        "BEGIN", "INSERT INTO a VALUES (1, 'kept')", *filled[:40], "SAVEPOINT s",
        "DELETE FROM big WHERE id < 20", "CREATE TEMPORARY TABLE t (i INT)", "ROLLBACK TO s", *filled[40:],
        "UPDATE a SET v = 'last'", "COMMIT", "BEGIN",
        *(f"INSERT INTO big VALUES ({n}, 'gone', REPEAT('x', 1000000))" for n in range(100, 170)),
        "CREATE TEMPORARY TABLE t2 (i INT)", "ROLLBACK",
    )  # fmt: skip
    topic = f"{db}.s.{db}.big"
    began = position(kafka.bootstrap, db, "s").pos
    for more in (0, 3, 30):
        before = size(kafka.bootstrap, topic)
        with running(capturing.config(), "s") as unit:
            until(
                lambda before=before, more=more: (
                    size(kafka.bootstrap, topic) > before + more
                    or position(kafka.bootstrap, db, "s").pos != began
                ),  # it was faster than the kill
                f"rows: {unit.output()}",
                300,
            )
            unit.kill()
    capturing.run("INSERT INTO big VALUES (99, 'kept', '')")
    assert capturing.values("big") == {"kept"}
    capturing.holds_source_rows("a", "b", "big")
    assert ("large transaction read again" in unit.output()) == (large == "read-again")
    spilled = tmp_path / "state" / "spill"
    assert not spilled.exists() or not list(spilled.iterdir())
