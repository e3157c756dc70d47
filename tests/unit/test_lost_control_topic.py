"""A control topic that is deleted, or deleted and created again: its coordinator ends, and so do agents that
know a later term than the topic will have for long."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from coordinator.control import reader as reading
from coordinator.control.election import Reachable, TopicLost, Unreachable
from coordinator.control.reader import ControlReader
from coordinator.control.topic_identity import MISSING_S, ControlTopicIdentity
from coordinator.transport import leader_search
from coordinator.transport.events import LeaderInfo
from coordinator.transport.leader_search import Caller, LeaderSearch
from rowlock.coordinator import control_view
from rowlock.coordinator.control_view import ControlView
from schemas.config.model import KafkaConfig

KAFKA = KafkaConfig(bootstrap="k:1", prefix="pre")


def test_only_another_id_or_a_lasting_absence_is_a_loss() -> None:
    seen = ControlTopicIdentity().record_answer("a", 0.0)
    assert seen.explain_loss(100.0) is None
    missing = seen.record_answer(None, 100.0)
    assert missing.explain_loss(100.0 + MISSING_S - 0.1) is None, (
        "a broker that starts may not know all topics"
    )
    assert missing.record_answer("a", 105.0).explain_loss(1000.0) is None
    assert missing.record_answer(None, 109.0).explain_loss(100.0 + MISSING_S) == "is gone"
    assert missing.record_answer("b", 105.0).explain_loss(105.0) == "was deleted and created again"
    assert ControlTopicIdentity().record_answer(None, 0.0).explain_loss(1000.0) is None, "it was never there"


class Kafka:
    """A broker as a reader asks it: `end` None: it does not answer; `id` None: it has no such topic."""

    def __init__(self) -> None:
        self.end: int | None = 10
        self.id: str | None = "a"
        self.asked = 0

    def get_watermark_offsets(self, _: object, **__: object) -> tuple[int, int]:
        if self.end is None or self.id is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, self.end

    def read_id(self, _: float) -> str | None:
        self.asked += 1
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.id


class Played:
    """A reader that has read ten records, and all that it has reported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka, self.seen, self.now = Kafka(), list[Any](), 0.0
        monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(reading, "ControlTopic", lambda _: self.kafka)
        self.reader = ControlReader(KAFKA, 0.3, threading.RLock(), self.seen.append)
        self.reader.fold.end = 10

    def probe(self, seconds: float = 0.3) -> list[type[Any]]:
        """Return the kinds of what one more look reports."""
        self.seen.clear()
        self.now += seconds
        self.reader._probe_topic(self.kafka, TopicPartition("pre.control", 0, 0))  # type: ignore[arg-type]
        return [type(each) for each in self.seen]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_an_outage_is_no_loss(played: Played) -> None:
    assert played.probe() == [Reachable]
    played.kafka.end = None
    assert [played.probe() for _ in range(100)] == [[Unreachable]] * 100
    played.kafka.end = 10
    assert played.probe() == [Reachable]
    asked = played.kafka.asked
    assert played.probe() == [Reachable]
    assert played.kafka.asked == asked, "the id is only read after an outage"


@pytest.mark.parametrize("is_outage", [True, False])
def test_a_topic_that_was_created_again_ends_the_reader(played: Played, is_outage: bool) -> None:
    """Not one answer of the new topic counts: its silence shows nothing about the leader."""
    assert played.probe() == [Reachable]
    if is_outage:
        played.kafka.end = None
        assert played.probe() == [Unreachable]
    played.kafka.id, played.kafka.end = "b", 50 if is_outage else 0
    assert Reachable not in played.probe()
    (lost,) = [each for each in played.seen if isinstance(each, TopicLost)]
    assert "pre.control was deleted and created again" in lost.problem.what
    assert played.reader._stop.is_set()


