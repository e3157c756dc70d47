"""A new topic is used only once its leader answers for it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer.errors import TransientSourceError
from producer.kafka import topics
from producer.kafka.topics import EVENTS, SourceTopics
from schemas.config.model import KafkaConfig


def future(error: int | None) -> Future[Any]:
    made: Future[Any] = Future()
    if error is None:
        made.set_result(None)
    else:
        made.set_exception(KafkaException(KafkaError(error)))
    return made


class Admin:
    """A cluster whose leaders learn of a topic after `late` questions; as librdkafka's client, it repeats
    that a topic has none until the topic is listed again."""

    def __init__(self, late: int, *, already: bool = False) -> None:
        self.late, self.already = late, already
        self.asked: list[int] = []
        self.kept: set[str] = set()

    def list_topics(self, topic: str = "", **_: object) -> Any:
        self.kept.discard(topic)
        return SimpleNamespace(topics={})

    def describe_configs(self, asked: list[Any], **_: object) -> dict[Any, Future[Any]]:
        found: dict[Any, Future[Any]] = {}
        for each in asked:
            found[each] = Future()
            found[each].set_result({"cleanup.policy": SimpleNamespace(value="delete")})
        return found

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Future[Any]]:
        code = KafkaError.TOPIC_ALREADY_EXISTS if self.already else None
        return {each.topic: future(code) for each in new}

    def list_offsets(self, expected: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        self.asked.append(len(expected))
        slow = sorted(expected, key=lambda partition: str(partition.topic))[0]
        if len(self.asked) <= self.late:
            self.kept.add(str(slow.topic))
        codes = {each: KafkaError._NOENT if each.topic in self.kept else None for each in expected}
        return {each: future(code) for each, code in codes.items()}


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(topics, "_LOOK_AGAIN", 0.001)

    def made(admin: Admin) -> SourceTopics:
        monkeypatch.setattr(topics, "open_admin", lambda *_, **__: admin)
        return SourceTopics(KafkaConfig(bootstrap="h:1", prefix="p"))

    return made


@pytest.mark.parametrize("already", [False, True])
def test_its_leader_is_waited_for(of: Any, already: bool) -> None:
    """Also when somebody else made it at the same moment."""
    admin = Admin(late=3, already=already)
    assert of(admin).ensure_topics(["a", "b"], EVENTS) == (set() if already else {"a", "b"})
    assert admin.asked == [2, 1, 1, 1], "the one that answered is not asked again"


def test_a_topic_has_one_partition_and_keeps_its_events_for_a_week(
    of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events have one order; docs/how-to/source-setup.md promises the time."""
    admin, created = Admin(late=0), list[tuple[str, int, str]]()
    create = admin.create_topics

    def note(new: list[Any], **options: object) -> Any:
        created.extend((each.topic, each.num_partitions, each.config["retention.ms"]) for each in new)
        return create(new, **options)

    monkeypatch.setattr(admin, "create_topics", note)
    of(admin).ensure_topics(["a"], EVENTS)
    assert created == [("a", 1, str(7 * 24 * 3600 * 1000))]


def test_many_topics_are_created_in_several_requests(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka refuses a request that makes more than 10,000 records, and all of its topics."""
    admin, sizes = Admin(late=0), list[int]()
    create = admin.create_topics

    def note(new: list[Any], **options: object) -> Any:
        sizes.append(sum(2 + len(each.config) for each in new))
        return create(new, **options)

    monkeypatch.setattr(admin, "create_topics", note)
    names = [f"t{number}" for number in range(10_000)]
    assert of(admin).open_topics(names).created == set(names)
    assert max(sizes) <= 10_000
    assert max(admin.asked) <= 500


def test_it_is_not_waited_for_without_end(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_LEADERS_WITHIN", 0.05)
    kept = of(Admin(late=10**6))
    with pytest.raises(TransientSourceError, match="no leader"):
        kept.ensure_topics(["a"], EVENTS)
    with pytest.raises(TransientSourceError, match="no leader"):
        kept.ensure_topics(["a"], EVENTS)  # it is not taken for ready


def test_topics_that_exist_cost_nothing_more(of: Any) -> None:
    admin = Admin(late=0)
    known = SimpleNamespace(topics={"a": SimpleNamespace(partitions={0: None})})
    admin.list_topics = lambda **_: known  # type: ignore[method-assign]
    assert of(admin).ensure_topics(["a"], EVENTS) == set()
    assert admin.asked == []
