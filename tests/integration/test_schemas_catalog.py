"""Table definitions as MySQL 9 and MariaDB 11 show them, and the errors of a refused connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.embedded.services import MariaDB, MySQL
from schemas.errors import (
    ExpressionIndexError,
    NoKeyError,
    SchemaError,
    ServerConnectError,
    TableNotFoundError,
    UnsupportedTypeError,
)
from schemas.io.mysql_catalog import list_tables, read_collations, read_table, read_tables
from schemas.io.mysql_connection import SQL_MODE, connect_mysql
from schemas.io.mysql_foreign_keys import list_cascading_foreign_keys
from schemas.table.model import ColumnType, IndexPart, Kind, Table, is_same_definition


@dataclass
class Database:
    """An empty database on one of the servers."""

    conn: Any
    name: str
    service: MariaDB | MySQL

    def run(self, *statements: str) -> Any:
        with self.conn.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def table(self, name: str = "t") -> Table:
        return read_table(self.conn, self.name, name)


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    service = request.getfixturevalue(request.param)
    name = request.getfixturevalue(f"{request.param}_db")
    with closing(connect_mysql(service.host, service.port, "root", "", name)) as conn:
        yield Database(conn, name, service)


@pytest.fixture
def on_mysql(mysql: MySQL, mysql_db: str) -> Iterator[Database]:
    with closing(connect_mysql(mysql.host, mysql.port, "root", "", mysql_db)) as conn:
        yield Database(conn, mysql_db, mysql)


def test_indexes_with_prefix_order_and_nulls(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), b text, c blob, n int, "
        "UNIQUE two (b(10), a), UNIQUE raw (c(4)), UNIQUE down (n DESC), KEY plain (a))"
    )
    table = database.table()
    assert table.key.name == "PRIMARY"
    assert table.key.columns == ("id",)
    assert {index.name: index.parts for index in table.unique} == {
        "two": (IndexPart(column="b", prefix=10), IndexPart(column="a")),
        "raw": (IndexPart(column="c", prefix=4),),
        "down": (IndexPart(column="n"),),
    }


def test_defaults_are_plain_text_on_both_servers(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v varchar(20) DEFAULT 'it''s', n int "
        "DEFAULT -5, d decimal(6,2) DEFAULT 1.5, b bit(5) DEFAULT b'101', e enum('a','x,y') DEFAULT "
        "'x,y', nn varchar(9) DEFAULT NULL, nul varchar(9) DEFAULT 'NULL', z int(4) zerofill DEFAULT 7, "
        "at datetime DEFAULT CURRENT_TIMESTAMP, day date DEFAULT '2024-02-29', bin varbinary(4) DEFAULT "
        "'ab', q varchar(9) DEFAULT '''q''')"
    )
    found = {column.name: column.default for column in database.table().columns}
    assert found == {
        "id": None, "v": "it's", "n": "-5", "d": "1.50", "b": "5", "e": "x,y", "nn": None, "nul": "NULL",
        "z": "7", "at": None, "day": "2024-02-29", "bin": None, "q": "'q'",
    }  # fmt: skip
    assert database.table().get_column("id").auto_increment
    computed = {column.name for column in database.table().columns if column.default_expression is not None}
    assert computed == {"at", "bin"}


def test_defaults_that_are_no_literals_say_what_the_server_computes(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, u varchar(36) DEFAULT (uuid()), n datetime DEFAULT now(), "
        "stamp timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), r double "
        "DEFAULT (rand()), s int DEFAULT (1 + 2), x blob DEFAULT ('ab'), b binary(2) NOT NULL DEFAULT 'ab', "
        "none datetime NULL ON UPDATE CURRENT_TIMESTAMP, nn text, nul varchar(4) DEFAULT 'NULL', now "
        "varchar(20) DEFAULT 'CURRENT_TIMESTAMP', g int AS (id + 1) VIRTUAL, zero timestamp NOT NULL "
        "DEFAULT '2001-01-01 00:00:00')"
    )
    found = {column.name: column for column in database.table().columns}
    computed = {name for name, column in found.items() if column.default_expression is not None}
    assert computed == {"u", "n", "stamp", "r", "s", "x", "b"}
    assert all(found[name].default is None for name in computed)
    assert "uuid()" in (found["u"].default_expression or "").lower()
    assert (found["now"].default, found["zero"].default) == ("CURRENT_TIMESTAMP", "2001-01-01 00:00:00")


def test_columns_that_are_invisible_are_columns_as_any_other(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "ALTER TABLE t ADD b int INVISIBLE DEFAULT 7")
    seen = database.table()
    assert (seen.column_names, seen.get_column("b").default) == (("id", "a", "b"), "7")
    database.run("ALTER TABLE t MODIFY b int DEFAULT 7")
    assert database.table() == seen


def test_charsets_collations_and_labels_per_column(database: Database) -> None:
    database.run(
        r"CREATE TABLE t (id int PRIMARY KEY, a varchar(5) COLLATE utf8mb4_bin, b char(3) CHARACTER SET latin1, "  # noqa: E501
        r"e enum('a','it''s','x,y','b\\c','n\nl','),(','ü'), s set('p','q r') CHARACTER SET latin1) COLLATE utf8mb4_unicode_ci"  # noqa: E501
    )
    table = database.table()
    assert (table.charset, table.collation) == ("utf8mb4", "utf8mb4_unicode_ci")
    assert (table.get_column("a").type.collation, table.get_column("b").type.charset) == (
        "utf8mb4_bin",
        "latin1",
    )
    assert table.get_column("e").type.members == ("a", "it's", "x,y", "b\\c", "n\nl", "),(", "ü")
    assert table.get_column("s").type.members == ("p", "q r")
    assert table.get_column("e").type.collation == "utf8mb4_unicode_ci"


def test_generated_columns_are_marked(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int, v int AS (a + 1) VIRTUAL, s int "
        "AS (a * 2) STORED, UNIQUE (s))"
    )
    assert [column.name for column in database.table().columns if column.generated] == ["v", "s"]


def test_another_expression_is_another_definition(database: Database) -> None:
    """MODIFY computes every stored value anew, and no row event says so."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, a int, s int AS (a + 1) STORED)")
    before = database.table()
    assert before.get_column("a").expression is None
    assert "1" in (before.get_column("s").expression or "")
    database.run("ALTER TABLE t MODIFY s int AS (a + 100) STORED")
    assert database.table() != before
    assert not is_same_definition(before, database.table())
    database.run("ALTER TABLE t MODIFY s int AS (a + 1) STORED")
    assert database.table() == before


