"""Settings of every Kafka client of capture.

Settings that guarantee durability and order cannot be configured.
"""

from __future__ import annotations

from typing import Any

from producer.errors import ConfigError
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import build_client_settings, reads_by_offset

#: Bytes of the largest event. Kafka's default of 1 MB is less than a row may have.
MAX_MESSAGE_BYTES = 16 << 20
#: Bytes of a message that are neither key nor value, at most.
MESSAGE_OVERHEAD = 1024
#: Bytes of key and value that Kafka accepts in one message.
MAX_EVENT_BYTES = MAX_MESSAGE_BYTES - MESSAGE_OVERHEAD
#: How long events are kept, in ms. A table's definition is repeated several times within it.
RETENTION_MS = 7 * 24 * 3600 * 1000

_GUARANTEES: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
}
_SPEED: dict[str, Any] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    "batch.num.messages": 20000,
    "sticky.partitioning.linger.ms": 0,
}
#: The writer limits what is in flight itself; librdkafka's own limits must never split a batch.
_QUEUE: dict[str, Any] = {"queue.buffering.max.messages": 0, "queue.buffering.max.kbytes": 2147483647}
_RECONNECT = {"reconnect.backoff.max.ms": 1000}
_REFUSED = frozenset(
    {
        *_GUARANTEES, *_QUEUE, "request.required.acks", "delivery.timeout.ms", "retries",
        "message.send.max.retries", "max.in.flight", "max.in.flight.requests.per.connection",
        "transactional.id", "delivery.report.only.error", "partitioner", "bootstrap.servers",
        "metadata.broker.list", "message.max.bytes", "produce.offset.report", "queuing.strategy",
        "enable.idempotent", "isolation.level", "on_delivery", "dr_cb",
    }
)  # fmt: skip
_PRODUCER_ONLY = frozenset(_SPEED) | {
    "compression.codec",
    "compression.level",
    "batch.size",
    "queue.buffering.max.ms",
}
#: `max.message.bytes` of a table's topic.
TOPIC_MESSAGE_BYTES = MAX_MESSAGE_BYTES + 65536


def check_capture_kafka_options(options: dict[str, str]) -> None:
    """Raise ConfigError if `kafka.options` contains an option on which a guarantee depends."""
    refused = sorted(name for name in options if name.removeprefix("topic.") in _REFUSED)
    if refused:
        raise ConfigError(
            f"kafka.options sets {', '.join(refused)}: rowlock sets this itself, "
            "because its guarantees rest on it",
            "remove it from the configuration",
        )


def build_capture_producer_settings(kafka: KafkaConfig, batch_bytes: int | None = None) -> dict[str, Any]:
    """Return settings for a Producer. Raises ConfigError.

    `batch_bytes`: the bytes that a batch may have; None: as many as usual.
    """
    check_capture_kafka_options(kafka.options)
    own = {
        **({} if batch_bytes is None else {"batch.size": batch_bytes}),
        **_GUARANTEES,
        **_QUEUE,
        "message.max.bytes": TOPIC_MESSAGE_BYTES,
        "client.id": "rowlock-capture",
        **_RECONNECT,
    }
    return build_client_settings(kafka.bootstrap, kafka.options, own, _SPEED)


def build_capture_admin_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """Return settings for an AdminClient. Raises ConfigError."""
    check_capture_kafka_options(kafka.options)
    options = {name: value for name, value in kafka.options.items() if name not in _PRODUCER_ONLY}
    return build_client_settings(kafka.bootstrap, options, _RECONNECT)


def build_capture_consumer_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """Return settings for a Consumer that reads ranges of topics by offset and never commits."""
    return {
        **build_capture_admin_settings(kafka),
        **reads_by_offset("rowlock-capture-reads-by-offset"),
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        "receive.message.max.bytes": 2 * MAX_MESSAGE_BYTES + 65536,
        "fetch.max.bytes": MAX_MESSAGE_BYTES + 65536,
        # A broker sends a batch that is larger than this anyway, alone. Ranges are read to their end at
        # once, so reading far ahead would only cost memory.
        "fetch.message.max.bytes": 1 << 20,
        "queued.max.messages.kbytes": 16 << 10,
    }


def count_fitting_records(
    records: list[tuple[bytes, bytes]], limit: int = MAX_EVENT_BYTES
) -> tuple[int, int]:
    """Return how many of the records, from the first on, Kafka accepts, and the bytes of those.

    `limit`: bytes of key and value.
    """
    size = 0
    for key, value in records:
        length = len(key) + len(value)
        if length > limit:
            return records.index((key, value)), size
        size += length
    return len(records), size
