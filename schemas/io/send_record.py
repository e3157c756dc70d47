"""Sends a single record to a compacted topic with one partition, such as a request for a copy.

It counts as sent only once Kafka has acknowledged it.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import (
    ClientLog,
    build_client_settings,
    ignore_client_error,
    open_admin,
    open_producer,
)

SEND_TIMEOUT_S = 15.0
"""Seconds within which Kafka must accept the record."""


def send_record(kafka: KafkaConfig, topic: str, key: bytes, value: bytes) -> None:
    """Send a record, creating its topic where it is missing; return once Kafka has it.

    Raises KafkaException.
    """
    _ensure_topic(kafka, topic)
    own = {
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": int(SEND_TIMEOUT_S * 1000),
        "linger.ms": 0,
    }
    producer = open_producer(
        build_client_settings(kafka.bootstrap, kafka.options, own),
        log=ClientLog.QUIET,
        on_error=ignore_client_error,
    )
    failed: list[KafkaError] = []

    def record_failure(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(topic, value, key, 0, on_delivery=record_failure)
    if producer.flush(SEND_TIMEOUT_S + 1) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._MSG_TIMED_OUT))


def _ensure_topic(kafka: KafkaConfig, topic: str) -> None:
    """Create the topic if it does not exist yet."""
    admin = open_admin(build_client_settings(kafka.bootstrap, kafka.options, {}), log=ClientLog.QUIET)
    if topic in admin.list_topics(timeout=SEND_TIMEOUT_S).topics:
        return
    requested = NewTopic(topic, 1, kafka.replication, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([requested], request_timeout=SEND_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
