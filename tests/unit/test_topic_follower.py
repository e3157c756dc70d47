"""The reader that all followed topics of a pipeline share, over a consumer that the test feeds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from consumer.attempt.readers.reader import RecordSlice
from consumer.slots import topic_follower as module
from consumer.slots.faults import FAULT_EXIT_CODE
from consumer.slots.topic_follower import TopicFollower, build_follower_settings
from tests.kits.waiting import until

LONG_S = 60.0
"""A hang's end."""


class Message:
    def __init__(self, topic: str | None, offset: int = 0, error: KafkaError | None = None) -> None:
        self._topic, self._offset, self._error = topic, offset, error

    def topic(self) -> str | None:
        return self._topic

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"v%d" % self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """Topic → offset from which it reads; `arrive` gives it messages."""

    made: list[Consumer]

    def __init__(self, _settings: Any, on_error: Callable[[KafkaError], None]) -> None:
        self.on_error = on_error
        self.assigned: dict[str, int] = {}
        self.waiting: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        self.closed = threading.Event()
        Consumer.made.append(self)

    def incremental_assign(self, parts: list[Any]) -> None:
        for part in parts:
            assert part.topic not in self.assigned, "assigned twice"
            self.assigned[part.topic] = part.offset

    def incremental_unassign(self, parts: list[Any]) -> None:
        for part in parts:
            del self.assigned[part.topic]

    def poll(self, _timeout: float) -> Message | None:
        try:
            found = self.waiting.get(timeout=0.005)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def consume(self, _most: int, timeout: float) -> list[Message]:
        assert timeout == 0, "it would wait for that many"
        found: list[Any] = []
        while not self.waiting.empty():
            found.append(self.waiting.get())
        return found

    def close(self) -> None:
        self.closed.set()


class Followed:
    def __init__(self) -> None:
        self.taken: list[tuple[str, int, RecordSlice]] = []
        self.lost: list[tuple[str, int]] = []
        self.unreachable: list[str] = []
        self.reader = TopicFollower(
            {}, "p", lambda *call: self.taken.append(call), lambda *call: self.lost.append(call),
            self.unreachable.append,
        )  # fmt: skip

    @property
    def consumer(self) -> Consumer:
        return Consumer.made[-1]


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    Consumer.made = []
    monkeypatch.setattr(module, "open_consumer", Consumer)
    made = Followed()
    yield made
    made.reader.close()
    assert all(each.closed.is_set() for each in Consumer.made)


def test_a_kafka_that_cannot_be_reached_is_reported(followed: Followed) -> None:
    followed.reader.follow_topic("t", 5, 1)
    until(lambda: Consumer.made, what="the consumer")
    followed.consumer.on_error(KafkaError(KafkaError._TRANSPORT, "one of two brokers"))
    followed.consumer.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    assert followed.unreachable == ["Kafka: 2/2 brokers are down"]


def test_records_come_by_topic_with_the_number_of_their_command(followed: Followed) -> None:
    followed.reader.follow_topic("t", 5, 1)
    followed.reader.follow_topic("u", 7, 2)
    until(lambda: Consumer.made and followed.consumer.assigned == {"t": 5, "u": 7}, what="the topics")
    for topic, offset in (("t", 5), ("u", 7), ("t", 6)):
        followed.consumer.waiting.put(Message(topic, offset))
    until(lambda: sum(len(records) for *_, records in followed.taken) == 3, what="the records")
    assert [offset for topic, _, records in followed.taken if topic == "t" for offset, _ in records] == [5, 6]
    assert {(topic, number) for topic, number, _ in followed.taken} == {("t", 1), ("u", 2)}


def test_a_topic_is_followed_again_from_another_offset(followed: Followed) -> None:
    followed.reader.follow_topic("t", 5, 1)
    until(lambda: Consumer.made and followed.consumer.assigned == {"t": 5}, what="the topic")
    followed.reader.leave_topic("t")
    followed.reader.follow_topic("t", 90, 2)
    until(lambda: followed.consumer.assigned == {"t": 90}, what="the other offset")
    followed.reader.follow_topic("u", 1, 3)
    followed.reader.leave_topic("u")
    followed.reader.leave_topic("t")
    until(lambda: followed.consumer.assigned == {}, what="no topic")
    followed.consumer.waiting.put(Message("t", 91))
    followed.reader.follow_topic("v", 0, 4)
    until(lambda: followed.consumer.assigned == {"v": 0}, what="the last topic")
    assert followed.taken == [], "records of a topic that was left are dropped"


def test_an_error_of_a_topic_concerns_that_topic(followed: Followed) -> None:
    followed.reader.follow_topic("t", 5, 1)
    followed.reader.follow_topic("u", 7, 2)
    until(lambda: Consumer.made and len(followed.consumer.assigned) == 2, what="the topics")
    with capture_logs() as logs:
        followed.consumer.waiting.put(Message("t", error=KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)))
        followed.consumer.waiting.put(Message(None, error=KafkaError(KafkaError._ALL_BROKERS_DOWN)))
        followed.consumer.waiting.put(Message("u", 7))
        until(lambda: followed.taken, what="the other topic's record")
    assert followed.lost == [("t", 1)]
    assert [line["event"] for line in logs] == ["Kafka client reports an error"]


@pytest.mark.parametrize("fatal", [KafkaException(KafkaError(KafkaError._FATAL)), ValueError("odd")])
def test_a_reader_that_fails_gives_all_its_topics_back(followed: Followed, fatal: Exception) -> None:
    """Also those that it was asked to follow meanwhile: no consumer would read them."""
    followed.reader.follow_topic("t", 5, 1)
    until(lambda: Consumer.made and followed.consumer.assigned == {"t": 5}, what="the topic")
    broken = followed.consumer
    with capture_logs() as logs:
        with followed.reader._changed:
            broken.waiting.put(fatal)
            until(broken.waiting.empty, what="the error")
            followed.reader._commands.append(("u", 2, 7))
        until(lambda: len(followed.lost) == 2, what="both topics")
    assert sorted(followed.lost) == [("t", 1), ("u", 2)]
    assert broken.closed.is_set()
    assert [line["event"] for line in logs] == ["reader of new records failed"]
    followed.reader.follow_topic("t", 6, 3)
    until(
        lambda: followed.consumer is not broken and followed.consumer.assigned == {"t": 6}, what="another one"
    )


def test_a_reader_that_cannot_end_ends_the_process(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no thread would read its topics, and their units would stand still."""
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr("os._exit", codes.put)
    followed.reader.follow_topic("t", 5, 1)
    until(lambda: Consumer.made and followed.consumer.assigned == {"t": 5}, what="the topic")
    followed.consumer.waiting.put(ValueError("odd"))
    with capture_logs(), monkeypatch.context() as patch:
        patch.setattr(followed.consumer, "close", lambda: 1 // 0)
        assert codes.get(timeout=LONG_S) == FAULT_EXIT_CODE
    followed.consumer.close()


def test_its_settings_are_its_own() -> None:
    settings = build_follower_settings("b:1", {"auto.offset.reset": "earliest", "security.protocol": "SSL"})
    assert settings["auto.offset.reset"] == "error", "a topic that lost records would be read from elsewhere"
    assert (settings["security.protocol"], settings["bootstrap.servers"]) == ("SSL", "b:1")
