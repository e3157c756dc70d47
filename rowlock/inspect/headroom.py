"""Check of headroom: how long the log and the topics that capture and apply need, or may need, are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect.open_xa import check_open_xa
from rowlock.inspect.status import Status, StatusReader
from rowlock.views.headroom import (
    NeededLog,
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


def measure_headroom(config: Config, reported: Sequence[Finding]) -> tuple[list[Backlog], list[Finding]]:
    """Return the log of each source and the topic of each unit, even without a backlog, and the findings
    about them. A missing right that is among those `reported` is not found again.

    Returns nothing if Kafka does not answer, which is a finding already (see `list_short_logs`).
    """
    try:
        seen = _read_status(config)
        measured = [*_yield_source_backlogs(config, seen), *_list_unit_backlogs(config, seen)]
    except KafkaUnreachableError:
        return [], []
    found = [each for each in measured if isinstance(each, Backlog)]
    warnings = _omit_reported([each for each in measured if isinstance(each, Finding)], reported)
    return found, warnings + [
        alarm for each in found for alarm in (*each.list_alarms(), *each.list_short_warnings())
    ]


def list_short_logs(config: Config, reported: Sequence[Finding]) -> list[Finding]:
    """Return the warnings about logs of sources that an ordinary outage may outlast. A missing right that is
    among those `reported` is not found again.

    This needs no Kafka, without which the backlogs are not known.
    """
    names = [name for name, each in config.sources.items() if each.events != "debezium"]
    nothing = NeededLog(0.0, None, "capture has not read")
    read = [each for name in names for each in _yield_source_backlog(config, name, nothing)]
    backlogs = [each for each in read if isinstance(each, Backlog)]
    found = _omit_reported([each for each in read if isinstance(each, Finding)], reported)
    return found + [warning for each in backlogs for warning in each.list_short_warnings()]


def _omit_reported(warnings: list[Finding], reported: Sequence[Finding]) -> list[Finding]:
    """Return the warnings without those of a source whose remedy an error of the same source has already: its
    user lacks a right.
    """
    errors = {(each.place, each.remedy) for each in reported if each.level == "error" and each.remedy}
    return [each for each in warnings if (each.place, each.remedy) not in errors]


def _read_status(config: Config) -> Status:
    reader = StatusReader(config, examines_servers=False)
    try:
        return reader.read_status()
    finally:
        reader.close()


def _yield_source_backlogs(config: Config, seen: Status) -> Iterator[Backlog | Finding]:
    for source in seen.sources:
        if source.state in ("external", "finished"):
            continue
        yield from _yield_source_backlog(config, source.name, source.find_needed_log(seen.time_ms))
        yield from check_open_xa(config.sources[source.name], source, seen.time_ms)


def _yield_source_backlog(config: Config, name: str, needed: NeededLog) -> Iterator[Backlog | Finding]:
    """Yield the backlog of a source's capture, or a warning if its retention is not known. Nothing if the
    source does not answer: that is an error of the source's check.
    """
    try:
        yield measure_source_backlog(config.sources[name], name, needed)
    except CommandError as error:
        if not isinstance(error.__cause__, ServerConnectError):
            yield build_unknown_headroom_finding(f"source {name}", error.problem.what, error.problem.action)


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
