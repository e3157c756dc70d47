"""A reader of topics of its own: it has nothing of the product in it, and keeps all that it was ever
given."""

from __future__ import annotations

import contextlib
import math
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition


@dataclass(frozen=True)
class Record:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TopicReader:
    """Reads one topic from its begin, and with each call on to where it ends then. Close it. `records`: those
    of a partition in their order."""

    def __init__(self, bootstrap: str, topic: str, *, committed: bool = True) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._partitions: tuple[int, ...] = ()
        self.records: list[Record] = []

    def read_topic(self, seconds: float = 60) -> list[Record]:
        """Read to the end of what is committed now; nothing while the topic is not there. Raises
        AssertionError: no end within `seconds`."""
        if not self._partitions and not self._assign():
            return []
        begin = dict.fromkeys(self._partitions, 0)
        begin.update({each.partition: each.offset + 1 for each in self.records})
        # Anew each time: a consumer says a partition's end once, unless something comes.
        self._consumer.assign([TopicPartition(self._topic, each, at) for each, at in begin.items()])
        left, ends = set(self._partitions), self._find_ends()
        while left:
            message: Any = self._consumer.poll(seconds)
            assert message is not None, f"no end of {self._topic} within {seconds} s"
            error = message.error()
            if error is None:
                self.records.append(
                    Record(message.partition(), message.offset(), message.key(), message.value())
                )
                if message.offset() + 1 >= ends.get(message.partition(), math.inf):
                    left.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            elif not error.retriable() and error.code() not in _DOWN:
                raise AssertionError(f"{self._topic}: {error}")
        return self.records

    def _find_ends(self) -> dict[int, int]:
        """Return the present end of each partition; none while a broker is down. Under a steady load the
        client never tells that it has reached an end."""
        ends = {}
        for each in self._partitions:
            with contextlib.suppress(KafkaException):
                ends[each] = self._consumer.get_watermark_offsets(TopicPartition(self._topic, each), 15)[1]
        return ends

    def _assign(self) -> bool:
        try:
            found = self._consumer.list_topics(timeout=15).topics.get(self._topic)
        except KafkaException:  # the broker is down
            return False
        if found is None:
            return False
        self._partitions = tuple(found.partitions)
        return bool(self._partitions)

    def close(self) -> None:
        self._consumer.close()


#: A broker that a test has killed comes back.
_DOWN = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}


def whole_topic(bootstrap: str, topic: str, *, committed: bool = True) -> list[Record]:
    """Return all records of a topic."""
    with closing(TopicReader(bootstrap, topic, committed=committed)) as reader:
        return reader.read_topic()
