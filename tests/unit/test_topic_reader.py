"""The bounds of a topic, as capture reads them at its start; on a modelled consumer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer.errors import TransientSourceError
from producer.kafka import topic_reader
from producer.kafka.topic_reader import TopicReader
from schemas.config.model import KafkaConfig

UNKNOWN = -1001
"""The offset that a client shows where a topic's new leader does not know it yet."""


class Consumer:
    """Answers with the bounds or errors of `answers`, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get_watermark_offsets(self, _place: Any, timeout: float, cached: bool) -> tuple[int, int]:
        assert not cached
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaException):
            raise answer
        return (int(answer[0]), int(answer[1]))


def read_bounds(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> tuple[int, int]:
    monkeypatch.setattr(topic_reader, "open_consumer", lambda _: Consumer(*answers))
    monkeypatch.setattr(topic_reader.time, "sleep", lambda _: None)
    return TopicReader(KafkaConfig(bootstrap="h:1")).get_bounds("t")


def test_bounds_that_no_broker_knows_yet_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown end would look like a topic that has lost its records, and its table would stop."""
    early = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
    assert read_bounds(monkeypatch, early, (0, UNKNOWN), (UNKNOWN, 7), (3, 7)) == (3, 7)


@pytest.mark.parametrize("answer", [(0, UNKNOWN), KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))])
def test_bounds_that_stay_unknown_are_an_error(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(topic_reader, "_PATIENCE", -1.0)
    with pytest.raises(TransientSourceError, match="offsets of t"):
        read_bounds(monkeypatch, answer)
