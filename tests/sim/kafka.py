"""The model's Kafka: topics of one partition, a producer's client, and what reads topics at a start.

A message is first under way, then in its topic, then acknowledged; those of one topic in their order, topics
in any. A message that fails ends its producer, and the messages after it arrive only if the writer does not
purge them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from producer.kafka.topics import TopicOpenings
from schemas.problems import Problem
from schemas.wire.topic_names import normalize_topic

Callback = Callable[[Any, Any], None]
MORE = 0.7
"""How likely a look at Kafka brings another message on its way."""


class KilledError(BaseException):
    """The process was killed while it waited for Kafka."""


@dataclass
class Message:
    """What a reader gets."""

    at: int
    _key: bytes
    _value: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value


@dataclass
class Topic:
    """`low`: of the first record that the retention has left."""

    records: list[Message] = field(default_factory=list)
    low: int = 0
    id: str = "id"

    def slice(self, begin: int, end: int) -> list[tuple[int, bytes | None]]:
        """Return the records [begin, end) as an attempt gets them."""
        return [(record.at, record._value) for record in self.records[begin:end]]


class Broker:
    """The topics; created when they are ensured, and read by offset. `judge` receives every message that a
    topic gets."""

    def __init__(self, judge: Callable[[str, Message], None] = lambda _topic, _message: None) -> None:
        self.topics: dict[str, Topic] = {}
        self._judge = judge

    def ensure(self, names: Iterable[str], _settings: dict[str, str]) -> set[str]:
        created = {name for name in names if name not in self.topics}
        self.topics.update({name: Topic() for name in created})
        return created

    def open_topics(self, names: Iterable[str]) -> TopicOpenings:
        """Make the topics of tables; like Kafka, none that differs from another one only in `.` and `_`."""
        opened = TopicOpenings(set(), {}, set())
        for name in sorted(names):
            if any(normalize_topic(name) == normalize_topic(other) for other in self.topics if other != name):
                opened.taken.add(name)
                opened.refused[name] = Problem(f"topic {name} collides", "choose another")
            else:
                opened.created.update(self.ensure([name], {}))
        return opened

    def fetch_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.topics[name].id for name in names if name in self.topics}

    def count_partitions(self) -> dict[str, int]:
        return dict.fromkeys(self.topics, 1)

    def get_bounds(self, topic: str) -> tuple[int, int]:
        return self.topics[topic].low, len(self.topics[topic].records)

    def expire(self, topic: str) -> None:
        """Let the retention take all that a topic has."""
        self.topics[topic].low = len(self.topics[topic].records)

    def read_range(self, topic: str, start: int, end: int) -> Iterator[Message]:
        yield from self.topics[topic].records[max(start, self.topics[topic].low) : end]

    def read_all(self, stretches: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[tuple[str, Message]]:
        for topic, parts in stretches.items():
            for start, end in parts:
                for message in self.read_range(topic, start, end):
                    yield topic, message

    def append(self, topic: str, key: bytes, value: bytes | None) -> int:
        records = self.topics.setdefault(topic, Topic()).records
        records.append(Message(len(records), key, value))
        self._judge(topic, records[-1])
        return len(records) - 1


class Client:
    """A producer's client. `meanwhile` lets others run while it is waited for, and may kill its process."""

    def __init__(
        self, broker: Broker, rng: random.Random, failing: Callable[[], float], meanwhile: Callable[[], None]
    ) -> None:
        self._broker, self._rng, self._failing, self._meanwhile = broker, rng, failing, meanwhile
        self._waiting: dict[str, deque[tuple[bytes, bytes | None, Callback | None]]] = {}
        self._unsaid: dict[str, deque[tuple[int, Callback | None]]] = {}
        self._failed = False

    # --- what the writer asks

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        assert partition == 0
        queue = self._waiting.setdefault(topic, deque())
        queue.extend((message["key"], message["value"], message.get("callback")) for message in messages)
        return len(messages)

    def poll(self, timeout: float) -> None:
        must = bool(timeout)
        if must:
            self._meanwhile()
        while not self._failed and self._busy and (must or self._rng.random() < MORE):
            must = False
            self._go_on()

    def purge(self, **_: object) -> None:
        self._waiting.clear()
        self._unsaid.clear()

    # --- what happens to it

    @property
    def _busy(self) -> bool:
        return any(self._waiting.values()) or any(self._unsaid.values())

    def _go_on(self) -> None:
        """Bring a message into its topic, or acknowledge one, or lose one."""
        under_way = [topic for topic, queue in self._waiting.items() if queue]
        there = [topic for topic, queue in self._unsaid.items() if queue]
        if under_way and (not there or self._rng.random() < 0.5):
            topic = self._rng.choice(under_way)
            if self._rng.random() < self._failing():
                self._fail(topic)
                return
            self._bring(topic)
        elif there:
            topic = self._rng.choice(there)
            offset, callback = self._unsaid[topic].popleft()
            if callback is not None:
                callback(None, SimpleNamespace(topic=lambda: topic, offset=lambda: offset))

    def _bring(self, topic: str) -> None:
        key, value, callback = self._waiting[topic].popleft()
        offset = self._broker.append(topic, key, value)
        self._unsaid.setdefault(topic, deque()).append((offset, callback))

    def _fail(self, topic: str) -> None:
        *_, callback = self._waiting[topic].popleft()
        self._failed = True
        if callback is None:  # the last one of its batch has one, and fails as well
            *_, callback = next(each for each in self._waiting[topic] if each[2] is not None)
        if callback is not None:
            callback(KafkaError(KafkaError._MSG_TIMED_OUT), SimpleNamespace(topic=lambda: topic))

    def end(self, share: float = 1.0) -> None:
        """The process is gone: of what is still under way a part comes."""
        for topic, queue in self._waiting.items():
            while queue and self._rng.random() < share:
                self._bring(topic)
        self.purge()
