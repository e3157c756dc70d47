"""The keys that a source is asked for before a snapshot's sweep deletes their rows
(consumer.tables.source_tables.keys_there)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from consumer.errors import TargetConfigError, TransientError
from consumer.tables.source_tables import find_source_keys
from deploy.embedded.services import MariaDB, MySQL
from schemas.config.model import SourceConfig
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.table.model import Key, Table

Server = MariaDB | MySQL


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, unique: str) -> Iterator[Server]:
    found: Server = request.getfixturevalue(request.param)
    found.create_database(unique)
    found.execute(f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'only reads'")
    found.execute(f"GRANT SELECT ON {unique}.* TO '{unique}'@'%'")
    yield found
    found.execute(f"DROP USER '{unique}'@'%'")
    found.drop_database(unique)


def source(server: Server, unique: str) -> SourceConfig:
    kind = "mysql" if isinstance(server, MySQL) else "mariadb"
    return SourceConfig.model_validate({
        "type": kind, "events": "debezium", "host": "127.0.0.1", "port": server.port, "user": unique,
        "password": "only reads", "tables": [f"{unique}.*"],
    })  # fmt: skip


def table(server: Server, unique: str, columns: str) -> Table:
    server.execute(f"CREATE TABLE t ({columns})", database=unique)
    with contextlib.closing(connect_mysql("127.0.0.1", server.port, "root", "", unique)) as conn:
        return read_table(conn, unique, "t")


@pytest.mark.parametrize(
    ("columns", "values", "asked", "found"),
    [
        ("k INT PRIMARY KEY, v INT", ["(1, 1)", "(-3, 2)"], [(1,), (2,), (-3,)], {(1,), (-3,)}),
        ("k BIGINT UNSIGNED PRIMARY KEY", [f"({2**64 - 1})"], [(str(2**64 - 1),), (1,)], {(str(2**64 - 1),)}),
        # as the source compares, and as it shows them
        ("k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY", ["('Ä')", "('b')"], [("a",), ("B ",), ("c",)], {("Ä",), ("b",)}),  # noqa: E501
        ("k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY", ["('Ä')", "('b')"], [("a",), ("b",), ("B",)], {("b",)}),  # noqa: E501
        ("k VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY", ["('é')"], [("É",), ("f",)], {("é",)}),
        ("k VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY", ["('é')", "('?')"], [("王",), ("é",), ("??",)], {("é",)}),  # one that it cannot hold  # noqa: E501
        ("k VARBINARY(9) PRIMARY KEY", ["(X'00FF')"], [("AP8=",), ("AA==",)], {("AP8=",)}),
        ("k DATETIME(6) PRIMARY KEY", ["('2026-01-02 03:04:05.000006')"], [("2026-01-02 03:04:05.000006",), ("2026-01-02 03:04:05.000000",)], {("2026-01-02 03:04:05.000006",)}),  # noqa: E501
        ("k TIMESTAMP(3) PRIMARY KEY", ["('2026-01-02 03:04:05.006')"], [("2026-01-02T03:04:05.006Z",)], {("2026-01-02T03:04:05.006Z",)}),  # noqa: E501
        ("k DECIMAL(9,2) PRIMARY KEY", ["(1.50)"], [("1.50",), ("1.51",)], {("1.50",)}),
        ("k ENUM('a','b') PRIMARY KEY", ["('b')"], [("a",), ("b",), ("no label",)], {("b",)}),
        ("k DATE PRIMARY KEY", ["('2026-01-02')"], [("2026-01-02",), ("0000-00-00",), ("2026-02-30",)], {("2026-01-02",)}),  # noqa: E501
        ("a INT, `b c%` VARCHAR(9), PRIMARY KEY (`b c%`, a)", ["(1, 'x')", "(2, 'y')"], [("x", 1), ("x", 2), ("y", 2)], {("x", 1), ("y", 2)}),  # noqa: E501
    ],
)  # fmt: skip
def test_rows_are_found_as_the_source_finds_them(
    server: Server, unique: str, columns: str, values: list[str], asked: list[Key], found: set[Key]
) -> None:
    of = table(server, unique, columns)
    with contextlib.closing(connect_mysql("127.0.0.1", server.port, "root", "", unique)) as conn:
        conn.cursor().execute(f"INSERT INTO t VALUES {', '.join(values)}")
    assert set(find_source_keys(source(server, unique), "b1", of, asked)) == found


def test_more_keys_than_one_statement_takes(server: Server, unique: str) -> None:
    of = table(server, unique, "k INT PRIMARY KEY")
    server.execute("INSERT INTO t VALUES (0), (5000), (20000)", database=unique)
    there = find_source_keys(source(server, unique), "b1", of, [(key,) for key in range(10_000)])
    assert sorted(there) == [(0,), (5000,)]


def test_who_cannot_be_asked_says_nothing(server: Server, unique: str) -> None:
    of = table(server, unique, "k INT PRIMARY KEY")
    config = source(server, unique)
    server.execute(f"REVOKE SELECT ON {unique}.* FROM '{unique}'@'%'")
    with pytest.raises(TargetConfigError, match=r"source b1: .*denied"):
        find_source_keys(config, "b1", of, [(1,)])
    server.execute(f"GRANT SELECT ON {unique}.* TO '{unique}'@'%'")
    server.execute("ALTER TABLE t CHANGE k other INT NOT NULL", database=unique)
    with pytest.raises(TargetConfigError, match="source b1"):
        find_source_keys(config, "b1", of, [(1,)])
    server.execute("DROP TABLE t", database=unique)
    with pytest.raises(TargetConfigError, match="source b1"):
        find_source_keys(config, "b1", of, [(1,)])
    with pytest.raises(TransientError, match="source b1"):
        find_source_keys(config.model_copy(update={"port": 1}), "b1", of, [(1,)])
