"""Check of headroom: how long the log and the topics that capture and apply need, or may need, are kept."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect.status import Status, StatusReader
from rowlock.views.headroom import (
    UnappliedPart,
    build_unknown_headroom_finding,
    measure_source_backlog,
    measure_topic_backlogs,
)
from rowlock.views.kafka import KafkaView
from rowlock.views.retention import Backlog
from rowlock.views.topic_settings import TopicSettings
from schemas.config.model import Config
from schemas.errors import ServerConnectError
from schemas.findings import Finding


def measure_headroom(config: Config) -> tuple[list[Backlog], list[Finding]]:
    """Return the log of each source and the topic of each unit, even without a backlog, and the findings
    about them.

    Returns nothing if Kafka does not answer, which is a finding already.
    """
    try:
        seen = _read_status(config)
        measured = [*_yield_source_backlogs(config, seen), *_list_unit_backlogs(config, seen)]
    except KafkaUnreachableError:
        return [], []
    found = [each for each in measured if isinstance(each, Backlog)]
    warnings = [each for each in measured if isinstance(each, Finding)]
    return found, warnings + [
        alarm for each in found for alarm in (*each.list_alarms(), *each.list_short_warnings())
    ]


def _read_status(config: Config) -> Status:
    reader = StatusReader(config, finds_lost_sources=False)  # `check` finds them itself
    try:
        return reader.read_status()
    finally:
        reader.close()


def _yield_source_backlogs(config: Config, seen: Status) -> Iterator[Backlog | Finding]:
    for source in seen.sources:
        if source.state in ("external", "finished"):
            continue
        try:
            yield measure_source_backlog(
                config.sources[source.name], source.name, source.lag_seconds or 0.0, source.position
            )
        except CommandError as error:
            if isinstance(error.__cause__, ServerConnectError):
                continue  # it does not answer, which is a finding already
            yield build_unknown_headroom_finding(
                f"source {source.name}", error.problem.what, error.problem.action
            )


def _list_unit_backlogs(config: Config, seen: Status) -> list[Backlog | Finding]:
    kafka = KafkaView(config.kafka)
    try:
        parts = []
        for unit in seen.units:
            if unit.offset is not None:  # otherwise its target does not answer
                first = max(unit.offset + 1, kafka.read_span(unit.topic).low) if unit.lag_events else None
                parts.append(UnappliedPart(unit.topic, unit.pipeline, first))
        return list(measure_topic_backlogs(kafka, TopicSettings(config.kafka), parts, seen.time_ms))
    finally:
        kafka.close()