def _alone(database: Database, name: tuple[str, str]) -> Table | SchemaError:
    try:
        return read_table(database.conn, *name)
    except SchemaError as error:
        return error


def test_many_tables_are_read_at_once_and_as_each_alone(database: Database) -> None:
    """Names that differ in case or have wildcards in them, several schemas, and what cannot be captured among
    them."""
    other = f"{database.name}_2"
    database.run(f"CREATE DATABASE {other}")
    try:
        for db in (database.name, other):
            database.run(
                f"CREATE TABLE {db}.t (id int PRIMARY KEY, {'a' if db == other else 'b'} int)",
                f"CREATE TABLE {db}.T (id bigint PRIMARY KEY)",
                f"CREATE TABLE {db}.`a_b` (id int, UNIQUE (id))",
                f"CREATE TABLE {db}.`a%b` (`x'y` int PRIMARY KEY)", f"CREATE VIEW {db}.w AS SELECT 1 AS id",
            )  # fmt: skip
        names = [
            (db, name) for db in (database.name, other) for name in ("t", "T", "a_b", "a%b", "w", "gone")
        ]
        found = read_tables(database.conn, names)
        assert list(found) == names
        for name, entry in found.items():
            alone = _alone(database, name)
            assert (type(alone), str(alone)) == (type(entry.table), str(entry.table))
        kinds = [type(found[database.name, name].table).__name__ for name in ("t", "a_b", "a%b", "w", "gone")]
        assert kinds == ["Table", "NoKeyError", "Table", "UnsupportedTypeError", "TableNotFoundError"]
    finally:
        database.run(f"DROP DATABASE {other}")


def test_without_primary_key_a_not_null_unique_index_serves(database: Database) -> None:
    database.run(
        "CREATE TABLE t (a int, b int NOT NULL, c int NOT NULL, UNIQUE n (a), UNIQUE "
        "later (c), UNIQUE first (b, c))"
    )
    table = database.table()
    assert table.key.name == "first"
    assert {index.name for index in table.unique} == {"n", "later"}


def test_no_key_unknown_table_view_are_refused(database: Database) -> None:
    database.run("CREATE TABLE t (a int, UNIQUE (a))", "CREATE VIEW w AS SELECT 1 AS id")
    with pytest.raises(NoKeyError):
        database.table()
    with pytest.raises(TableNotFoundError, match=rf"{database.name}\.nowhere does not exist"):
        database.table("nowhere")
    with pytest.raises(UnsupportedTypeError, match="is a VIEW"):
        database.table("w")


def test_a_unique_index_over_an_expression_is_refused(on_mysql: Database) -> None:
    on_mysql.run("CREATE TABLE t (id int PRIMARY KEY, a varchar(9), UNIQUE low ((lower(a))))")
    with pytest.raises(ExpressionIndexError, match=r"unique index low of .* cannot be put in order"):
        on_mysql.table()


