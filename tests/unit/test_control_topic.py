"""The control topic's administration, beside a broker that is behind or another candidate that is ahead."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.control import topic
from coordinator.control.topic import ControlTopic, ControlTopicError
from schemas.config.model import KafkaConfig

_CONFIG = KafkaConfig(bootstrap="127.0.0.1:1", prefix="p", replication=1)


def failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


class Broker:
    """One that lists no topic, answers a creation with `created`, and knows no topic that it is to
    describe."""

    def __init__(self, created: Future[Any]) -> None:
        self.created = created

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={})

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[Any]]:
        return {topics[0].topic: self.created}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {resources[0]: failed(KafkaError.UNKNOWN_TOPIC_OR_PART)}


def ensure(monkeypatch: pytest.MonkeyPatch, created: Future[Any]) -> None:
    monkeypatch.setattr(topic, "open_admin", lambda *_, **__: Broker(created))
    ControlTopic(_CONFIG).ensure_topic()


def test_a_created_topic_is_not_asked_of_a_broker_that_does_not_know_it_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: Future[Any] = Future()
    done.set_result(None)
    ensure(monkeypatch, done)


def test_a_topic_that_another_candidate_has_just_created_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(KafkaException, match="the user lacks Describe on it"):
        ensure(monkeypatch, failed(KafkaError.TOPIC_ALREADY_EXISTS))


def test_a_refused_creation_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ControlTopicError) as refused:
        ensure(monkeypatch, failed(KafkaError.INVALID_REPLICATION_FACTOR))
    assert refused.value.problem.remedy == (
        "set kafka.replication to what the cluster can do, or allow the user to create topics"
    )


@pytest.mark.parametrize(("partitions", "refusal"), [(1, None), (3, "has 3 partitions and must have one")])
def test_the_topic_must_have_one_partition(
    monkeypatch: pytest.MonkeyPatch, partitions: int, refusal: str | None
) -> None:
    """Terms are its offsets."""
    monkeypatch.setattr(topic, "open_admin", lambda *_, **__: None)
    control = ControlTopic(_CONFIG)
    known = {control.name: SimpleNamespace(partitions=dict.fromkeys(range(partitions)))}
    control._admin = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=known))
    checked: list[bool] = []
    monkeypatch.setattr(control, "_require_full_retention", lambda: checked.append(True))
    if refusal is None:
        control.ensure_topic()
        assert checked == [True]
        return
    with pytest.raises(ControlTopicError, match=refusal):
        control.ensure_topic()
