"""Requests for copies of tables, read from `<prefix>.<source>.copy` without ever waiting for Kafka."""

from __future__ import annotations

from typing import Any

import structlog
from confluent_kafka import TopicPartition

from producer.kafka.settings import build_capture_consumer_settings
from producer.kafka.topic_reader import TopicReader
from schemas.config.model import KafkaConfig
from schemas.errors import EnvelopeError
from schemas.io.kafka_clients import open_consumer
from schemas.wire.codec import decode_copy_request
from schemas.wire.copies import CopyRequest

_log = structlog.get_logger("capture")
_AT_ONCE = 100


class CopyRequestReader:
    """Reads the requests of a topic from offset `start` on.

    Creating it waits for the requests that exist, so that the first call of `poll_requests` returns
    them, and raises TransientSourceError. Later a missing Kafka is reported by the writer of capture,
    not here.
    """

    def __init__(self, kafka: KafkaConfig, topic: str, start: int, reader: TopicReader) -> None:
        low, high = reader.get_bounds(topic)
        begin = min(max(low, start), high)
        self._first = list(reader.read_range(topic, begin, high))
        self._consumer = open_consumer(
            {**build_capture_consumer_settings(kafka), "enable.partition.eof": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, high)])

    def poll_requests(self) -> list[tuple[int, CopyRequest | None]]:
        """Return the new requests as (offset, request), without waiting.

        None: the request cannot be decoded, which is logged.
        """
        found, self._first = self._first, []
        for message in self._consumer.consume(_AT_ONCE, timeout=0):
            if message.error() is None:  # the client handles lost brokers
                found.append(message)
        return [(message.offset(), _decode_request(message)) for message in found]

    def close(self) -> None:
        self._consumer.close()


def _decode_request(message: Any) -> CopyRequest | None:
    value = message.value()
    if value is None:
        return None
    try:
        return decode_copy_request(value)
    except EnvelopeError as error:
        _log.error(
            "copy request not readable", topic=message.topic(), offset=message.offset(), reason=str(error)
        )  # fmt: skip
        return None
