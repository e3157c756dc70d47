"""Reading a stretch of a topic from Kafka itself: slices, ends, and what Kafka may answer instead; on a
modelled consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.attempt.readers import kafka_reader
from consumer.attempt.readers.kafka_reader import (
    IDLE_S,
    MAX_SLICE_RECORDS,
    find_offset_problem,
    read_range,
    read_rest,
)
from consumer.errors import TransientError, UnitStoppedError

EOF = KafkaError._PARTITION_EOF


class Consumer:
    """Gives the offsets of `answers`, one answer a call: a number is an offset, a KafkaError the error in its
    place."""

    def __init__(self, *answers: list[Any], low: int = 0, high: int = 100) -> None:
        self.answers, self.bounds = list(answers), (low, high)
        self.asked: list[tuple[int, float]] = []
        self.assigned: list[tuple[str, int, int]] = []
        self.closed = 0

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        assert (place.topic, place.partition, timeout) == ("t", 0, IDLE_S)
        return self.bounds

    def assign(self, places: list[Any]) -> None:
        self.assigned += [(place.topic, place.partition, place.offset) for place in places]

    def consume(self, count: int, timeout: float) -> list[Any]:
        self.asked.append((count, timeout))
        return [self._message(each) for each in self.answers.pop(0)]

    def close(self) -> None:
        self.closed += 1

    @staticmethod
    def _message(what: Any) -> Any:
        if isinstance(what, KafkaException):
            raise what
        error = what if isinstance(what, KafkaError) else None
        return SimpleNamespace(error=lambda: error, offset=lambda: what, value=lambda: b"%d" % what)


def read(monkeypatch: pytest.MonkeyPatch, consumer: Consumer, start: int, upto: int) -> list[list[int]]:
    monkeypatch.setattr(kafka_reader, "open_consumer", lambda options: consumer)
    found = list(read_range({}, "t", start, upto))
    assert all(value == b"%d" % offset for records in found for offset, value in records)
    return [[offset for offset, _ in records] for records in found]


@pytest.mark.parametrize(
    ("answers", "found", "counts"),
    [
        ([[3, 4, 5, 6]], [[3, 4, 5, 6]], [4]),
        ([[3, 4], [5, 6]], [[3, 4], [5, 6]], [4, 2]),
        ([[3], [6]], [[3], [6]], [4, 3]),  # holes, as of a transaction's marks
        ([[3, 5, 7]], [[3, 5]], [4]),  # a hole where the last one was
        ([[8]], [], [4]),
        ([[3, KafkaError(EOF)]], [[3]], [4]),
        ([[KafkaError(EOF)]], [], [4]),
    ],
)
def test_what_stands_there_is_read_and_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], found: list[Any], counts: list[int]
) -> None:
    consumer = Consumer(*answers)
    assert read(monkeypatch, consumer, 3, 7) == found
    assert consumer.asked == [(count, IDLE_S) for count in counts]
    assert (consumer.assigned, consumer.closed, consumer.answers) == ([("t", 0, 3)], 1, [])


def test_a_slice_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer([0], [MAX_SLICE_RECORDS], low=0, high=9 * MAX_SLICE_RECORDS)
    read(monkeypatch, consumer, 0, MAX_SLICE_RECORDS + 1)
    assert MAX_SLICE_RECORDS == 5000
    assert [count for count, _ in consumer.asked] == [MAX_SLICE_RECORDS, MAX_SLICE_RECORDS]


def test_nothing_is_asked_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    assert read(monkeypatch, consumer, 7, 7) == []
    assert (consumer.asked, consumer.closed) == ([], 1)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ([], TransientError, "Kafka sent nothing for 10 s while reading offset 3"),
        ([KafkaError(KafkaError._AUTO_OFFSET_RESET)], UnitStoppedError, "retention has deleted"),
        ([KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)], UnitStoppedError, "retention has deleted"),
        ([KafkaError(KafkaError._ALL_BROKERS_DOWN)], TransientError, "t: Kafka: "),
        ([KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))], TransientError, "t: Kafka: "),
    ],
)
def test_what_kafka_may_say_instead(
    monkeypatch: pytest.MonkeyPatch, answer: list[Any], error: type[Exception], words: str
) -> None:
    consumer = Consumer(answer)
    with pytest.raises(error, match=words):
        read(monkeypatch, consumer, 3, 7)
    assert consumer.closed == 1


@pytest.mark.parametrize(("low", "high", "words"), [(4, 9, "retention has deleted"), (0, 2, "lost records")])
def test_a_topic_that_does_not_reach_there_stops_the_unit(
    monkeypatch: pytest.MonkeyPatch, low: int, high: int, words: str
) -> None:
    consumer = Consumer(low=low, high=high)
    with pytest.raises(UnitStoppedError, match=words):
        read(monkeypatch, consumer, 3, 7)
    assert (consumer.asked, consumer.closed) == ([], 1)


def test_the_bounds_of_a_topic_belong_to_it() -> None:
    assert find_offset_problem("t", 3, 3, 3) is None
    behind = find_offset_problem("t", 2, 3, 9)
    beyond = find_offset_problem("t", 10, 3, 9)
    assert behind is not None
    assert beyond is not None
    assert "(next needed 2, the topic begins at 3)" in str(behind)
    assert "has applied offset 9, but the topic ends at 8" in str(beyond)


def test_a_client_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such setting"))

    monkeypatch.setattr(kafka_reader, "open_consumer", refuse)
    with pytest.raises(TransientError, match=r"t: the Kafka client cannot be created: .*no such setting"):
        list(read_range({}, "t", 3, 7))


@pytest.mark.parametrize("bounds", [(0, -1001), (-1001, 100)])
def test_bounds_that_the_broker_does_not_know_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int]
) -> None:
    """A new leader answers so, without an error. It is no end of the topic, and no copy is missing there."""
    low, high = bounds
    with pytest.raises(TransientError, match="does not know the bounds"):
        read(monkeypatch, Consumer([3], low=low, high=high), 3, 7)
    monkeypatch.setattr(kafka_reader, "open_consumer", lambda options: Consumer(low=low, high=high))
    with pytest.raises(TransientError, match="does not know the bounds"):
        list(read_rest({}, "t", 3))
