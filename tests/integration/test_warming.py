"""A standby's Spark runs its first query before it has a unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.spark.query import DAEMON_ENV
from schemas.wire.records import format_watermark_topic
from tests.kits.apply import until, write_config
from tests.kits.assigned import assigned_apply, daemons_of


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["consumer.spark.daemon", "pyspark.daemon"])
def test_a_process_without_units_warms_up_and_touches_no_target(
    kafka: Any, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str
) -> None:
    """No server listens where its target should be, and nothing that it reads is a watermark. `daemon`: of
    its Python workers."""
    if daemon != "consumer.spark.daemon":
        monkeypatch.setenv(DAEMON_ENV, daemon)
    topic = format_watermark_topic(unique, "branch1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    target = {
        "type": "postgres", "host": "127.0.0.1", "port": 1, "user": "x", "password": "x", "database": "x",
    }  # fmt: skip
    config = write_config(tmp_path, kafka=kafka, prefix=unique, target=target)
    with assigned_apply(config, "--warm-after", "0") as process:

        def warm() -> bool:
            producer.produce(topic, value=b"?", partition=0)
            producer.flush(5)
            return '"Spark warmed up"' in process.log() or process.popen.poll() is not None

        until(warm, what="the warm query", seconds=90, every=0.5)
        assert process.popen.poll() is None, process.log()
        assert daemons_of(psutil.Process(process.popen.pid).children(recursive=True)) == {daemon}
        assert process.end() == 0
        assert "connection" not in process.log()
