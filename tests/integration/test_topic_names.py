"""Names and settings of tables' topics on a real Kafka, from MariaDB to PostgreSQL: full comparison, and
trouble that stays a table's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from producer.loop import ticker
from schemas.wire.codec import decode_stored_position
from tests.kits.capture import events, messages
from tests.kits.running import Run, source_config, target_config, write_config
from tests.kits.waiting import until
from tests.kits.whole_way import command

pytestmark = pytest.mark.timeout(1200)


def bare(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class World:
    """`db` and `db`_eu at the source, schemas of the same names at the target."""

    TABLES = (("", "eu_acct"), ("_eu", "acct"), ("", "a.b"), ("", "a_x2e_b"), ("", "acct"), ("", "watermark"))

    def __init__(self, folder: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, db: str) -> None:
        self.kafka, self.mariadb, self.postgres, self.db = kafka, mariadb, postgres, db
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        source = source_config(mariadb, "mariadb", db) | {"tables": [f"{db}.*", f"{db}_eu.*"]}
        self.config = write_config(
            folder,
            kafka={"bootstrap": kafka.bootstrap, "prefix": db},
            spark={"memory": "768m"},
            sources={"s": source},
            targets={"pg": target_config(postgres, "postgres", db)},
            pipelines={"p": {"sources": ["s"], "target": "pg", "lanes": 2,
             "routes": [{"from": "*.*", "to": "{db}.{table}"}]}},
        )  # fmt: skip
        self.run = Run(self.config, folder / "run.log")

    def make(self, suffix: str, table: str, *ids: int) -> None:
        name = f"{bare(self.db + suffix)}.{bare(table)}"
        self.mariadb.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, version INT, note VARCHAR(40))")
        for number in ids:
            self.put(suffix, table, number)

    def put(self, suffix: str, table: str, number: int) -> None:
        note = f"{suffix} {table} {number}"
        name = f"{bare(self.db + suffix)}.{bare(table)}"
        self.mariadb.execute(
            f"INSERT INTO {name} VALUES (%s, 1, %s) ON DUPLICATE KEY UPDATE version = version + 1",
            (number, note),
        )

    def rows(self, suffix: str, table: str) -> tuple[Any, Any]:
        query = "SELECT id, version, note FROM {}.{} ORDER BY id"
        expected = self.mariadb.execute(query.format(bare(self.db + suffix), bare(table)))
        try:
            found = self.postgres.execute(
                query.format(f'"{self.db}{suffix}"', f'"{table}"'), (), database=self.db
            )
        except Exception:  # noqa: BLE001  # it is not there yet
            found = None
        return expected, found

    def equal(self, *tables: tuple[str, str]) -> bool:
        return all(
            list(map(tuple, a)) == list(map(tuple, b or ())) for a, b in (self.rows(*each) for each in tables)
        )

    def names(self) -> dict[str, str]:
        """The names of the newest position record."""
        raw = messages(self.kafka.bootstrap, f"{self.db}.s.position")
        records = [decode_stored_position(each.value()) for each in raw if each.value()]
        return sorted(records, key=lambda record: record.gen)[-1].topics or {}

    def checked(self) -> str:
        """The findings of `check`, which refuses."""
        shown = command(self.config, "check", "--output", "json")
        assert shown.returncode == 1, shown.stderr
        found = json.loads(shown.stdout)
        return "\n".join(str(each) for each in found["findings"])

    def status(self) -> dict[str, Any]:
        shown = command(self.config, "status", "--output", "json")
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def tables_of_capture(self) -> dict[str, dict[str, Any]]:
        (source,) = self.status()["sources"]
        return {each["table"]: each for each in source["tables"]}

    def unit(self, table: str) -> dict[str, Any] | None:
        return next((each for each in self.status()["units"] if each["table"] == table), None)


@pytest.fixture
def world(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str
) -> Iterator[World]:
    made = World(tmp_path, kafka, mariadb, postgres, unique)
    postgres.create_database(unique)
    for suffix in ("", "_eu"):
        mariadb.create_database(unique + suffix)
    try:
        yield made
    finally:
        made.run.close()
        for suffix in ("", "_eu"):
            mariadb.drop_database(unique + suffix)
        postgres.drop_database(unique)


def test_tables_whose_names_kafka_takes_for_one_go_the_whole_way(world: World) -> None:
    tables = world.TABLES
    for suffix, table in tables[:4]:
        world.make(suffix, table, 1, 2)
    world.run.start()
    until(lambda: world.equal(*tables[:4]), f"the snapshot: see {world.run.log}", 300)
    first = world.names()
    assert len(first) == 4
    assert len({name.replace(".", "_") for name in first.values()}) == 4
    for suffix, table in tables[4:]:  # names that are assigned while capture runs
        world.make(suffix, table, 1)
    for suffix, table in tables:
        world.put(suffix, table, 2)
        world.put(suffix, table, 3)
    until(lambda: world.equal(*tables), f"the changes: see {world.run.log}", 300)
    assert world.names().items() >= first.items()
    assert world.names()[f"{world.db}.watermark"] != f"{world.db}.s.{world.db}.watermark"
    assert world.run.stop() == 0
    for suffix, table in tables:
        world.put(suffix, table, 2)
        world.put(suffix, table, 4)
    world.run.start()
    until(lambda: world.equal(*tables), f"what came meanwhile: see {world.run.log}", 300)
    for text, topic in world.names().items():
        found = events(world.kafka.bootstrap, topic)
        assert {f"{event.source.db}.{event.source.table}" for event in found} == {text.replace("`", "")}
    shown = command(world.config, "verify", "--output", "json")
    assert [json.loads(line)["equal"] for line in shown.stdout.splitlines()] == [True] * len(tables), (
        shown.stderr
    )
    units = {each["table"]: each["topic"] for each in world.status()["units"]}
    assert units == world.names()


def test_topics_that_are_not_as_they_have_to_be_leave_out_their_tables_alone(world: World) -> None:
    head = f"{world.db}.s.{world.db}"
    new = [
        NewTopic(f"{head}.split", 3, 1),
        NewTopic(f"{head}.packed", 1, 1, config={"cleanup.policy": "compact,delete"}),
    ]
    for future in world.admin.create_topics(new).values():
        future.result()
    for table in ("split", "packed", "acct"):
        world.make("", table, 1, 2)
    found = world.checked()
    assert f"topic {head}.split has 3 partitions" in found
    assert f"topic {head}.packed has cleanup.policy=compact,delete" in found
    world.run.start()
    until(lambda: world.equal(("", "acct")), f"the snapshot of the neighbour: see {world.run.log}", 300)
    for table in ("split", "packed", "acct"):
        world.put("", table, 3)
    until(lambda: world.equal(("", "acct")), f"the neighbour goes on: see {world.run.log}", 200)
    left = world.tables_of_capture()
    assert {name: each["state"] for name, each in left.items()} == {
        f"{world.db}.split": "left out", f"{world.db}.packed": "left out",
    }  # fmt: skip
    assert "cleanup.policy=delete" in left[f"{world.db}.packed"]["remedy"]
    assert world.rows("", "split")[1] is None
    assert world.rows("", "packed")[1] is None
    assert world.run.stop() == 0
    _set_policy(world, f"{head}.packed", "delete")
    world.run.start()
    until(lambda: world.equal(("", "acct"), ("", "packed")), f"it is mended: see {world.run.log}", 300)


def test_partitions_that_a_live_topic_gets_stop_its_table_alone(world: World) -> None:
    for table in ("grows", "acct"):
        world.make("", table, 1, 2)
    world.run.start()
    until(lambda: world.equal(("", "acct"), ("", "grows")), f"the snapshot: see {world.run.log}", 300)
    topic = f"{world.db}.s.{world.db}.grows"
    for future in world.admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result()
    stopped = f"{world.db}.grows"
    until(
        lambda: stopped in world.tables_of_capture(), f"capture looks every {ticker._LOOK_AT_TOPICS} s", 200
    )
    found = world.tables_of_capture()[stopped]
    assert (found["state"], found["cause"]) == ("stopped", "topic")
    assert "has 2 partitions" in found["reason"]
    until(lambda: (world.unit(stopped) or {}).get("state") == "stopped", "apply stops as well", 100)
    for table in ("grows", "acct"):
        world.put("", table, 3)
    until(lambda: world.equal(("", "acct")), f"the neighbour goes on: see {world.run.log}", 200)
    assert not world.equal(("", "grows"))


@pytest.mark.parametrize(
    ("name", "policy", "seen"),
    [
        ("position", "delete", "capture's position would be deleted"),
        ("watermark", "compact", "records that are needed"),
    ],
)
def test_an_own_topic_of_another_policy_refuses_the_source(
    world: World, name: str, policy: str, seen: str
) -> None:
    world.make("", "acct", 1)
    new = NewTopic(f"{world.db}.s.{name}", 1, 1, config={"cleanup.policy": policy})
    for future in world.admin.create_topics([new]).values():
        future.result()
    found = world.checked()
    assert seen in found
    assert f"topic {world.db}.s.{name} has cleanup.policy={policy}" in found


def _set_policy(world: World, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in world.admin.incremental_alter_configs([resource]).values():
        future.result()