def test_a_longer_new_topic_is_noticed_by_the_records_read_again(played: Played) -> None:
    """Without an outage the only sign is that offsets begin again."""
    assert played.probe() == [Reachable]
    played.kafka.id, played.kafka.end = "b", 50
    record = SimpleNamespace(error=lambda: None, offset=lambda: 0, value=lambda: b"nonsense")
    with capture_logs():
        played.reader._take_messages([record])
    assert played.probe() == [TopicLost]


def test_a_topic_that_stays_away_is_lost(played: Played) -> None:
    assert played.probe() == [Reachable]
    played.kafka.id = None
    assert [played.probe(MISSING_S / 5) for _ in range(5)] == [[Unreachable]] * 5
    assert played.probe(MISSING_S / 5) == [Unreachable, TopicLost]
    assert "pre.control is gone" in played.seen[-1].problem.what


def test_a_topic_with_fewer_records_and_the_same_id_is_none(played: Played) -> None:
    """Its last records are lost, after an unclean election of its leader."""
    assert played.probe() == [Reachable]
    played.kafka.end = 8
    assert played.probe() == [Unreachable, Reachable]


# agents


class Terms:
    """A search for the leader, where a coordinator leads the term `rev`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.rev = 0.0, 7
        monkeypatch.setattr(leader_search, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(leader_search, "ask_leader", self._ask)
        self.search = LeaderSearch(Caller("a"), ("h:1",), 1.0)

    def _ask(self, _: object, known: int, *__: object, outdated: Any, **___: object) -> LeaderInfo | None:
        if self.rev < known:
            outdated("h:1", self.rev)
            return None
        return LeaderInfo(self.rev, "h:1", "h:2", True)

    def look(self, seconds: float) -> bool:
        """Return whether the agent ends after one more look."""
        self.now += seconds
        leader = self.search.ask_peers()
        if leader is not None:
            self.search.note_rev(leader.rev)
        self.search.note_round(served=leader is not None)
        return self.search.terms_began_anew


def test_an_agent_ends_when_terms_have_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Terms(monkeypatch)
    assert not played.look(1.0)
    played.rev = 2
    with capture_logs() as logs:
        assert not any(played.look(leader_search.OUTDATED_S / 10) for _ in range(10))
        assert played.look(leader_search.OUTDATED_S / 10)
    assert [each["term"] for each in logs if each["event"] == "coordinator leads an earlier term"] == [2]


def test_a_replaced_coordinator_that_has_not_noticed_it_ends_no_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Terms(monkeypatch)
    assert not played.look(1.0)
    for _ in range(5):
        played.rev = 2
        assert not played.look(leader_search.OUTDATED_S / 2)
        played.rev = 8
        assert not played.look(leader_search.OUTDATED_S / 2)


# status


class Topic:
    """A consumer of a control topic that is at its end at once."""

    def __init__(self) -> None:
        self.end: int | None = 10
        self.assigned: list[int] = []

    def list_topics(self, **_: object) -> Any:
        return SimpleNamespace(topics={} if self.end is None else {"pre.control": None})

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        assert self.end is not None
        return 0, self.end

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned.append(places[0].offset)

    def consume(self, *_: object) -> list[Any]:
        end = SimpleNamespace(error=lambda: KafkaError(KafkaError._PARTITION_EOF))
        return [end]


def test_status_forgets_a_leader_of_a_topic_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    monkeypatch.setattr(control_view, "open_consumer", lambda *_, **__: topic)
    monkeypatch.setattr(control_view, "find_kafka_problem", lambda *_: None)
    view = ControlView(KAFKA)
    view.read_topic().end = 10
    assert (view.read_topic().end, topic.assigned, view.is_missing) == (10, [0, 10], False)
    topic.end = None
    assert (view.read_topic().end, view.is_missing) == (0, True)
    topic.end = 10
    view.read_topic().end = 10
    topic.end = 3
    assert (view.read_topic().end, topic.assigned[-1], view.is_missing) == (0, 0, False)
