"""The suite of capture's writer, on a real broker."""

from __future__ import annotations

import pytest

from deploy.embedded.services import Kafka
from producer.kafka.settings import build_capture_producer_settings
from producer.kafka.writer import KafkaWriter, make_client_factory
from schemas.config.model import KafkaConfig
from tests.conformance import event_writer
from tests.conformance.event_writer import Writing
from tests.conformance.suite import suite
from tests.kits.kafka_target import make_topic, messages

globals().update(suite(event_writer))


@pytest.fixture
def writing(kafka: Kafka, unique: str) -> Writing:
    topics = {name: f"{unique}.{name}" for name in "ab"}
    for name in topics.values():
        make_topic(kafka, name)
    settings = build_capture_producer_settings(KafkaConfig(bootstrap=kafka.bootstrap))
    writer = KafkaWriter(make_client_factory(settings), lambda: False)

    def read(topic: str) -> list[tuple[bytes, bytes | None]]:
        return [(each.key(), each.value()) for each in messages(kafka, topic)]

    return Writing(writer, read, topics["a"], topics["b"])
