"""Reads ranges of single-partition topics by offset: position records, and the ends of event topics at a
start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from producer.errors import TransientSourceError
from producer.kafka.settings import build_capture_consumer_settings
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_consumer

_PATIENCE = 30.0
#: Topics that are read at the same time. Each of them takes its share of the memory of a request.
_AT_ONCE = 200

OffsetRange = tuple[int, int]
"""The offsets [first, end), the end exclusive."""


class TopicReader:
    """A consumer without a group: every read is given its range."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._consumer = open_consumer(build_capture_consumer_settings(kafka))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def get_bounds(self, topic: str) -> tuple[int, int]:
        """Return the first offset and the end offset (exclusive). Raises TransientSourceError."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, 0), timeout=10, cached=False
                )
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise TransientSourceError(f"the offsets of {topic} cannot be read: {error}") from error
            else:
                if low >= 0 and high >= 0:
                    return low, high
                if time.monotonic() > deadline:
                    raise TransientSourceError(f"Kafka does not know the offsets of {topic}")
            # A topic just created is not known to every broker at once, nor are its offsets to a new leader.
            time.sleep(0.2)

    def read_range(self, topic: str, start: int, end: int) -> Iterator[Any]:
        """Yield the messages of [start, end) that still exist, in order. Raises TransientSourceError."""
        for _, message in self._read_ranges({topic: (start, end)}):
            yield message

    def read_all(self, stretches: Mapping[str, Sequence[OffsetRange]]) -> Iterator[tuple[str, Any]]:
        """Yield (topic, message) of every topic's ranges. Each topic's are in order; topics are mixed.

        The first ranges of all topics are read together, then the second ones: one topic after the other
        would take a tenth of a second each. Raises TransientSourceError.
        """
        names = sorted(stretches)
        for first in range(0, len(names), _AT_ONCE):
            group = names[first : first + _AT_ONCE]
            for number in range(max(len(stretches[name]) for name in group)):
                yield from self._read_ranges(
                    {n: stretches[n][number] for n in group if len(stretches[n]) > number}
                )

    def _read_ranges(self, stretches: Mapping[str, OffsetRange]) -> Iterator[tuple[str, Any]]:
        """Read one range of each topic."""
        left = {topic: stretch for topic, stretch in stretches.items() if stretch[0] < stretch[1]}
        if not left:
            return
        self._consumer.assign([TopicPartition(topic, 0, start) for topic, (start, _) in left.items()])
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            # `consume` waits for that many messages, or for the whole time: never ask for more than
            # there are.
            most = sum(end - start for start, end in left.values())
            for message in self._consumer.consume(min(5000, most), timeout=0.2):
                if self._is_in_range(message, left):
                    deadline = time.monotonic() + _PATIENCE
                    yield str(message.topic()), message
            if not left:
                return
        raise TransientSourceError(
            f"{', '.join(sorted(left)[:3])} cannot be read: no answer from Kafka for {_PATIENCE:.0f} s"
        )

    def _is_in_range(self, message: Any, left: dict[str, OffsetRange]) -> bool:
        """Return whether the message is in its topic's range.

        Remove the topic from `left` when the range is complete.
        """
        topic, error, offset = message.topic(), message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._raise_read_error(topic, error)
            return False
        if topic not in left:
            return False
        start, end = left[topic]
        if error is not None and offset is not None and offset < end:
            return False  # the end of an earlier assignment
        if error is not None or offset is None or offset >= end - 1:
            del left[topic]
            self._consumer.incremental_unassign([TopicPartition(topic, 0)])
        elif offset >= start:
            left[topic] = offset + 1, end
        return error is None and offset is not None and start <= offset < end

    @staticmethod
    def _raise_read_error(topic: str | None, error: KafkaError) -> None:
        if not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        ):
            raise TransientSourceError(f"{topic or 'Kafka'} cannot be read: {error.str()}")
