"""MariaDB's UUID, INET4 and INET6 on their whole way into PostgreSQL, MySQL and MariaDB: as columns, in the
key and in unique indexes; from a snapshot, from the log, copied again, and added or made of a text while
rowlock runs."""

from __future__ import annotations

import ipaddress
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from producer.snapshot.reader import build_chunk_query
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from tests.kits.whole_way import TARGETS, WholeWay, whole_way
from tests.servers.former_uuids import give_former_version

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 300
TABLES = {
    "plain": "id INT PRIMARY KEY, u UUID, a INET4, b INET6",
    "by_uuid": "u UUID PRIMARY KEY, n INT",
    "by_both": "b INET6, a INET4, u UUID, n INT, PRIMARY KEY (b, u, a)",
    "singular": "id INT PRIMARY KEY, u UUID UNIQUE, a INET4 UNIQUE, b INET6 UNIQUE",
    "changing": "id INT PRIMARY KEY, u CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, t UUID",
}


def draw_values(count: int) -> list[tuple[str, str, str]]:
    """Return UUIDs of all versions, which MariaDB stores in two orders, and addresses with zeros."""
    draw, found = random.Random(31), []
    for n in range(count):
        digits = f"{draw.getrandbits(128):032x}"
        head = f"{digits[:12]}{'1467'[n % 4]}{digits[13:16]}{'ac'[n % 2]}"
        u = uuid.UUID(f"{head}{digits[17:30]}{'ab' if n % 2 else '00'}")
        b = bytearray(draw.randbytes(16))
        b[n % 13 : n % 13 + 3] = bytes(3)
        found.append((str(u), f"10.{n % 256}.{n // 256}.0", str(ipaddress.IPv6Address(bytes(b)))))
    zero = (str(uuid.UUID(int=0)), "0.0.0.0", "::")
    return [*found, zero, (str(uuid.UUID(int=9)), "1.2.3.4", "::ffff:1.2.3.4")]


