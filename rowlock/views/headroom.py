"""Headroom: how much longer the backlog of capture or apply is kept, read from the sources and Kafka for
`status` and `check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rowlock.views.kafka import KafkaView
from rowlock.views.retention import Backlog, RetentionLimits
from rowlock.views.source import has_view, read_source_log, source_view
from rowlock.views.topic_settings import TopicSettings
from schemas.config.model import SourceConfig
from schemas.findings import Finding

RETENTION_CHECK_AGE_S = 600.0
"""`status` reads the retention of a source's log once its backlog is this many seconds old: before that, no
sensible setting deletes it.
"""
TOPIC_CHECK_AGE_S = 60.0
"""The same for a topic, which anyone may alter: brokers delete records every five minutes."""


class UnappliedPart(NamedTuple):
    """The part of a topic that a pipeline has not applied: from offset `first` on; None: it has applied
    all.
    """

    topic: str
    pipeline: str
    first: int | None


class NeededLog(NamedTuple):
    """The oldest part of a source's log that capture needs: its age in seconds, its "file:pos", and why."""

    age_s: float
    at: str | None
    reader: str


def measure_source_backlog(source: SourceConfig, name: str, needed: NeededLog) -> Backlog:
    """Return the backlog of capture. Queries the server. Raises CommandError."""
    if has_view(source):
        with source_view(source, name) as view:
            rows = view.log_rows()
        kept = RetentionLimits(None, "capture alone deletes from it")
        return Backlog(f"source {name}", "its log", kept, needed.age_s, needed.reader, None, rows)
    log = read_source_log(source, name)
    size = log.count_bytes_from((needed.at or "").rpartition(":")[0])
    return Backlog(f"source {name}", "its log", log.kept, needed.age_s, needed.reader, size)


def measure_topic_backlogs(
    kafka: KafkaView, settings: TopicSettings, parts: Iterable[UnappliedPart], now_ms: int
) -> Iterator[Backlog | Finding]:
    """Yield each backlog with its retention, or a warning if that is not known. Raises
    KafkaUnreachableError.
    """
    parts = list(parts)
    kept = settings.read_retention(dict.fromkeys(each.topic for each in parts))
    for each in parts:
        if each.topic not in kept:
            yield build_unknown_headroom_finding(
                f"topic {each.topic}",
                "Kafka does not show its settings",
                "allow the user to describe the settings of topics (DescribeConfigs)",
            )
            continue
        produced = now_ms if each.first is None else kafka.read_produced_ms(each.topic, each.first)
        if produced is None:
            yield build_unknown_headroom_finding(
                f"topic {each.topic}", f"its event at offset {each.first} cannot be read", "ask again"
            )
            continue
        age_s = max(0.0, (now_ms - produced) / 1000)
        who = f"pipeline {each.pipeline} has not applied"
        yield Backlog(f"topic {each.topic}", "it", kept[each.topic], age_s, who, None)


def build_unknown_headroom_finding(place: str, seen: str, remedy: str) -> Finding:
    return Finding(
        "warning", place, f"how long is kept what is still needed there is not known: {seen}", remedy
    )