def test_a_geometry_keeps_its_srid(on_mysql: Database) -> None:
    on_mysql.run("CREATE TABLE t (id int PRIMARY KEY, p point SRID 4326, g geometry)")
    table = on_mysql.table()
    assert [table.get_column(name).type for name in "pg"] == [
        ColumnType(kind=Kind.GEOMETRY, srid=4326),
        ColumnType(kind=Kind.GEOMETRY),
    ]


def test_json_of_mariadb_is_text(mariadb: MariaDB, mariadb_db: str) -> None:
    with closing(connect_mysql(mariadb.host, mariadb.port, "root", "", mariadb_db)) as conn:
        conn.cursor().execute("CREATE TABLE t (id int PRIMARY KEY, j json)")
        assert read_table(conn, mariadb_db, "t").get_column("j").type.kind is Kind.TEXT


def test_mariadb_system_versioned_tables_are_listed_and_refused(mariadb: MariaDB, mariadb_db: str) -> None:
    with closing(connect_mysql(mariadb.host, mariadb.port, "root", "", mariadb_db)) as conn:
        conn.cursor().execute("CREATE TABLE t (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
        conn.cursor().execute("CREATE SEQUENCE s")
        assert list_tables(conn, [f"{mariadb_db}.*"]) == [(mariadb_db, "t")]
        with pytest.raises(UnsupportedTypeError, match="SYSTEM VERSIONED"):
            read_table(conn, mariadb_db, "t")


def test_tables_by_patterns(database: Database) -> None:
    database.run(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("b", "a", "tmp_1")),
        "CREATE VIEW v AS SELECT 1",
    )
    db = database.name
    assert list_tables(database.conn, [f"{db}.*", f"!{db}.tmp_*"]) == [(db, "a"), (db, "b")]
    assert not {"mysql", "sys", "information_schema", "performance_schema"} & {
        found for found, _ in list_tables(database.conn, ["*.*"])
    }


def test_cascading_foreign_keys(database: Database) -> None:
    database.run(
        "CREATE TABLE p (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY, a int, b int, d int, "
        "CONSTRAINT one FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE, "
        "CONSTRAINT two FOREIGN KEY (b) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE, "
        "CONSTRAINT three FOREIGN KEY (d) REFERENCES p (id) ON DELETE RESTRICT)",
    )
    parent = f"(references {database.name}.p)"
    assert list_cascading_foreign_keys(database.conn, database.name, "c") == [
        f"one: ON DELETE CASCADE {parent}",
        f"two: ON DELETE SET NULL ON UPDATE CASCADE {parent}",
    ]
    assert list_cascading_foreign_keys(database.conn, database.name, "p") == []


def test_collations_are_read_by_the_names_of_the_server_itself(database: Database) -> None:
    """MariaDB has further names for users of MySQL; what they stand for is not what MySQL means by them."""
    database.run(
        "CREATE TABLE t (id varchar(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, b varchar(9) COLLATE "
        "utf8mb4_0900_bin) COLLATE utf8mb4_0900_as_cs"
    )
    table = read_table(database.conn, database.name, "t")
    found = table.get_column("id").type.collation, table.get_column("b").type.collation, table.collation
    known = read_collations(database.conn)
    assert known.issuperset(found)
    if "utf8mb4_0900_bin" in known:
        assert found == ("utf8mb4_0900_ai_ci", "utf8mb4_0900_bin", "utf8mb4_0900_as_cs")
    else:
        assert found == ("utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_bin", "utf8mb4_uca1400_nopad_as_cs")


def test_the_session_is_as_promised(database: Database) -> None:
    ((zone, mode, charset, autocommit),) = database.run(
        "SELECT @@time_zone, @@sql_mode, @@character_set_client, @@autocommit"
    )
    assert (zone, charset, autocommit) == ("+00:00", "utf8mb4", 1)
    assert set(SQL_MODE.split(",")) == set(mode.split(","))
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    with database.conn.cursor() as cursor:
        assert cursor.execute("UPDATE t SET v = 1 WHERE id = 1") == 1


def test_refused_connections_say_why(database: Database, unique: str) -> None:
    service = database.service
    with pytest.raises(ServerConnectError, match="correct the user or the password") as caught:
        connect_mysql(service.host, service.port, unique, "secret-word")
    assert not caught.value.transient
    assert "secret-word" not in str(caught.value)
    with pytest.raises(ServerConnectError, match="the database does not exist"):
        connect_mysql(service.host, service.port, "root", "", f"{unique}_none")


def test_nobody_listening_is_transient() -> None:
    with pytest.raises(ServerConnectError, match="nothing answers there") as caught:
        connect_mysql("127.0.0.1", 1, "root", "")
    assert caught.value.transient
