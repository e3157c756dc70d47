"""Hostile names go the whole way: MySQL and MariaDB into PostgreSQL, MySQL and MariaDB, by the command line
alone.

Databases, tables and columns with quotation marks, backticks, dots, comments, blanks, placeholders, control
characters, reserved words, another script, 64 characters, and twins that differ in case. What a target cannot
hold stops its own unit.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.running import Run, source_config, target_config
from tests.kits.waiting import until
from tests.kits.whole_way import SOURCES, TARGETS, Server, command

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


def in_pattern(name: str) -> str:
    return bare(name)


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


class World:
    def __init__(self, folder: Path, kafka: Kafka, servers: dict[str, Server]) -> None:
        self.servers, self.name = servers, f"h{secrets.token_hex(3)}"
        self.dbs = (self.name, f'{self.name} o"d.`d%')
        self.config = folder / "c.yaml"
        self.run = Run(self.config, folder / "run.log")
        kinds = {"pg": "postgres", "my": "mysql", "ma": "mariadb"}
        sources = {each: source_config(servers[each], kinds[each], self.name) for each in SOURCES}
        for each in sources.values():
            each["tables"] = [f"{in_pattern(db)}.*" for db in self.dbs]
        route = {"from": "*.*", "to": f"{self.name}_{{source}}{{db}}_t.{{table}}"}
        raw = {
            "state_dir": str(folder / "state"),
            "spark": {"memory": "768m"},
            "kafka": {"bootstrap": kafka.bootstrap, "prefix": self.name},
            "sources": sources,
            "targets": {
                each: target_config(
                    servers[each], kinds[each], f"{self.name}_books" if each != "pg" else self.name
                )
                for each in TARGETS
            },
            "pipelines": {
                each: {"sources": list(SOURCES), "target": each, "lanes": 2, "routes": [route]}
                for each in TARGETS
            },
        }
        self.config.write_text(yaml.safe_dump(raw, allow_unicode=True))

    def schema(self, source: str, db: str) -> str:
        return f"{self.name}_{source}{db}_t"

    def sql(self, source: str, statement: str, arguments: Any = ()) -> None:
        self.servers[source].execute(statement, arguments)

    def prepare(self) -> None:
        self.servers["pg"].create_database(self.name)
        for each in ("my", "ma"):
            self.servers[each].create_database(f"{self.name}_books")
        for source in SOURCES:
            for db in self.dbs:
                self.sql(source, f"CREATE DATABASE {bare(db)}")
                for table in (*TABLES, *LONG, TOO_LONG):
                    self.sql(source, create(db, table))
                    self.sql(source, *insert(db, table, 1))

    def drop(self) -> None:
        self.servers["pg"].drop_database(self.name)
        for each in ("my", "ma"):
            dropped = [
                f"{self.name}_books",
                *self.dbs,
                *(self.schema(s, db) for s in SOURCES for db in self.dbs),
            ]
            for database in dropped:
                self.sql(each, f"DROP DATABASE IF EXISTS {bare(database)}")

    def different(self) -> list[tuple[str, str, str, str]]:
        """Return (source, database, table, target) of those that do not agree yet."""
        out = []
        for source in SOURCES:
            for db in self.dbs:
                for table in TABLES:
                    expected = rows(self.servers[source], db, db, table)
                    assert expected
                    out += [
                        (source, db, table, target)
                        for target in TARGETS
                        if rows(self.servers[target], self._database(target), self.schema(source, db), table)
                        != expected
                    ]
        return out

    def _database(self, target: str) -> str:
        return self.name if target == "pg" else f"{self.name}_books"

    def units(self) -> list[dict[str, Any]]:
        shown = command(self.config, "status", "--output", "json")
        found: list[dict[str, Any]] = json.loads(shown.stdout)["units"] if shown.stdout else []
        return found


@pytest.fixture
def world(
    tmp_path: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[World]:
    made = World(tmp_path, kafka, {"my": mysql, "ma": mariadb, "pg": postgres})
    try:
        made.prepare()
        yield made
    finally:
        made.run.close()
        made.drop()


def test_hostile_names_go_the_whole_way_on_every_pair(world: World) -> None:
    world.run.start()
    left: list[Any] = []

    def equal() -> bool:
        left[:] = world.different()
        return not left

    until(equal, f"the snapshot: {left} see {world.run.log}", 500)
    for source in SOURCES:
        for db in world.dbs:
            for table in TABLES:
                for statement in changes(db, table):
                    world.sql(source, statement)
                world.sql(source, *insert(db, table, 20))
    until(equal, f"changes: {left} see {world.run.log}", 400)
    stopped = {
        (each["pipeline"], each["topic"]): each["stopped"] for each in world.units() if each.get("stopped")
    }
    assert stopped, "PostgreSQL would cut two names into one"
    for (pipeline, topic), why in stopped.items():
        assert pipeline == "pg", (pipeline, topic, why)
        assert "63 bytes" in why
    for table in ("customers3.0", 'say "hi"', "ctl\x01\x1fx"):
        shown = command(world.config, "verify", "--output", "json", "--table", f"{world.name}.{table}")
        found = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [each["equal"] for each in found] == [True] * len(SOURCES) * len(TARGETS), shown.stderr[-2000:]
