"""Reads a topic of the target to its present end: all committed records, and only these."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.errors import TransientError
from consumer.targets.kafka.clients import TOPIC_READ_TIMEOUT_S, make_committed_consumer
from consumer.targets.kafka.errors import translate_kafka_error
from consumer.targets.kafka.topics import TargetTopics
from schemas.config.model import KafkaTargetConfig

PASSED = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED}
)
"""Errors after which a reader may continue: of a connection, and of the group, which the library looks
up although no record is read through it.
"""


class CommittedReader:
    """Reads the partitions of one topic from the beginning, and later the new records. Close it.

    `cut`: the topic's first records were deleted.
    """

    def __init__(self, config: KafkaTargetConfig, topics: TargetTopics, name: str, partitions: int) -> None:
        self._topics, self._name = topics, name
        self._consumer = make_committed_consumer(config)
        self._at = self._find_start_offsets(range(partitions))
        # Records below these offsets are deleted; a consumer assigned to 0 first would receive the
        # broker's refusal of 0.
        self.cut = any(self._at.values())
        self._consumer.assign([TopicPartition(name, each, at) for each, at in self._at.items()])

    def _find_start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        try:
            return {
                each: self._consumer.get_watermark_offsets(
                    TopicPartition(self._name, each), timeout=TOPIC_READ_TIMEOUT_S
                )[0]
                for each in partitions
            }
        except KafkaException as error:
            self.close()
            raise translate_kafka_error(
                error, f"the first offset of topic {self._name} cannot be read"
            ) from error

    def to_end(self, *, stable: bool = False) -> Iterator[Any]:
        """Yield the committed messages up to the topic's present end; those of one partition in their
        order.

        Waits for a transaction that is open below that end; `stable`: reads only up to its begin
        instead. Raises TransientError if there is no progress for TOPIC_READ_TIMEOUT_S.
        """
        ends = self._topics.read_end_offsets(self._name, list(self._at), stable=stable)
        left = {each for each, end in ends.items() if self._at[each] < end}
        last = time.monotonic()
        while left:
            message: Any = self._consumer.poll(0.1)
            if message is None:
                if time.monotonic() - last > TOPIC_READ_TIMEOUT_S:
                    raise TransientError(
                        f"topic {self._name} could not be read to its end in {TOPIC_READ_TIMEOUT_S:.0f} s: "
                        "a broker does not answer, or a transaction of another producer stays open"
                    )
                continue
            error, partition = message.error(), message.partition()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.retriable() or error.code() in PASSED:
                    continue
                raise translate_kafka_error(error, f"topic {self._name} cannot be read")
            self._at[partition] = message.offset() + (error is None)
            if error is None:
                last = time.monotonic()
                yield message
            if self._at[partition] >= ends[partition]:
                left.discard(partition)

    def close(self) -> None:
        self._consumer.close()
