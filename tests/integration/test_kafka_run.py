"""A whole `rowlock run` from a database into a topic: a driver is killed under load, and a consumer of committed records has every row once, in
order by key, and at the end what the source has."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from deploy.embedded.services import Kafka, MariaDB
from rowlock.cli import main
from tests.kafka_target_kit import documents, messages
from tests.running import DDL, KEYS, Load, Run, rows, running, source_config, write_config
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def run(mariadb: MariaDB, mariadb_db: str, kafka: Kafka, tmp_path: Path) -> Iterator[Run]:
    mariadb.execute(DDL, database=mariadb_db)
    for key in range(0, KEYS, 2):  # rows for the snapshot
        mariadb.execute("INSERT INTO acct VALUES (%s, 0, %s, 7.5)", (key, f"first{key}"), database=mariadb_db)
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": mariadb_db},
        sources={"branch": source_config(mariadb, "mariadb", mariadb_db)},
        targets={"feed": {"type": "kafka", "bootstrap": kafka.bootstrap, "prefix": f"{mariadb_db}.feed"}},
        pipelines={
            "out": {
                "sources": ["branch"],
                "target": "feed",
                "commit_every": 0.5,
                "routes": [{"from": "*.*", "to": f"out{mariadb_db}.{{table}}", "kafka": {"partitions": 3}}],
            }
        },
    )
    with running(config, tmp_path) as made:
        yield made


def test_a_topic_follows_its_source_through_a_kill(
    run: Run, mariadb: MariaDB, mariadb_db: str, kafka: Kafka
) -> None:
    topic = f"out{mariadb_db}.acct"

    def events() -> list[Any]:
        return [value for _, value in documents(messages(kafka, topic)) if value is not None and value["op"] != "m"]  # fmt: skip

    def equal() -> bool:
        return state(events()) == rows(mariadb, mariadb_db)

    until(lambda: topic in kafka_topics(kafka), f"the topic is made; see {run.log}", 120)
    until(equal, f"the snapshot is there; see {run.log}", 120)
    load = Load(mariadb, mariadb_db)
    load.version = 1
    load.start()
    try:
        seen = len(events())
        until(lambda: len(events()) > seen, "changes arrive", 60)
        (driver, *_) = run.find("consumer.main")
        psutil.Process(driver.pid).kill()
        seen = len(events())
        until(lambda: len(events()) > seen + 50, f"its successor goes on; see {run.log}", 120)
    finally:
        load.finish()
    until(equal, f"the topic equals the source; see {run.log}", 120)
    once_and_in_order(events())
    result = CliRunner().invoke(main, ["status", "--output", "json", "-c", str(run.config)])
    assert [unit["state"] for unit in json.loads(result.output)["units"]] == ["current"]
    assert verify(run) == (0, ["equal"])
    assert run.stop() == 0
    mariadb.execute("DELETE FROM acct WHERE id = (SELECT MIN(id) FROM acct)", database=mariadb_db)
    assert verify(run) == (1, ["extra"])


def verify(run: Run) -> tuple[int, list[str]]:
    """The exit code of `rowlock verify`, and what it says of the one table: its differences, or that it is equal."""
    result = CliRunner().invoke(main, ["verify", "--settle", "5", "--output", "json", "-c", str(run.config)])
    (table,) = map(json.loads, result.stdout.splitlines())
    assert table["problem"] is None
    return result.exit_code, [each["kind"] for each in table["differences"]] or ["equal"] * table["equal"]


def kafka_topics(kafka: Kafka) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=15).topics)


def state(events: list[Any]) -> list[tuple[Any, ...]]:
    kept: dict[int, tuple[Any, ...]] = {}
    for event in events:
        key = (event["after"] or event["before"])["id"]
        if event["after"] is None:
            kept.pop(key, None)
        else:
            number, version, owner, amount = event["after"].values()
            kept[key] = (number, version, owner, Decimal(str(amount)))
    return sorted(kept.values())


def once_and_in_order(events: list[Any]) -> None:
    """The place of each event in the source's log is there once, and those of a key rise."""
    changes = [event for event in events if event["op"] != "r"]
    places = [(*event["source"]["position"], event["op"]) for event in changes]
    assert len(set(places)) == len(places)
    by_key: dict[int, list[list[int]]] = defaultdict(list)
    for event in changes:
        by_key[(event["after"] or event["before"])["id"]].append(event["source"]["position"])
    assert all(each == sorted(each) for each in by_key.values())
