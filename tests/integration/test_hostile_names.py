"""Hostile names go the whole way: MySQL and MariaDB into PostgreSQL, MySQL and MariaDB, by the command line
alone.

Databases, tables and columns with quotation marks, backticks, dots, comments, blanks, placeholders, control
characters, reserved words, another script, 64 characters, and twins that differ in case. What a target cannot
hold stops its own unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_way import SOURCES, TARGETS, Server, WholeWay, whole_way

pytestmark = pytest.mark.timeout(1500)

TABLES = (
    "plain", "customers3.0", ".t.2", 'say "hi"', "back`tick", "it's", "a--b", "/* c */", "two words",
    " leading", "select", "Twin", "twin", "per%cent%s", "%(x)s", "stern☃", "账户", "ctl\x01\x1fx", "{table}",
    "back\\slash", "a/b", "$(x);DROP", "_x41_", "x" * 61,
)  # fmt: skip
#: Too long for PostgreSQL, with a twin that it would be cut into; and for a topic of Kafka's.
LONG = ("y" * 63 + "1", "y" * 63 + "2")
TOO_LONG = "☃" * 48  # of 64 the servers' own files have too long a name
COLUMNS = (
    'the "key"', "back\\slash", "per%cent", "sel`ect", "dot.ted", "ctl\x02\t\n.", "c☃", "order", "na--me",
    "q'uote", "%s", "{x}", " lead", "余额", "z" * 63,
)  # fmt: skip


def bare(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quoted(server: Server, name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if isinstance(server, PostgreSQL) else bare(name)


def create(db: str, table: str) -> str:
    columns = ", ".join(f"{bare(name)} VARCHAR(40) NULL" for name in COLUMNS[1:])
    unique = f"UNIQUE KEY {bare('u ' + chr(34) + '`%s')} ({bare(COLUMNS[1])})"
    return (
        f"CREATE TABLE {bare(db)}.{bare(table)} ({bare(COLUMNS[0])} INT NOT NULL PRIMARY KEY, {columns}, "
        f"{unique}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )


def insert(db: str, table: str, first: int) -> tuple[str, list[Any]]:
    rows = [[first + i, *(f"{first + i} {name}"[:40] for name in COLUMNS[1:])] for i in range(3)]
    one = "(" + ", ".join(["%s"] * len(COLUMNS)) + ")"
    listed = ", ".join(bare(name).replace("%", "%%") for name in COLUMNS)
    name = f"{bare(db)}.{bare(table)}".replace("%", "%%")
    return f"INSERT INTO {name} ({listed}) VALUES {', '.join([one] * 3)}", [v for row in rows for v in row]


def changes(db: str, table: str) -> list[str]:
    name = f"{bare(db)}.{bare(table)}"
    key, unique, value = bare(COLUMNS[0]), bare(COLUMNS[1]), bare(COLUMNS[2])
    return [
        f"UPDATE {name} SET {value} = CONCAT({value}, '!') WHERE {key} = 1",
        f"UPDATE {name} SET {key} = 9, {unique} = 'moved' WHERE {key} = 2",
        f"DELETE FROM {name} WHERE {key} = 3",
    ]


def rows(server: Server, database: str, schema: str, table: str) -> list[tuple[Any, ...]] | None:
    listed = ", ".join(quoted(server, name) for name in COLUMNS)
    query = f"SELECT {listed} FROM {quoted(server, schema)}.{quoted(server, table)} ORDER BY 1"
    try:
        return [tuple(row) for row in server.execute(query, (), database=database)]
    except Exception:  # noqa: BLE001  # it is not there yet
        return None


class HostileNames(WholeWay):
    """A run of two databases of each source, one of them with a hostile name too."""

    @property
    def dbs(self) -> tuple[str, str]:
        return self.db, f'{self.db} o"d.`d%'

    def schema(self, source: str, db: str) -> str:
        return f"{self.db}_{source}{db}_t"

    def prepare(self) -> None:
        for source in self.parts["sources"].values():
            source["tables"] = [f"{bare(db)}.*" for db in self.dbs]
        route = {"from": "*.*", "to": f"{self.db}_{{source}}{{db}}_t.{{table}}"}
        self.parts["pipelines"] = {
            each: {"sources": list(SOURCES), "target": each, "lanes": 2, "routes": [route]}
            for each in TARGETS
        }
        self.write_parts()
        for source in SOURCES:
            self.change(source, f"CREATE DATABASE {bare(self.dbs[1])}")
            for db in self.dbs:
                for table in (*TABLES, *LONG, TOO_LONG):
                    self.change(source, create(db, table), insert(db, table, 1))

    def drop(self) -> None:
        """Drop what `whole_way` does not know."""
        schemas = [self.schema(source, db) for source in SOURCES for db in self.dbs]
        for each in SOURCES:
            self.change(each, *(f"DROP DATABASE IF EXISTS {bare(db)}" for db in (self.dbs[1], *schemas)))

    def different(self) -> list[tuple[str, str, str, str]]:
        """Return (source, database, table, target) of those that do not agree yet."""
        out = []
        for source in SOURCES:
            for db in self.dbs:
                for table in TABLES:
                    expected = rows(self.sources[source], db, db, table)
                    assert expected
                    out += [
                        (source, db, table, target)
                        for target in TARGETS
                        if rows(*self.target(target), self.schema(source, db), table) != expected
                    ]
        return out


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[HostileNames]:
    with whole_way(tmp_path, kafka, mysql, mariadb, postgres) as whole:
        made = HostileNames(**vars(whole))
        try:
            made.prepare()
            yield made
        finally:
            made.run.close()
            made.drop()


def test_hostile_names_go_the_whole_way_on_every_pair(system: HostileNames) -> None:
    system.run.start()
    system.run.until(lambda: not system.different(), "the snapshot", 500)
    for source in SOURCES:
        for db in system.dbs:
            for table in TABLES:
                system.change(source, *changes(db, table), insert(db, table, 20))
    system.run.until(lambda: not system.different(), "changes", 400)
    stopped = {
        (each["pipeline"], each["topic"]): each["stopped"]
        for each in system.status()["units"]
        if each.get("stopped")
    }
    assert stopped, "PostgreSQL would cut two names into one"
    for (pipeline, topic), why in stopped.items():
        assert pipeline == "pg", (pipeline, topic, why)
        assert "63 bytes" in why
    for table in ("customers3.0", 'say "hi"', "ctl\x01\x1fx"):
        shown = system.invoke("verify", "--output", "json", "--table", f"{system.db}.{table}")
        found = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [each["equal"] for each in found] == [True] * len(SOURCES) * len(TARGETS), shown.stderr[-2000:]
