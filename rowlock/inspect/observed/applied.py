"""The applied positions of units, read from targets and Kafka. They are judged in
rowlock/inspect/status.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

from consumer.ordering.model import ApplyUnit, LaneProgress, UnitState
from consumer.ordering.progress import find_lost_offsets
from consumer.slots.pipeline import build_pipeline_routes
from consumer.tables.router import resolve_route
from consumer.tables.stored import decode_stored, read_debt
from consumer.targets.base import EventTables, UnitTarget
from rowlock.coordinator.units import ApplyUnitName
from rowlock.errors import CommandError
from rowlock.inspect.topics.outdated import explain_outdated, explain_rewrite
from rowlock.views.headroom import TOPIC_CHECK_AGE_S, UnappliedPart, measure_topic_backlogs
from rowlock.views.kafka import KafkaView, OffsetSpan
from rowlock.views.target import read_known_topics, read_unit_progress, target_session
from rowlock.views.topic_settings import TopicSettings
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.wire.copies import RemovedRows


@dataclass(frozen=True, slots=True)
class AppliedUnit:
    """The readings of one unit."""

    name: ApplyUnitName
    slowest: LaneProgress | None
    """The lane with the lowest offset; None: nothing was ever applied."""
    state: UnitState | None
    span: OffsetSpan
    quarantined: int
    """Events in the target's quarantine."""
    has_lost_events: bool = False
    """Whether the topic is not the one of the progress, or ends before it: offsets cannot be compared."""
    quarantined_rows: int = 0
    """Rows, by their keys, to which these events belong."""
    displaced: int = 0
    """Displaced rows in the target."""
    options: tuple[str, ...] = ()
    """The options of the route that have changed for rows in a topic of the target."""
    outdated: tuple[str, str] | None = None
    """(state, remedy) of rows in a topic of the target that were written by an earlier route."""
    age_s: float | None = None
    """The age of the oldest event that is not applied; None: there is none, or its time is not known."""
    headroom_s: float | None = None
    """For how long that event is still kept; None: not read, or not known."""
    alarms: tuple[Finding, ...] = ()
    """Warnings about that."""

    @property
    def debt(self) -> RemovedRows | None:
        """Rows that statements have removed at the source and that the target may still have."""
        text = self.state.definition if self.state else None
        return read_debt(text) if text else None

    @property
    def offset(self) -> int:
        """The offset up to which all is applied; -1: none."""
        return self.slowest.offset if self.slowest else -1

    @property
    def late(self) -> int | None:
        """The number of offsets that are not applied; None: not known, because the topic has lost events."""
        return None if self.has_lost_events else count_lag(self.offset, self.span)


def count_lag(offset: int, span: OffsetSpan) -> int:
    """Return how many offsets of a topic are not applied, given the highest applied offset of its
    slowest lane.
    """
    return max(0, span.high - max(offset + 1, span.low))


class AppliedReader:
    """Reads targets one after the other, each over a connection of its own."""

    def __init__(self, config: Config, kafka: KafkaView, settings: TopicSettings) -> None:
        self._config, self._kafka, self._settings = config, kafka, settings

    def read_units(self, target: str, names: Iterable[ApplyUnitName], now_ms: int) -> list[AppliedUnit]:
        """Return the readings of one target's units. Raises CommandError that names the server that does
        not answer.
        """
        units = list(names)
        ids = self._settings.read_ids({unit.topic for unit in units})
        with target_session(self._config.targets[target], target, "status") as session:
            known = {name: read_known_topics(session, name) for name in {unit.pipeline for unit in units}}
            displaced = {name: session.count_displaced_rows(name) for name, topics in known.items() if topics}
            found = [
                self._read_unit(session, unit, known[unit.pipeline], ids.get(unit.topic, ""), now_ms)
                for unit in units
            ]
            return [
                replace(each, displaced=displaced.get(each.name.pipeline, {}).get(each.name.topic, 0))
                for each in found
            ]

    def list_topics(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return (target, topic) of each unit that targets have, whether or not Kafka has its topic; and the
        problems of targets that do not answer.
        """
        found: list[tuple[str, str]] = []
        problems: list[str] = []
        for target in sorted({options.target for options in self._config.pipelines.values()}):
            pipelines = [n for n, each in self._config.pipelines.items() if each.target == target]
            try:
                with target_session(self._config.targets[target], target, "status") as session:
                    for pipeline in pipelines:
                        found += ((target, topic) for topic in sorted(read_known_topics(session, pipeline)))
            except CommandError as error:
                problems.append(str(error))
        return found, problems

    def _read_unit(
        self, session: UnitTarget, name: ApplyUnitName, known: set[str], topic_id: str, now_ms: int
    ) -> AppliedUnit:
        lanes, state = read_unit_progress(session, known, unit := ApplyUnit(name.pipeline, name.topic))
        slowest = min(lanes, key=lambda lane: lane.offset, default=None)
        held = session.read_quarantine(unit) if name.topic in known else []
        rows = len({(each.table, each.folded) for each in held})
        span = self._kafka.read_span(name.topic)  # after the progress, so that it is not lower
        lost = bool(lanes) and find_lost_offsets(lanes, topic_id or lanes[0].topic_id, span.high) is not None
        found = self._with_topic(session, AppliedUnit(name, slowest, state, span, len(held), lost, rows))
        if not found.late:
            return found
        first = max(found.offset + 1, found.span.low)
        found = replace(found, age_s=self._read_age_s(name, first, now_ms))
        return (
            self._with_headroom(found, first, now_ms)
            if found.age_s is None or found.age_s >= TOPIC_CHECK_AGE_S
            else found
        )

    def _with_topic(self, session: UnitTarget, unit: AppliedUnit) -> AppliedUnit:
        """Add the state of a unit's rows in a topic of the target."""
        options, definition = self._config.pipelines[unit.name.pipeline], unit.state and unit.state.definition
        if not definition or not find_target_kind(self._config.targets[unit.name.target].type).events:
            return unit
        table = decode_stored(definition).table
        routed = resolve_route(
            build_pipeline_routes(self._config, options), unit.name.source, table.db, table.name
        )
        if routed is None or routed.topic is None:
            return unit
        place = ApplyUnit(unit.name.pipeline, unit.name.topic)
        changed = cast(EventTables, session).find_outdated_options(place, routed.topic)
        if not changed:
            return unit
        debezium = self._config.sources[unit.name.source].events == "debezium"
        outdated = explain_outdated(changed), explain_rewrite(table.db, table.name, debezium=debezium)
        return replace(unit, options=changed, outdated=outdated)

    def _with_headroom(self, unit: AppliedUnit, first: int, now_ms: int) -> AppliedUnit:
        parts = [UnappliedPart(unit.name.topic, unit.name.pipeline, first)]
        (measured,) = measure_topic_backlogs(self._kafka, self._settings, parts, now_ms)
        if isinstance(measured, Finding):
            return replace(unit, alarms=(measured,))
        return replace(unit, headroom_s=measured.headroom_s, alarms=tuple(measured.list_alarms()))

    def _read_age_s(self, unit: ApplyUnitName, offset: int, now_ms: int) -> float | None:
        """Return the age of the event at `offset`, by its commit time at the source."""
        if self._config.sources[unit.source].events == "debezium":
            committed = self._kafka.read_debezium_commit_ms(unit.topic, offset)
        else:
            event = self._kafka.read_event(unit.topic, offset)
            committed = None if event is None else event.source.ts_ms
        return None if committed is None else round(max(0.0, (now_ms - committed) / 1000), 3)
