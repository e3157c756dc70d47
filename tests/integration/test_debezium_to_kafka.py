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
from tests.kits.debezium_run import DebeziumRun, create_topics
from tests.kits.debezium_run import system as system
from tests.kits.kafka_target import documents, messages
from tests.kits.running import running

pytestmark = pytest.mark.timeout(1200)

COLUMNS = "id INT PRIMARY KEY, version INT NOT NULL, owner INT NOT NULL"
TABLES = ("acct", "routed")
"""`routed` stands under its owner, too: a row whose owner changes stands under another key."""


def configure(system: DebeziumRun) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["targets"]["hq"] = {
            "type": "kafka", "bootstrap": system.kafka.bootstrap, "prefix": f"{system.db}.feed",
            "replication": 1,
        }  # fmt: skip
        raw["pipelines"]["p"] = {
            "sources": ["b1"], "target": "hq",
            "routes": [
                {"from": f"{system.db}.routed", "to": "{db}.{table}",
                 "kafka": {"format": "plain", "key": ["owner", "id"]}},
                {"from": f"{system.db}.*", "to": "{db}.{table}", "kafka": {"format": "plain"}},
            ],
        }  # fmt: skip

    system.configure(change)


def in_topic(system: DebeziumRun, name: str) -> set[tuple[Any, ...]]:
    """Return what the last record of each key says: (id, version, owner)."""
    last: dict[str, Any] = {}
    for key, value in documents(messages(system.kafka, f"{system.db}.{name}")):
        last[json.dumps(key, sort_keys=True)] = value
    return {(row["id"], row["version"], row["owner"]) for row in last.values() if row is not None}


def at_source(system: DebeziumRun, name: str) -> set[tuple[Any, ...]]:
    return {(row["id"], row["version"], row["owner"]) for row in system.rows(name).values()}


def stops(system: DebeziumRun) -> dict[str, str]:
    status = json.loads(invoke(system.config, "status", "--output", "json").stdout)
    found = {unit["topic"].rpartition(".")[2]: unit["stopped"] for unit in status["units"]}
    return {name: why for name, why in found.items() if why}


def read_again(system: DebeziumRun, name: str, part: Callable[[Values], bool] = lambda _: True) -> None:
    system.connectors[name].snapshot(*filter(part, system.rows(name).values()))
    system.send()


def test_a_stopped_topic_goes_on_with_its_snapshot_and_not_with_a_part(system: DebeziumRun) -> None:
    for name in TABLES:
        system.table(name, f"CREATE TABLE {name} ({COLUMNS})", schemas=False)
    create_topics(system, *TABLES)
    configure(system)
    for name in TABLES:
        system.change(name, f"INSERT INTO {name} SELECT seq, 1, seq FROM seq_1_to_500")
    system.send()
    with running(system.config, system.config.parent) as run:
        run.until(lambda: system.current() == {*TABLES}, "what was there, applied")
        for name in TABLES:
            assert in_topic(system, name) == at_source(system, name)
            broken(system, name)
        system.send()
        run.until(lambda: stops(system).keys() == {*TABLES}, "both stopped")
        for name in TABLES:
            before = in_topic(system, name)
            read_again(system, name, lambda row: int(str(row["id"])) > 400)
            run.until(
                lambda name=name: "only a part of the table" in stops(system).get(name, ""),
                f"a part of {name} refused",
            )  # type: ignore[misc]
            kept = {row for row in in_topic(system, name) if row[0] <= 400}
            assert kept == {row for row in before if row[0] <= 400}, "nothing was deleted"
            read_again(system, name)
            run.until(lambda name=name: in_topic(system, name) == at_source(system, name), name)  # type: ignore[misc]  # fmt: skip
        for name in TABLES:
            system.change(
                name, f"UPDATE {name} SET version = version + 1, owner = owner + 1000 WHERE id IN (5, 450)"
            )
            system.change(name, f"DELETE FROM {name} WHERE id = 6")
        system.send()
        run.until(lambda: not stops(system) and system.current() == {*TABLES}, "what came then")
        assert run.stop() == 0
    for name in TABLES:
        assert in_topic(system, name) == at_source(system, name)
    assert system.verdicts() == dict.fromkeys(TABLES, (499, True))


def broken(system: DebeziumRun, name: str) -> None:
    """Alter the table, so that nothing written after it is applied: among this a delete, and a row that moves
    to another owner."""
    system.source.execute(f"ALTER TABLE {name} ADD COLUMN note VARCHAR(20)", database=system.db)
    with contextlib.closing(system.connect()) as conn:
        system.connectors[name].table = read_table(conn, system.db, name)
    system.change(name, f"UPDATE {name} SET version = 2, owner = 77 WHERE id IN (4, 444)")
    system.change(name, f"DELETE FROM {name} WHERE id = 3")
    system.change(name, f"INSERT INTO {name} VALUES (1001, 1, 1, 'new')")
