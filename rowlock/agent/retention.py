"""Reads how long the logs and topics of an agent's units are kept, for `GET /metrics`: the settings that
`rowlock check` reads, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from coordinator.core.agent_unit import AgentUnit
from rowlock.agent.reported import ReportedFigures
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.views.source import has_view, read_source_log
from rowlock.views.topic_settings import TopicSettings
from schemas.config.model import Config, SourceConfig
from schemas.units import ApplyName, CaptureName, UnitPhase, parse_unit_name

_LOG = structlog.get_logger()

READ_EVERY_S = 300.0


@dataclass(frozen=True, slots=True)
class Kept:
    """The limits of age, in seconds, of what units need. A log or topic without one, or with one that is not
    known, is missing.
    """

    logs: Mapping[str, float] = field(default_factory=dict)
    """source → of its log."""
    topics: Mapping[str, float] = field(default_factory=dict)
    """topic → of its events."""


def read_log_retention(source: SourceConfig, name: str) -> float | None:
    """Return how many seconds a source keeps its log; None: for ever, or until capture deletes it.

    Raises CommandError.
    """
    return None if has_view(source) else read_source_log(source, name).kept.seconds


class TopicRetention:
    """Reads how many seconds topics keep their events. Raises KafkaUnreachableError."""

    def __init__(self) -> None:
        self._settings: TopicSettings | None = None

    def __call__(self, config: Config, topics: Collection[str]) -> dict[str, float]:
        if self._settings is None:
            self._settings = TopicSettings(config.kafka)
        found = self._settings.read_retention(topics)
        return {topic: kept.seconds for topic, kept in found.items() if kept.seconds}


class RetentionReader:
    """Reads it every `READ_EVERY_S`, in a thread of its own. `kept`: what was read last."""

    def __init__(
        self,
        get_config: Callable[[], Config],
        list_held: Callable[[], Sequence[AgentUnit]],
        reported: ReportedFigures,
        *,
        read_log: Callable[[SourceConfig, str], float | None] = read_log_retention,
        read_topics: Callable[[Config, Collection[str]], Mapping[str, float]] | None = None,
    ) -> None:
        """`list_held`: see AgentNumbers. `reported`: a source is asked only while its capture reports
        progress, so that no wrong password is repeated.
        """
        self.kept = Kept()
        self._get_config, self._list_held, self._reported = get_config, list_held, reported
        self._read_log, self._read_topics = read_log, read_topics or TopicRetention()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read_repeatedly, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Read no more. A reading that has begun is not awaited."""
        self._closing.set()

    def read(self) -> None:
        """Read the settings of the units that run here now."""
        config = self._get_config()
        running = [unit for unit in self._list_held() if unit.state is UnitPhase.REPLICATING]
        named = [parse_unit_name(unit.unit) for unit in running]
        sources = sorted(each.source for each in named if isinstance(each, CaptureName))
        topics = sorted({each.topic for each in named if isinstance(each, ApplyName)})
        self.kept = Kept(self._read_logs(config, sources), self._read_kept_topics(config, topics))

    def _read_logs(self, config: Config, sources: Sequence[str]) -> dict[str, float]:
        found = {name: kept for name, kept in self.kept.logs.items() if name in sources}
        figures = self._reported.list_sources()
        for name in sources:
            if name not in config.sources or name not in figures or not figures[name].heard_at:
                continue
            try:
                seconds = self._read_log(config.sources[name], name)
            except CommandError as error:
                _LOG.warning("retention not readable", source=name, error=error.problem.what)
                continue
            found.pop(name, None)
            if seconds is not None:
                found[name] = seconds
        return found

    def _read_kept_topics(self, config: Config, topics: Sequence[str]) -> Mapping[str, float]:
        try:
            return self._read_topics(config, topics)
        except KafkaUnreachableError as error:
            _LOG.warning("retention not readable", error=str(error))
            return self.kept.topics

    def _read_repeatedly(self) -> None:
        while not self._closing.wait(READ_EVERY_S):
            try:
                self.read()
            except Exception:  # noqa: BLE001  # logged: replication does not depend on it
                _LOG.exception("retention not readable")
