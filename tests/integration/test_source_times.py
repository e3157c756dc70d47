"""Watermark topics followed for real: also one that appears later."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from consumer.reporting import source_times
from consumer.reporting.source_times import SourceTimes
from schemas.config.model import KafkaConfig
from schemas.wire.records import Watermark, format_watermark_topic
from tests.kits.apply import create_topic, until


def test_watermarks_are_followed(kafka: Any, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_times, "TOPIC_RETRY_S", 0.2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def say(source: str, ts: int, **topics: int) -> None:
        mark = Watermark(
            source=source, gen=1, position=(0, 1, ts, -1), file="b.1", commit_ts_ms=ts, ts_ms=ts, idle=False,
            topics=topics,
        )  # fmt: skip
        producer.produce(format_watermark_topic(unique, source), msgspec.json.encode(mark))
        producer.flush()

    create_topic(kafka.bootstrap, format_watermark_topic(unique, "early"))
    say("early", 10, t=4)
    times = SourceTimes(KafkaConfig(bootstrap=kafka.bootstrap, prefix=unique), ["early", "late"])
    times.start()
    try:
        until(lambda: times.get_times("early", "t", 4) == (10, 10), seconds=180, what="what was there")
        assert times.get_times("late", "t", 4) == (0, 0)
        create_topic(kafka.bootstrap, format_watermark_topic(unique, "late"))
        say("late", 20, u=0)
        until(lambda: times.get_times("late", "u", 0) == (20, 20), seconds=180, what="a topic that appears")
        say("early", 30, t=9)
        until(lambda: times.get_times("early", "t", 8) == (10, 30), seconds=180, what="what comes")
        times.seed_topic("late", "v", 7)
        assert times.get_times("late", "v", 7) == (20, 20)
        assert times.get_times("nobody", "v", 7) == (0, 0)
    finally:
        times.close()
