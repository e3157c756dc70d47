"""Sending one record to a compacted topic of one partition, such as a request for a copy: seldom, and only when Kafka has it is it sent."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import ClientLog, client_settings, ignored, open_admin, open_producer

SEND_S = 15.0
"""How long Kafka has to take the record."""


def send_record(kafka: KafkaConfig, topic: str, key: bytes, value: bytes) -> None:
    """Send a record, and make its topic where it is missing; returns once Kafka has it. Raises KafkaException."""
    _ensure(kafka, topic)
    own = {
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": int(SEND_S * 1000),
        "linger.ms": 0,
    }
    producer = open_producer(
        client_settings(kafka.bootstrap, kafka.options, own), log=ClientLog.QUIET, on_error=ignored
    )
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(topic, value, key, 0, on_delivery=delivered)
    if producer.flush(SEND_S + 1) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._MSG_TIMED_OUT))


def _ensure(kafka: KafkaConfig, topic: str) -> None:
    """Make the topic where nobody has done so yet."""
    admin = open_admin(client_settings(kafka.bootstrap, kafka.options, {}), log=ClientLog.QUIET)
    if topic in admin.list_topics(timeout=SEND_S).topics:
        return
    wanted = NewTopic(topic, 1, kafka.replication, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([wanted], request_timeout=SEND_S)[topic].result(SEND_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
