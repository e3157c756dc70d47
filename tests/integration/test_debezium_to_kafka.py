"""A topic that Debezium writes, applied into a Kafka target, the whole way: `rowlock run`, a broker and
MariaDB.

It has a stop, and the snapshot by Debezium that heals it. Judged by the last record of each key, read here,
and by `rowlock verify`. Debezium itself is not here (tests.kits.debezium).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.io.mysql_catalog import read_table
from tests.kits.command_line import invoke
from tests.kits.debezium import Values
from tests.kits.debezium_world import World, create_topics
from tests.kits.debezium_world import world as world
from tests.kits.kafka_target import documents, messages
from tests.kits.running import running
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

COLUMNS = "id INT PRIMARY KEY, version INT NOT NULL, owner INT NOT NULL"
TABLES = ("acct", "routed")
"""`routed` stands under its owner, too: a row whose owner changes stands under another key."""


def configure(world: World) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["targets"]["hq"] = {
            "type": "kafka", "bootstrap": world.kafka.bootstrap, "prefix": f"{world.db}.feed",
            "replication": 1,
        }  # fmt: skip
        raw["pipelines"]["p"] = {
            "sources": ["b1"], "target": "hq",
            "routes": [
                {"from": f"{world.db}.routed", "to": "{db}.{table}",
                 "kafka": {"format": "plain", "key": ["owner", "id"]}},
                {"from": f"{world.db}.*", "to": "{db}.{table}", "kafka": {"format": "plain"}},
            ],
        }  # fmt: skip

    world.configure(change)


def in_topic(world: World, name: str) -> set[tuple[Any, ...]]:
    """Return what the last record of each key says: (id, version, owner)."""
    last: dict[str, Any] = {}
    for key, value in documents(messages(world.kafka, f"{world.db}.{name}")):
        last[json.dumps(key, sort_keys=True)] = value
    return {(row["id"], row["version"], row["owner"]) for row in last.values() if row is not None}


def at_source(world: World, name: str) -> set[tuple[Any, ...]]:
    return {(row["id"], row["version"], row["owner"]) for row in world.rows(name).values()}


def stops(world: World) -> dict[str, str]:
    status = json.loads(invoke(world.config, "status", "--output", "json").stdout)
    found = {unit["topic"].rpartition(".")[2]: unit["stopped"] for unit in status["units"]}
    return {name: why for name, why in found.items() if why}


def read_again(world: World, name: str, part: Callable[[Values], bool] = lambda _: True) -> None:
    world.connectors[name].snapshot(*filter(part, world.rows(name).values()))
    world.send()


def test_a_stopped_topic_goes_on_with_its_snapshot_and_not_with_a_part(world: World) -> None:
    for name in TABLES:
        world.table(name, f"CREATE TABLE {name} ({COLUMNS})", schemas=False)
    create_topics(world, *TABLES)
    configure(world)
    for name in TABLES:
        world.change(name, f"INSERT INTO {name} SELECT seq, 1, seq FROM seq_1_to_500")
    world.send()
    with running(world.config, world.config.parent) as run:
        until(lambda: world.current() == {*TABLES}, f"what was there, applied; see {run.log}")
        for name in TABLES:
            assert in_topic(world, name) == at_source(world, name)
            broken(world, name)
        world.send()
        until(lambda: stops(world).keys() == {*TABLES}, f"both stopped; see {run.log}")
        for name in TABLES:
            before = in_topic(world, name)
            read_again(world, name, lambda row: int(str(row["id"])) > 400)
            until(
                lambda name=name: "only a part of the table" in stops(world).get(name, ""),
                f"a part of {name} refused; see {run.log}",
            )  # type: ignore[misc]
            kept = {row for row in in_topic(world, name) if row[0] <= 400}
            assert kept == {row for row in before if row[0] <= 400}, "nothing was deleted"
            read_again(world, name)
            until(lambda name=name: in_topic(world, name) == at_source(world, name), f"{name}; see {run.log}")  # type: ignore[misc]  # fmt: skip
        for name in TABLES:
            world.change(
                name, f"UPDATE {name} SET version = version + 1, owner = owner + 1000 WHERE id IN (5, 450)"
            )
            world.change(name, f"DELETE FROM {name} WHERE id = 6")
        world.send()
        until(lambda: not stops(world) and world.current() == {*TABLES}, f"what came then; see {run.log}")
        assert run.stop() == 0
    for name in TABLES:
        assert in_topic(world, name) == at_source(world, name)
    assert world.verdicts() == dict.fromkeys(TABLES, (499, True))


def broken(world: World, name: str) -> None:
    """Alter the table, so that nothing written after it is applied: among this a delete, and a row that moves
    to another owner."""
    world.source.execute(f"ALTER TABLE {name} ADD COLUMN note VARCHAR(20)", database=world.db)
    with contextlib.closing(world.connect()) as conn:
        world.connectors[name].table = read_table(conn, world.db, name)
    world.change(name, f"UPDATE {name} SET version = 2, owner = 77 WHERE id IN (4, 444)")
    world.change(name, f"DELETE FROM {name} WHERE id = 3")
    world.change(name, f"INSERT INTO {name} VALUES (1001, 1, 1, 'new')")
