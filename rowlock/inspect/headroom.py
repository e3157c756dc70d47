"""Check of headroom: how long the log and the topics that capture and apply still need, or may need, are kept."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect.status import Status, StatusReader
from rowlock.views.headroom import Unapplied, of_source, of_topics, unasked
from rowlock.views.kafka import KafkaView
from rowlock.views.retention import Backlog
from rowlock.views.topic_settings import TopicSettings
from schemas.config.model import Config
from schemas.errors import ServerConnectError
from schemas.findings import Finding, seen_and_remedy


def headroom(config: Config) -> tuple[list[Backlog], list[Finding]]:
    """Return the log of each source and the topic of each unit, also where nothing of it is needed now, and what there is to say of
    them; nothing where Kafka does not answer, which is a finding already."""
    try:
        seen = _status(config)
        told = [*_of_sources(config, seen), *_of_units(config, seen)]
    except KafkaUnreachableError:
        return [], []
    found = [each for each in told if isinstance(each, Backlog)]
    warnings = [each for each in told if isinstance(each, Finding)]
    return found, warnings + [said for each in found for said in (*each.alarms(), *each.short())]


def _status(config: Config) -> Status:
    reader = StatusReader(config)
    try:
        return reader.read()
    finally:
        reader.close()


def _of_sources(config: Config, seen: Status) -> Iterator[Backlog | Finding]:
    for source in seen.sources:
        if source.state in ("external", "finished"):
            continue
        try:
            yield of_source(
                config.sources[source.name], source.name, source.lag_seconds or 0.0, source.position
            )
        except CommandError as error:
            if isinstance(error.__cause__, ServerConnectError):
                continue  # it does not answer, which is a finding already
            yield unasked(f"source {source.name}", *seen_and_remedy(str(error)))


def _of_units(config: Config, seen: Status) -> list[Backlog | Finding]:
    kafka = KafkaView(config.kafka)
    try:
        wanted = []
        for unit in seen.units:
            if unit.offset is not None:  # else its target does not answer
                first = max(unit.offset + 1, kafka.span(unit.topic).low) if unit.lag_events else None
                wanted.append(Unapplied(unit.topic, unit.pipeline, first))
        return list(of_topics(kafka, TopicSettings(config.kafka), wanted, seen.time_ms))
    finally:
        kafka.close()
