"""`rowlock status`: how far capture and apply are, read from Kafka's watermarks and the targets' progress rows.

Lag never lies by silence: a source whose watermarks have stopped is `silent` (capture is dead), one with nothing to do is
`idle`. A unit's lag in seconds is the age of the oldest event it has not applied; when there is none, how far capture is
behind. The JSON is a contract (docs/reference/cli.md): fields are added, never renamed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from consumer.model import Unit
from rowlock.errors import CommandError
from rowlock.kafka_view import KafkaView, Span
from rowlock.target_view import View, known_topics, progress, target_session
from rowlock.units import UnitName, split_refusal, units
from schemas.config import Config
from schemas.records import Watermark

VERSION = 1
SILENT_S = 10.0
"""Capture writes a watermark a second; without one for this long it counts as dead."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """state: running | idle | silent | stopped | new (never captured) | external (Debezium captures it: nothing else is known)."""

    name: str
    state: str
    position: str | None = None
    captured_to_ms: int | None = None
    lag_seconds: float | None = None
    watermark_age_seconds: float | None = None
    snapshot_pending: tuple[str, ...] = ()
    events: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """state: current | behind | stopped | new (never applied) | unknown (the target does not answer)."""

    pipeline: str
    source: str
    topic: str
    target: str
    state: str
    position: tuple[int, int, int, int] | None = None
    offset: int | None = None
    end_offset: int | None = None
    lag_events: int | None = None
    lag_seconds: float | None = None
    epoch: int | None = None
    quarantined: int = 0
    displaced: int = 0
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    version: int
    time_ms: int
    sources: tuple[SourceStatus, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    problems: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return asdict(self)


def source_status(name: str, seen: Watermark | None, now_ms: int) -> SourceStatus:
    """Judge a source by its last watermark. Pure."""
    if seen is None:
        return SourceStatus(name, "new")
    age = max(0.0, (now_ms - seen.ts_ms) / 1000)
    state = "idle" if seen.idle else "running"
    if age > SILENT_S:
        state = "silent"
    elif seen.error:
        state = "stopped"
    return SourceStatus(
        name=name,
        state=state,
        position=f"{seen.file}:{seen.position[2]}",
        captured_to_ms=seen.commit_ts_ms,
        # An idle source's watermark speaks of the moment it was written; what came since is at most its age.
        lag_seconds=round(max(0.0, age if seen.idle else (now_ms - seen.commit_ts_ms) / 1000), 3),
        watermark_age_seconds=round(age, 3),
        snapshot_pending=seen.snapshot_pending,
        events=seen.events,
        error=seen.error,
    )


def lag(offset: int, span: Span) -> int:
    """Return how many offsets of a topic are not applied, given the highest applied one of its slowest lane."""
    return max(0, span.high - max(offset + 1, span.low))


class StatusReader:
    """Reads the status again and again (`--watch`), over one Kafka client."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._kafka = KafkaView(config.kafka)

    def close(self) -> None:
        self._kafka.close()

    def read(self) -> Status:
        """Raises KafkaUnreachableError; a target that does not answer becomes a problem of the status."""
        now_ms = int(time.time() * 1000)
        sources = {name: self._source(name, now_ms) for name in self._config.sources}
        found: list[UnitStatus] = []
        partitions = self._kafka.partitions()
        wanted = units(self._config, partitions)
        problems = self._split_topics(wanted, partitions)
        for target in sorted({unit.target for unit in wanted}):
            mine = [unit for unit in wanted if unit.target == target]
            try:
                found += self._units(target, mine, sources, now_ms)
            except CommandError as error:
                problems.append(str(error))
                found += [
                    UnitStatus(unit.pipeline, unit.source, unit.topic, target, "unknown") for unit in mine
                ]
        ordered = tuple(sorted(found, key=lambda unit: (unit.pipeline, unit.topic)))
        return Status(VERSION, now_ms, tuple(sources.values()), ordered, tuple(problems))

    def _source(self, name: str, now_ms: int) -> SourceStatus:
        if self._config.sources[name].events == "debezium":
            return SourceStatus(name, "external")
        return source_status(name, (self._kafka.watermark(name) or (0, None))[1], now_ms)

    def _split_topics(self, wanted: list[UnitName], partitions: Mapping[str, int]) -> list[str]:
        """Return why topics are not applied that have several partitions."""
        refusals = [split_refusal(self._config, unit, partitions[unit.topic]) for unit in wanted]
        return sorted({refusal for refusal in refusals if refusal is not None})

    def _units(
        self, target: str, wanted: list[UnitName], sources: Mapping[str, SourceStatus], now_ms: int
    ) -> list[UnitStatus]:
        with target_session(self._config.targets[target], target, "status") as session:
            known = {name: known_topics(session, name) for name in {unit.pipeline for unit in wanted}}
            displaced = {name: session.displaced(name) for name, topics in known.items() if topics}
            found = [
                self._unit(session, unit, known[unit.pipeline], sources[unit.source], now_ms)
                for unit in wanted
            ]
            return [
                replace(unit, displaced=displaced.get(unit.pipeline, {}).get(unit.topic, 0)) for unit in found
            ]

    def _unit(
        self, session: View, name: UnitName, known: set[str], source: SourceStatus, now_ms: int
    ) -> UnitStatus:
        lanes, state = progress(session, known, unit := Unit(name.pipeline, name.topic))
        span = self._kafka.span(name.topic)
        slowest = min(lanes, key=lambda lane: lane.offset, default=None)
        offset = slowest.offset if slowest else -1
        late = lag(offset, span)
        stopped = state.stopped if state else None
        return UnitStatus(
            pipeline=name.pipeline,
            source=name.source,
            topic=name.topic,
            target=name.target,
            state="stopped" if stopped else "new" if slowest is None else "behind" if late else "current",
            position=slowest.position if slowest else None,
            offset=offset,
            end_offset=span.high - 1,
            lag_events=late,
            lag_seconds=self._age(name, max(offset + 1, span.low), now_ms) if late else source.lag_seconds,
            epoch=slowest.epoch if slowest else None,
            quarantined=len(session.held(unit)) if name.topic in known else 0,
            stopped=stopped,
        )

    def _age(self, unit: UnitName, offset: int, now_ms: int) -> float | None:
        """Return the age in seconds of the event at `offset`, by its commit time at the source."""
        if self._config.sources[unit.source].events == "debezium":
            committed = self._kafka.debezium_commit_ms(unit.topic, offset)
        else:
            event = self._kafka.event(unit.topic, offset)
            committed = None if event is None else event.source.ts_ms
        return None if committed is None else round(max(0.0, (now_ms - committed) / 1000), 3)
