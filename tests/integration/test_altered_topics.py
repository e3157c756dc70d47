"""Someone alters the settings of a table's topic: only that table stops, with the remedy, and continues once
the setting is corrected."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from producer.kafka.settings import TOPIC_MESSAGE_BYTES
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = pytest.mark.timeout(1500)

LENGTHS = "SELECT id, LENGTH(note) FROM acct ORDER BY id"
#: 300,000 characters that no compression makes much smaller.
LARGE = "(SELECT GROUP_CONCAT(MD5(RAND()) SEPARATOR '') FROM seq_1_to_9375)"


def alter_topic(kafka: Kafka, topic: str, setting: str, value: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    entry = ConfigEntry(setting, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def delete_records(kafka: Kafka, topic: str) -> None:
    """Delete all records of the topic, as retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        future.result(60)


@pytest.fixture
def run(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> Iterator[WholeRun]:
    """Two tables with a row each, which have arrived. Nothing is copied without a command."""
    pipelines = {
        "p": {
            "sources": ["b"], "target": "hq", "repair": "stop",
            "routes": [{"from": f"{unique}.*", "to": "public.{table}"}],
        }
    }  # fmt: skip
    with whole_run(tmp_path, unique, kafka, {"b": mariadb}, {"hq": postgres}, pipelines) as made:
        made.change(
            "b",
            "SET GLOBAL group_concat_max_len = 4000000",
            "CREATE TABLE acct (id INT PRIMARY KEY, note LONGTEXT)",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "INSERT INTO acct VALUES (1, 'a')",
        )
        made.run.start()
        made.arrives(LENGTHS, [(1, 1)])
        yield made


def find_stop(run: WholeRun) -> dict[str, Any] | None:
    """Return the stopped table of the source in `status`."""
    (source,) = run.status()["sources"]
    return next((each for each in source["tables"] if each["state"] == "stopped"), None)


def test_an_event_that_its_topic_does_not_take_stops_only_its_table(run: WholeRun, kafka: Kafka) -> None:
    topic = run.topic("b", "acct")
    alter_topic(kafka, topic, "max.message.bytes", 100_000)
    run.change("b", "INSERT INTO acct VALUES (2, 'small')", "INSERT INTO other VALUES (1)")
    run.arrives(LENGTHS, [(1, 1), (2, 5)])
    warned = " ".join(run.invoke("check", "--output", "json").output.split())
    assert f"topic {topic} takes messages of up to 100000 bytes (max.message.bytes)" in warned
    run.change("b", f"INSERT INTO acct SELECT 3, {LARGE}", "INSERT INTO other VALUES (2)")
    stop = run.run.until(lambda: find_stop(run), "the stop in `status`", 400)
    assert (stop["table"], stop["cause"]) == (f"{run.db}.acct", "size")
    assert f"topic {topic} takes up to 98976 bytes (max.message.bytes 100000)" in stop["reason"]
    assert stop["remedy"] == (
        f"set max.message.bytes of the topic to {TOPIC_MESSAGE_BYTES}, then rowlock copy {run.db}.acct"
    )
    run.arrives("SELECT COUNT(*) FROM other", [(2,)])
    run.change("b", "INSERT INTO other VALUES (3)")
    run.arrives("SELECT COUNT(*) FROM other", [(3,)])
    assert find_stop(run) is not None
    alter_topic(kafka, topic, "max.message.bytes", TOPIC_MESSAGE_BYTES)
    assert run.invoke("copy", f"{run.db}.acct").exit_code == 0
    run.arrives(LENGTHS, [(1, 1), (2, 5), (3, 300_000)])
    run.run.until(lambda: find_stop(run) is None, "a status without the stop")


def test_events_that_are_deleted_unread_cost_a_copy_of_that_table_only(
    run: WholeRun, kafka: Kafka, postgres: PostgreSQL
) -> None:
    topic = run.topic("b", "acct")
    alter_topic(kafka, topic, "retention.ms", 3_600_000)
    warned = " ".join(run.invoke("check").output.split())
    assert "kept for 60.0 minutes only (retention.ms)" in warned
    run.parts["pipelines"]["p"]["repair"] = "copy"
    run.write_parts()
    with contextlib.closing(postgres.connect(run.db, autocommit=False)) as holder:
        holder.execute("UPDATE acct SET note = note")
        run.change("b", "UPDATE acct SET note = 'changed'", "INSERT INTO other VALUES (1)")
        run.run.until(lambda: (run.unit("p", "b", "acct") or {}).get("lag_events"), "an event that waits")
        run.arrives("SELECT COUNT(*) FROM other", [(1,)])
        run.run.stop()  # capture stores its position, so it sends no event again
        delete_records(kafka, topic)
    run.run.start()
    run.change("b", "INSERT INTO other VALUES (2)")
    run.arrives("SELECT COUNT(*) FROM other", [(2,)])
    run.arrives(LENGTHS, [(1, 7)])
    copies = json.loads(run.invoke("copy", "--output", "json").output)["copies"]
    assert [each["table"] for each in copies] == [f"{run.db}.acct"]
    assert "Kafka's retention has deleted events that the target does not have" in run.run.log.read_text()
