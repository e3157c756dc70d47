"""Names and settings of tables' topics on a real Kafka, from MariaDB to PostgreSQL: full comparison, and
trouble that stays a table's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = pytest.mark.timeout(1200)


def bare(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


TABLES = (("", "eu_acct"), ("_eu", "acct"), ("", "a.b"), ("", "a_x2e_b"), ("", "acct"), ("", "watermark"))


@dataclass(kw_only=True)
class TopicNamesRun(WholeRun):
    """A run of the databases `db` and `db`_eu of a MariaDB into schemas of the same names."""

    kafka: Kafka
    mariadb: MariaDB
    postgres: PostgreSQL

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})

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
        shown = self.invoke("check", "--output", "json")
        assert shown.exit_code == 1, shown.stderr
        found = json.loads(shown.stdout)
        return "\n".join(str(each) for each in found["findings"])

    def tables_of_capture(self) -> dict[str, dict[str, Any]]:
        (source,) = self.status()["sources"]
        return {each["table"]: each for each in source["tables"]}


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str
) -> Iterator[TopicNamesRun]:
    route = {"from": "*.*", "to": "{db}.{table}"}
    pipeline = {"sources": ["s"], "target": "pg", "lanes": 2, "routes": [route]}
    with whole_run(tmp_path, unique, kafka, {"s": mariadb}, {"pg": postgres}, {"p": pipeline}) as whole:
        made = TopicNamesRun(**vars(whole), kafka=kafka, mariadb=mariadb, postgres=postgres)
        made.parts["sources"]["s"]["tables"].append(f"{unique}_eu.*")
        made.write_parts()
        mariadb.create_database(f"{unique}_eu")
        yield made
        mariadb.drop_database(f"{unique}_eu")


def test_tables_whose_names_kafka_takes_for_one_go_the_whole_way(system: TopicNamesRun) -> None:
    for suffix, table in TABLES[:4]:
        system.make(suffix, table, 1, 2)
    system.run.start()
    system.run.until(lambda: system.equal(*TABLES[:4]), "the snapshot", 300)
    first = system.names()
    assert len(first) == 4
    assert len({name.replace(".", "_") for name in first.values()}) == 4
    for suffix, table in TABLES[4:]:  # names that are assigned while capture runs
        system.make(suffix, table, 1)
    for suffix, table in TABLES:
        system.put(suffix, table, 2)
        system.put(suffix, table, 3)
    system.run.until(lambda: system.equal(*TABLES), "the changes", 300)
    assert system.names().items() >= first.items()
    assert system.names()[f"{system.db}.watermark"] != f"{system.db}.s.{system.db}.watermark"
    assert system.run.stop() == 0
    for suffix, table in TABLES:
        system.put(suffix, table, 2)
        system.put(suffix, table, 4)
    system.run.start()
    system.run.until(lambda: system.equal(*TABLES), "what came meanwhile", 300)
    for text, topic in system.names().items():
        found = events(system.kafka.bootstrap, topic)
        assert {f"{event.source.db}.{event.source.table}" for event in found} == {text.replace("`", "")}
    shown = system.invoke("verify", "--output", "json")
    assert [json.loads(line)["equal"] for line in shown.stdout.splitlines()] == [True] * len(TABLES), (
        shown.stderr
    )
    units = {each["table"]: each["topic"] for each in system.status()["units"]}
    assert units == system.names()


def test_topics_that_are_not_as_they_have_to_be_leave_out_their_tables_alone(system: TopicNamesRun) -> None:
    head = f"{system.db}.s.{system.db}"
    new = [
        NewTopic(f"{head}.split", 3, 1),
        NewTopic(f"{head}.packed", 1, 1, config={"cleanup.policy": "compact,delete"}),
    ]
    for future in system.admin.create_topics(new).values():
        future.result()
    for table in ("split", "packed", "acct"):
        system.make("", table, 1, 2)
    found = system.checked()
    assert f"topic {head}.split has 3 partitions" in found
    assert f"topic {head}.packed has cleanup.policy=compact,delete" in found
    system.run.start()
    system.run.until(lambda: system.equal(("", "acct")), "the snapshot of the neighbour", 300)
    for table in ("split", "packed", "acct"):
        system.put("", table, 3)
    system.run.until(lambda: system.equal(("", "acct")), "the neighbour goes on", 200)
    left = system.tables_of_capture()
    assert {name: each["state"] for name, each in left.items()} == {
        f"{system.db}.split": "left out", f"{system.db}.packed": "left out",
    }  # fmt: skip
    assert "cleanup.policy=delete" in left[f"{system.db}.packed"]["remedy"]
    assert system.rows("", "split")[1] is None
    assert system.rows("", "packed")[1] is None
    assert system.run.stop() == 0
    _set_policy(system, f"{head}.packed", "delete")
    system.run.start()
    system.run.until(lambda: system.equal(("", "acct"), ("", "packed")), "it is mended", 300)


def test_partitions_that_a_live_topic_gets_stop_its_table_alone(system: TopicNamesRun) -> None:
    for table in ("grows", "acct"):
        system.make("", table, 1, 2)
    system.run.start()
    system.run.until(lambda: system.equal(("", "acct"), ("", "grows")), "the snapshot", 300)
    topic = f"{system.db}.s.{system.db}.grows"
    for future in system.admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result()
    stopped = f"{system.db}.grows"
    system.run.until(
        lambda: stopped in system.tables_of_capture(), f"capture looks every {ticker._LOOK_AT_TOPICS} s", 200
    )
    found = system.tables_of_capture()[stopped]
    assert (found["state"], found["cause"]) == ("stopped", "topic")
    assert "has 2 partitions" in found["reason"]
    system.run.until(
        lambda: (system.unit("p", "s", "grows") or {}).get("state") == "stopped", "apply stops as well", 100
    )
    for table in ("grows", "acct"):
        system.put("", table, 3)
    system.run.until(lambda: system.equal(("", "acct")), "the neighbour goes on", 200)
    assert not system.equal(("", "grows"))


@pytest.mark.parametrize(
    ("name", "policy", "seen"),
    [
        ("position", "delete", "capture's position would be deleted"),
        ("watermark", "compact", "records that are needed"),
    ],
)
def test_an_own_topic_of_another_policy_refuses_the_source(
    system: TopicNamesRun, name: str, policy: str, seen: str
) -> None:
    system.make("", "acct", 1)
    new = NewTopic(f"{system.db}.s.{name}", 1, 1, config={"cleanup.policy": policy})
    for future in system.admin.create_topics([new]).values():
        future.result()
    found = system.checked()
    assert seen in found
    assert f"topic {system.db}.s.{name} has cleanup.policy={policy}" in found


def _set_policy(system: TopicNamesRun, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in system.admin.incremental_alter_configs([resource]).values():
        future.result()