@pytest.fixture
def way(
    tmp_path: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[WholeWay]:
    with whole_way(tmp_path, kafka, mysql, mariadb, postgres) as made:
        for pipeline in made.parts["pipelines"].values():
            pipeline.pop("schema_changes", None)
            pipeline.pop("repair", None)
        made.write_parts()
        yield made


def read_source(way: WholeWay, table: str) -> list[tuple[str, ...]]:
    rows = way.sources["ma"].execute(f"SELECT * FROM {table}", database=way.db)
    return sorted(tuple(map(str, row)) for row in rows)


def read_target(way: WholeWay, target: str, table: str) -> list[tuple[str, ...]] | None:
    """Return the rows as text in the source's columns, since targets keep a dropped one; addresses in the
    source's spelling, which PostgreSQL has not.
    """
    names = way.sources["ma"].execute(
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{way.db}' "
        f"AND table_name = '{table}' ORDER BY ordinal_position"
    )
    rows = way.read(target, f"SELECT {', '.join(name for (name,) in names)} FROM {table}_ma")
    return None if rows is None else sorted(tuple(map(spell, row)) for row in rows)


def spell(value: Any) -> str:
    text = str(value)
    if not isinstance(value, ipaddress.IPv6Address):
        return text
    return spelled.get(value.packed, text)


spelled: dict[bytes, str] = {}


def arrives(way: WholeWay, table: str) -> None:
    rows = read_source(way, table)
    for row in rows:
        spelled.update({ipaddress.IPv6Address(each).packed: each for each in row if ":" in each})
    for target in TARGETS:
        way.run.until(
            lambda target=target: read_target(way, target, table) == rows,  # type: ignore[misc]
            f"{table} in {target}", PATIENCE_S,
        )  # fmt: skip


def test_uuids_and_addresses_arrive_in_every_target(way: WholeWay) -> None:
    values = draw_values(40)
    way.change("ma", *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
    insert(way, values[:25])
    way.run.start()
    for table in TABLES:
        arrives(way, table)
    insert(way, values[25:], first=25)
    u, v = values[3][0], values[30][0]
    way.change(
        "ma",
        "UPDATE plain SET u = NULL, b = NULL WHERE id = 2",
        f"UPDATE by_uuid SET n = -1 WHERE u = '{u}'",
        f"DELETE FROM by_uuid WHERE u = '{v}'",
        f"UPDATE by_uuid SET u = '{v}' WHERE u = '{values[4][0]}'",
        f"DELETE FROM by_both WHERE u = '{u}'",
        "UPDATE singular SET u = NULL, a = NULL, b = NULL WHERE id = 1",
        f"UPDATE singular SET u = '{values[1][0]}', a = '{values[1][1]}', b = '{values[1][2]}' WHERE id = 2",
    )
    for table in TABLES:
        arrives(way, table)
    way.change(
        "ma",
        "ALTER TABLE plain ADD COLUMN w UUID NOT NULL, ADD COLUMN x INET6 DEFAULT '1:2:3:4:5:6:7:0', "
        "ADD COLUMN y INET4 NOT NULL, DROP COLUMN a",
        f"INSERT INTO plain VALUES (99, '{u}', '::5', '{v}', '::', '9.9.9.0')",
    )
    arrives(way, "plain")
    way.change("ma", "ALTER TABLE changing MODIFY u UUID", "ALTER TABLE changing MODIFY t CHAR(36)")
    arrives(way, "changing")
    copy_by_uuid(way)
    found = way.verify()
    assert {(name, "ma", table) for name in TARGETS for table in TABLES} == found.keys()
    assert all(each["equal"] for each in found.values()), found
    assert kinds(way, "pg") == {"uuid", "inet"}
    assert kinds(way, "ma") == {"uuid", "inet4", "inet6"}


def copy_by_uuid(way: WholeWay) -> None:
    """Repair a table of three chunks by a copy: targets lack rows of it, and have one too many."""
    many = [u for u, *_ in draw_values(5000)]
    for at in range(0, len(many), 1000):
        literals = ", ".join(f"('{u}', {at})" for u in many[at : at + 1000])
        way.change("ma", f"INSERT IGNORE INTO by_uuid VALUES {literals}")
    arrives(way, "by_uuid")
    for target in TARGETS:
        server, database = way.target(target)
        server.execute("DELETE FROM by_uuid_ma WHERE n = 2000", database=database)
        server.execute(f"INSERT INTO by_uuid_ma VALUES ('{uuid.UUID(int=77)}', 0)", database=database)
    taken = way.invoke("copy", f"{way.db}.by_uuid", "--source", "ma")
    assert taken.exit_code == 0, taken.output
    arrives(way, "by_uuid")


def insert(way: WholeWay, values: list[tuple[str, str, str]], first: int = 0) -> None:
    for n, (u, a, b) in enumerate(values, first):
        way.change(
            "ma",
            f"INSERT INTO plain VALUES ({n}, '{u}', '{a}', '{b}')",
            f"INSERT INTO by_uuid VALUES ('{u}', {n})",
            f"INSERT INTO by_both VALUES ('{b}', '{a}', '{u}', {n})",
            f"INSERT INTO singular VALUES ({n}, '{u}', '{a}', '{b}')",
            f"INSERT INTO changing VALUES ({n}, '{u.upper()}', '{u}')",
        )


def kinds(way: WholeWay, target: str) -> set[str]:
    _, database = way.target(target)
    schema = "public" if target == "pg" else database
    rows = way.read(
        target,
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_name LIKE '%\\_ma' "
        f"AND table_name <> 'changing_ma' AND table_schema = '{schema}' AND data_type NOT LIKE 'int%'",
    )
    return {str(kind) for (kind,) in rows or []}


@pytest.mark.parametrize("old", [False, True], ids=["new table", "table of 10.11.4"])
def test_chunks_by_uuid_have_every_row_once(mariadb: MariaDB, mariadb_db: str, *, old: bool) -> None:
    """The order of the key has UUIDs of some versions reversed, and in an old table all of them."""
    mariadb.execute("CREATE TABLE t (u UUID, n INT, PRIMARY KEY (u, n))", database=mariadb_db)
    if old:
        give_former_version(mariadb, mariadb_db, "t")
    values = draw_values(120)
    literals = ", ".join(f"('{u}', {n})" for u, *_ in values for n in (1, 2))
    mariadb.execute(f"INSERT INTO t VALUES {literals}", database=mariadb_db)
    connection = connect_mysql(mariadb.host, mariadb.port, "root", "", mariadb_db)
    table, after, found = read_table(connection, mariadb_db, "t"), None, list[tuple[Any, ...]]()
    with connection, connection.cursor() as cursor:
        while True:
            sql, parameters = build_chunk_query(table, after, 7)
            cursor.execute(sql, parameters or None)
            rows = list(cursor.fetchall())
            found += rows
            if len(rows) < 7:
                break
            after = rows[-1]
    assert len(found) == len(set(found))
    assert set(found) == {(u, n) for u, *_ in values for n in (1, 2)}
    by_text = [u for u, _ in found]
    assert by_text != sorted(by_text), "the server's order is not that of the text"
