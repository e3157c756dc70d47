"""New tables do not interrupt the capture of their source."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from consumer.tables.discovery import KafkaCluster
from deploy.embedded.services import Kafka, MariaDB
from producer.kafka.topics import EVENTS, SourceTopics
from schemas.config.model import KafkaConfig
from tests.kits.capture import events, running, size, source, watermarks, write_config
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

TABLES = 30


def test_a_topic_that_was_unknown_once_is_found_once_it_is_there(kafka: Kafka) -> None:
    """librdkafka's admin client keeps the answer, and asks no more; the first try under load went this
    way."""
    ours, cluster, name = (
        SourceTopics(KafkaConfig(bootstrap=kafka.bootstrap, prefix="p")),
        KafkaCluster(kafka.bootstrap, {}),
        f"t{uuid4().hex}",
    )
    assert ours._find_leaderless_topics([name])
    assert cluster.fetch_bounds([name]) == {}
    SourceTopics(KafkaConfig(bootstrap=kafka.bootstrap, prefix="p")).ensure_topics([name], EVENTS)
    ours._await_leaders([name])
    assert cluster.fetch_bounds([name]) == {name: (0, 0)}


def test_many_new_tables_begin_no_run_anew(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    """What was produced before a new topic's leader knew of it was refused, and all tables of the source
    began anew."""
    db = mariadb_db
    mariadb.execute(f"CREATE TABLE {db}.first (id INT PRIMARY KEY)")
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    with running(config, "s") as unit:
        until(lambda: any(not w.snapshot_pending for w in watermarks(kafka.bootstrap, db, "s")), "the start")
        for number in range(TABLES):
            mariadb.execute(f"CREATE TABLE {db}.t{number} (id INT PRIMARY KEY)")
            mariadb.execute(f"INSERT INTO {db}.t{number} VALUES ({number})")
        last = f"{db}.s.{db}.t{TABLES - 1}"
        until(
            lambda: size(kafka.bootstrap, last) and any(e.after for e in events(kafka.bootstrap, last)),
            "the last one's row",
            600,
        )
        restarts = [line for line in unit.output().splitlines() if "capture restarts" in line]
        assert not restarts
        assert {w.gen for w in watermarks(kafka.bootstrap, db, "s")} == {1}
        assert unit.stop() == 0, unit.output()
    for number in range(TABLES):
        found = [
            e.after for e in events(kafka.bootstrap, f"{db}.s.{db}.t{number}") if e.op in "cr" and e.after
        ]
        assert found
        assert all(row == {"id": number} for row in found), "by the snapshot, by the log, or by both"
