"""How long is kept what an agent's units need: read now and then, of units that run here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordinator.core.agent_unit import AgentUnit
from rowlock.agent import retention
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.retention import Kept, RetentionReader, TopicRetention, read_log_retention
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.views.retention import RetentionLimits
from schemas.config.model import Config, SourceConfig
from schemas.units import UnitPhase


class Agent:
    """An agent with a capture unit of each source that reports progress, and two apply units."""

    def __init__(self) -> None:
        self.logs: dict[str, float | CommandError | None] = {"b1": 86_400.0, "b2": None}
        self.topics: dict[str, float] | KafkaUnreachableError = {"t": 600.0}
        self.asked: list[Any] = []
        self.reported = ReportedFigures()
        for source in self.logs:
            self.reported.record_captured(source, {"events": 1})
        running = ("capture/b1", "capture/b2", "apply/p/t", "apply/p/u")
        self.held = [AgentUnit(name, 7, UnitPhase.REPLICATING) for name in running]
        config: Any = SimpleNamespace(sources={"b1": None, "b2": None})
        self.reader = RetentionReader(
            lambda: config, lambda: self.held, self.reported,
            read_log=self._read_log, read_topics=self._read_topics,
        )  # fmt: skip

    def _read_log(self, _source: SourceConfig, name: str) -> float | None:
        self.asked.append(name)
        found = self.logs[name]
        if isinstance(found, CommandError):
            raise found
        return found

    def _read_topics(self, _config: Config, topics: Collection[str]) -> Mapping[str, float]:
        self.asked.append(list(topics))
        if isinstance(self.topics, KafkaUnreachableError):
            raise self.topics
        return {topic: kept for topic, kept in self.topics.items() if topic in topics}

    def read(self) -> Kept:
        self.asked.clear()
        self.reader.read()
        return self.reader.kept


def test_limits_of_logs_and_topics_are_read() -> None:
    agent = Agent()
    assert agent.read() == Kept({"b1": 86_400.0}, {"t": 600.0})
    assert agent.asked == ["b1", "b2", ["t", "u"]]


def test_a_limit_that_is_removed_is_forgotten() -> None:
    agent = Agent()
    agent.read()
    agent.logs["b1"] = None
    assert agent.read().logs == {}


def test_units_that_do_not_run_here_are_left_out() -> None:
    agent = Agent()
    agent.read()
    phases = {"capture/b1": UnitPhase.PREPARING, "apply/p/t": UnitPhase.STOPPED}
    agent.held = [AgentUnit(name, 8, phase) for name, phase in phases.items()]
    assert agent.read() == Kept()
    assert agent.asked == [[]]


def test_a_source_is_not_asked_while_capture_cannot_work() -> None:
    """A wrong password must not be repeated; what was read before is still true."""
    agent = Agent()
    agent.read()
    agent.reported.end_capture("b1")
    assert agent.read().logs == {"b1": 86_400.0}
    assert "b1" not in agent.asked


def test_what_cannot_be_read_now_is_kept() -> None:
    agent = Agent()
    before = agent.read()
    agent.logs["b1"] = CommandError("no right")
    agent.topics = KafkaUnreachableError("away")
    with capture_logs() as logs:
        assert agent.read() == before
    assert [each["event"] for each in logs] == ["retention not readable"] * 2


def test_limits_are_those_of_check(monkeypatch: pytest.MonkeyPatch) -> None:
    source: Any = SimpleNamespace(type="mysql")
    monkeypatch.setattr(retention, "has_view", lambda each: each is not source)
    limits = RetentionLimits(7200.0, "days")
    monkeypatch.setattr(retention, "read_source_log", lambda *_: SimpleNamespace(kept=limits))
    assert read_log_retention(source, "b1") == 7200.0
    oracle: Any = SimpleNamespace(type="oracle")
    assert read_log_retention(oracle, "b2") is None, "capture alone deletes from it"

    class Settings:
        def __init__(self, _kafka: object) -> None: ...

        def read_retention(self, topics: Collection[str]) -> dict[str, RetentionLimits]:
            return {
                topic: RetentionLimits(None if topic == "u" else 60.0, "retention.ms") for topic in topics
            }

    monkeypatch.setattr(retention, "TopicSettings", Settings)
    config: Any = SimpleNamespace(kafka=None)
    assert TopicRetention()(config, ["t", "u"]) == {"t": 60.0}
