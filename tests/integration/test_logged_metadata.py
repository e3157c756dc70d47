"""What TABLE_MAPs record on both servers, compared with what the catalog has: never a false contradiction,
and never a miss.

Every definition is compared with the log that was written under it; then with an ALTER between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from producer.binlog_format.definition_match import explain_mismatch
from producer.binlog_format.row_events import TableMap
from schemas.io.mysql_catalog import read_table
from schemas.table.model import Table
from tests.kits.decoder_support import LoggedDatabase


class MetadataDatabase(LoggedDatabase):
    """A database whose table `t` is compared with what the log records of it."""

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.execute(statement)

    def table(self) -> Table:
        return read_table(self.connection, self.db, "t")

    def log_map(self, *statements: str) -> TableMap:
        """The TABLE_MAP of the first row that the last of `statements` writes."""
        self.log.mark()
        self.run(*statements)
        return self.log.row_events(self.db, "t")[0][0]

    def wrong(self, table: Table, logged: TableMap) -> str | None:
        return explain_mismatch(table, logged, self.source.charsets, self.source.form)


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Iterator[MetadataDatabase]:
    service = request.getfixturevalue(request.param)
    if not service.has_row_metadata:
        pytest.skip("its log has no metadata")
    name = request.getfixturevalue(f"{request.param}_db")
    with closing(MetadataDatabase(service, name)) as made:
        yield made


@pytest.fixture(params=["FULL", "MINIMAL"])
def server(request: pytest.FixtureRequest, database: MetadataDatabase) -> Iterator[MetadataDatabase]:
    """With each amount of metadata; the servers of the tests write FULL."""
    database.run(f"SET GLOBAL binlog_row_metadata = {request.param}")
    yield database
    database.run("SET GLOBAL binlog_row_metadata = FULL")


#: Everything that captured tables have, in an order that puts a column of another kind before every charset.
_COLUMNS = (
    "b bit(5)", "l varchar(10) character set latin1", "p point", "g varchar(10) character set gbk",
    "ls linestring not null", "u varchar(300) character set utf8mb4", "j json",
    "l2 char(5) character set latin1 not null", "y year", "ts timestamp(3) null", "i int unsigned not null",
    "m mediumint", "big bigint unsigned zerofill", "d decimal(5,2) unsigned", "f float", "dd double unsigned",
    "vb varbinary(5)", "bi binary(5) not null", "bl mediumblob", "tt tinytext character set ucs2",
    "e enum('a','it''s','é,ü') character set latin1", "s set('x','y','z') not null",
    "e2 enum('中','文') character set gbk", "e3 enum('x','é') character set utf8mb4 collate utf8mb4_bin",
    "da date", "ti time(2)", "dt datetime(6)", "v int as (i + 1) virtual", "st int as (i * 2) stored",
)  # fmt: skip
_KEYS = ("primary key (id, i, l2(3))", "unique key k (i, l2)", "unique key k (l2), key plain (u(20))")


@pytest.mark.parametrize("key", _KEYS)
def test_the_log_never_contradicts_the_definition_it_was_written_by(
    server: MetadataDatabase, key: str
) -> None:
    columns = ("id int not null", *_COLUMNS)
    for order in (columns, tuple(reversed(columns))):
        server.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t ({', '.join(order)}, {key})")
        logged = server.log_map(
            "INSERT INTO t (id, ls, i, l2, bi, s) VALUES (1, "
            "ST_GeomFromText('LINESTRING(1 1,2 2)'), 1, 'x', 'x', 'x')"
        )
        assert server.wrong(server.table(), logged) is None


def test_a_geometry_shifts_no_charset(database: MetadataDatabase) -> None:
    """MariaDB counts it among the columns with a charset; by MySQL's rules the ids of those after it would
    be another column's."""
    database.run(
        "CREATE TABLE t (id int primary key, p point, a varchar(10) character set utf8mb4, "
        "b varchar(10) character set utf8mb4, c varchar(10) character set latin1)"
    )
    logged = database.log_map("INSERT INTO t (id) VALUES (1)")
    assert database.wrong(database.table(), logged) is None
    found = logged.parse_metadata(database.source.form).charsets
    names = {i: database.source.charsets[number] for i, number in found.items()}
    assert {i: names[i] for i in (2, 3, 4)} == {2: "utf8mb4", 3: "utf8mb4", 4: "latin1"}


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL", "NO_LOG"])
def test_columns_that_a_server_adds_by_itself_are_passed_over(
    database: MetadataDatabase, metadata: str
) -> None:
    """Hidden columns: of unique indexes over long texts (MariaDB, which logs them), of indexes over
    expressions (MySQL)."""
    if metadata == "NO_LOG" and database.kind == "mysql":
        pytest.skip("MariaDB's")
    odd = (
        "unique key (b), unique key (d(3)), unique key (e)" if database.kind == "mariadb" else "key ((c + 1))"
    )
    database.run(f"CREATE TABLE t (b text, id int primary key, c int, d text, e blob, {odd})")
    database.run(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        table = database.table()
        first = database.log_map("INSERT INTO t (id, b, c) VALUES (1, 'x', 5), (2, NULL, 6)")
        assert database.wrong(table, first) is None
        assert database.logged(table) == [(None, ("x", 1, 5, None, None)), (None, (None, 2, 6, None, None))]
        database.log_map("UPDATE t SET b = 'y' WHERE id = 1")
        assert database.logged(table) == [(("x", 1, 5, None, None), ("y", 1, 5, None, None))]
        # A column that only looks like one of them, with a definition that lacks it, is not taken for one.
        like = database.log_map(
            "ALTER TABLE t ADD like_hash bigint unsigned", "INSERT INTO t (id, b) VALUES (3, 'z')"
        )
        assert database.wrong(table, like) is not None
    finally:
        database.run("SET GLOBAL binlog_row_metadata = FULL")


_ALTERED = {
    "v enum('a','b','c')": "v enum('c','b','a')",
    "v enum('a','b')": "v enum('a','b','c')",
    "v set('x','y','z')": "v set('z','y','x')",
    "v varchar(10) character set latin1": "v varchar(10) character set utf8mb4",
    "v text character set latin1": "v text character set gbk",
    "v blob": "v text character set utf8mb4",
    "v varbinary(10)": "v varchar(10) character set latin1",
    "v enum('a') character set latin1": "v enum('a') character set utf8mb4",
    "v int": "v int unsigned",
    "v bigint unsigned": "v bigint",
    "v decimal(5,2)": "v decimal(5,2) unsigned",
    "v double": "v double unsigned",
    "v int null": "v int not null default 1",
}
_ONLY_FULL = {
    "v enum('a','b','c')", "v enum('a','b')", "v set('x','y','z')", "v enum('a') character set latin1",
}  # fmt: skip


@pytest.mark.parametrize("before", _ALTERED)
def test_what_the_log_says_refutes_another_definition(server: MetadataDatabase, before: str) -> None:
    server.run(f"CREATE TABLE t (id int primary key, w varchar(9), {before})")
    old = server.table()
    logged = server.log_map("INSERT INTO t (id) VALUES (1)")
    server.run("DELETE FROM t", f"ALTER TABLE t MODIFY {_ALTERED[before]}")
    full = bool(logged.parse_metadata(server.source.form).names)
    assert server.wrong(old, logged) is None
    assert (server.wrong(server.table(), logged) is not None) == (full or before not in _ONLY_FULL)


@pytest.mark.parametrize(
    "alter", ["MODIFY a int AFTER b", "DROP PRIMARY KEY, ADD PRIMARY KEY (b, id)", "RENAME COLUMN a TO z"]
)
def test_names_order_and_key_need_full_metadata(database: MetadataDatabase, alter: str) -> None:
    database.run("CREATE TABLE t (id int, a int, b int not null, primary key (id, b))")
    logged = database.log_map("INSERT INTO t (id, b) VALUES (1, 1)")
    assert database.wrong(database.table(), logged) is None
    database.run(f"ALTER TABLE t {alter}")
    assert database.wrong(database.table(), logged) is not None
