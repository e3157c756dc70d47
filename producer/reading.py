"""Reads stretches of single-partition topics by offset: position records, and the tails of event topics at a start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer.errors import TransientSourceError
from producer.kafka_settings import consumer_settings, librdkafka_logger
from schemas.config import KafkaConfig

_PATIENCE = 30.0


class TopicReader:
    """A consumer without a group's life: every read says from where to where."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._consumer = Consumer(consumer_settings(kafka), logger=librdkafka_logger())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def bounds(self, topic: str) -> tuple[int, int]:
        """Return the first offset and the offset behind the last. Raises TransientSourceError."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, 0), timeout=10, cached=False
                )
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise TransientSourceError(f"the offsets of {topic} cannot be read: {error}") from error
                time.sleep(0.2)  # a topic just created is not known to every broker at once
            else:
                return low, high

    def read(self, topic: str, start: int, end: int) -> Iterator[Any]:
        """Yield the messages of [start, end) that still exist, in order. Raises TransientSourceError."""
        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, 0, start)])
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            # It waits for that many, or for the whole time: never ask for more than there is.
            for message in self._consumer.consume(min(5000, end - start), timeout=0.2):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    self._fail(topic, error)
                    continue
                offset = message.offset()
                if offset is None or offset >= end:
                    return
                deadline = time.monotonic() + _PATIENCE
                yield message
                start = offset + 1
                if start == end:
                    return
        raise TransientSourceError(f"{topic} cannot be read: no answer from Kafka for {_PATIENCE:.0f} s")

    @staticmethod
    def _fail(topic: str, error: KafkaError) -> None:
        if not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        ):
            raise TransientSourceError(f"{topic} cannot be read: {error.str()}")
