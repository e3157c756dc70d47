"""The apply process of one pipeline: takes units over, runs the query, watches it, starts it anew (design.md §6).

Every start of the query raises the epoch of every unit, takes the offsets from the target's progress and a new
checkpoint folder; whatever an older query or process still does is then fenced in the target. New topics, units that
fell behind, a dead query: always the same way, drain → stop → take over → start, under a second when nothing waits.
Where a coordinator gives the units, consumer.assigned does this instead, with the same parts.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from consumer.discovery import Cluster, Selection, partitions_refusal
from consumer.errors import ConsumerError, TransientError
from consumer.model import Unit
from consumer.pipeline import Pipeline
from consumer.reports import Report, ReportReceiver
from consumer.running import RunningQuery
from consumer.status import StatusWriter
from consumer.supervision import FIGURES, Backoff, Watched, drift, left_behind, reported, troubled
from consumer.taking import TargetConnection, define_unit, take_unit
from consumer.unit import UnitSpec
from consumer.worker import SessionCache, TaskConfig

log = structlog.get_logger(__name__)

LOOK_S = 0.2
"""How often the query is looked at, and the longest wait for a report."""
DISCOVER_S = 1.0
COMPARE_S = 5.0
"""How often progress is compared with Spark's offsets: the net under lost reports, not the way they usually come."""


class Driver:
    """Runs one pipeline until told to stop. `spark`: a SparkSession. `stopping`: asked between all steps."""

    def __init__(
        self, pipeline: Pipeline, spark: Any, status: StatusWriter, stopping: Callable[[], bool]
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._status = status
        self._stopping = stopping
        self._cluster = Cluster(pipeline.bootstrap, pipeline.kafka_options)
        self._receiver = ReportReceiver()
        self._target = TargetConnection(pipeline, "driver")
        self._query: RunningQuery | None = None
        self._backoff = Backoff()
        self._selection = Selection(units={}, watermarks=(), skipped=())
        self._units: dict[str, Watched] = {}
        self._starts = 0
        self._checked_end: dict[str, int] = {}
        self._next_discovery = 0.0
        self._next_comparison = 0.0

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Apply until `stopping()`; then let the batch in flight end."""
        self._pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._pipeline.state_dir / "queries", ignore_errors=True)
        while not self._stopping():
            now = time.monotonic()
            if self._query is None:
                self._try_start(now)
            else:
                self._look(now, self._query)
            self._status.tick(now, self._state, self._units)
        self._stop_query()
        self._status.write(self._state, self._units)

    @property
    def _state(self) -> str:
        if self._stopping():
            return "stopping"
        return "running" if self._query is not None else "starting"

    def _try_start(self, now: float) -> None:
        if not self._backoff.due(now):
            time.sleep(min(LOOK_S, max(0.0, self._backoff.next_at - now)))
            return
        try:
            self._start()
        except (ConsumerError, OSError) as error:
            self._trouble("the query cannot start", error)

    def _trouble(self, what: str, error: object) -> None:
        self._backoff = self._backoff.after_trouble(time.monotonic())
        if isinstance(error, TransientError):
            self._target.drop()
        log.warning(
            what, pipeline=self._pipeline.name, error=str(error)[:500], again_in_s=self._backoff.pause
        )
        self._status.problem(what, str(error)[:500])

    def _look(self, now: float, query: RunningQuery) -> None:
        """One look at the running query."""
        self._note(self._receiver.receive(LOOK_S))
        if not query.active:
            self._query = None
            self._trouble("the query died, starting again", query.cause())
        elif behind := troubled(self._units) or self._left_behind(now, query):
            self._stop_query()
            first = self._units[behind[0]]
            self._trouble("units behind, starting again", f"{behind[:5]}: {first.state} {first.message}")
        elif now >= self._next_discovery:
            self._next_discovery = now + DISCOVER_S
            self._discover_more()

    def _note(self, reports: list[Report]) -> None:
        for report in reports:
            unit = self._units.get(report.topic)
            if unit is not None:
                facts = {name: getattr(report, name) for name in FIGURES}
                self._units[report.topic] = reported(unit, **facts)
            if report.displaced:
                self._status.problem(*drift(report.topic, report.displaced))

    def _left_behind(self, now: float, query: RunningQuery) -> list[str]:
        """Compare with the offsets of a batch that was over at the previous look: its reports had time to arrive."""
        if now < self._next_comparison:
            return []
        self._next_comparison = now + COMPARE_S
        checked, self._checked_end = self._checked_end, query.ends()
        found = left_behind(self._units, checked)
        return [topic for topic in found if not self._confirmed(topic, checked[topic])]

    def _confirmed(self, topic: str, end: int) -> bool:
        """Read the unit's progress itself: a lost report is no trouble."""
        try:
            rows, state = self._target.session.read(Unit(self._pipeline.name, topic))
        except TransientError:
            self._target.drop()
            return False
        offset = min((row.offset for row in rows), default=-1)
        stopped = state.stopped if state is not None else None
        unit = replace(self._units[topic], offset=offset)
        self._units[topic] = replace(unit, state="stopped", message=stopped) if stopped else unit
        return bool(stopped) or offset + 1 >= end

    def _discover_more(self) -> None:
        try:
            found = self._select()
        except TransientError as error:
            log.warning("topics cannot be listed", error=str(error))
            return
        if new := sorted(found.units.keys() - self._selection.units.keys()):
            log.info("new topics", topics=new[:20])
            self._stop_query()

    # -- start and stop ------------------------------------------------------------------------------------------

    def _select(self) -> Selection:
        found = self._pipeline.select(self._cluster.topics())
        if new := set(found.skipped) - set(self._selection.skipped):
            log.warning("topics without a route are not applied", topics=sorted(new))
        return found

    def _start(self) -> None:
        """Take every unit over and start the query at their progress."""
        _ = self._target.session
        selection = self._select()
        specs, starting = self._take_over(selection)
        self._selection = selection
        self._next_discovery = time.monotonic() + DISCOVER_S
        # The watermarks alone, only while there is nothing to apply: a record a second and source would be a batch a
        # second, for which live events then wait, and most of what an idle query costs.
        starting = starting or dict.fromkeys(selection.watermarks, -1)
        if not starting:
            self._status.waiting("no topics yet")
            time.sleep(LOOK_S)
            return
        self._starts += 1
        self._checked_end = {}
        pipeline = self._pipeline
        epochs = {topic: spec.epoch for topic, spec in specs.items()}
        config = self._task_config(specs)
        self._query = RunningQuery(
            self._spark, pipeline, config, starting, epochs=epochs, slots=pipeline.slots
        )
        log.info("query started", pipeline=pipeline.name, units=len(specs), start=self._starts)

    def _task_config(self, specs: Mapping[str, UnitSpec]) -> TaskConfig:
        query = f"{self._pipeline.name}-{self._starts}"
        return self._pipeline.task_config(
            f"{query}-{secrets.token_hex(4)}", query, specs, self._receiver.port, self._receiver.token
        )

    def _take_over(self, selection: Selection) -> tuple[dict[str, UnitSpec], dict[str, int]]:
        """Return the units to run, and topic → first offset. Units that cannot go on are stopped with a message."""
        topics = sorted(selection.units)
        described, bounds = self._cluster.described(topics), self._cluster.bounds(topics)
        specs: dict[str, UnitSpec] = {}
        starting: dict[str, int] = {}
        units: dict[str, Watched] = {}
        for topic in topics:
            if topic not in described or topic not in bounds:
                continue
            source, topic_id = selection.units[topic], described[topic].id
            refusal = partitions_refusal(
                topic, described[topic].partitions, debezium=source in self._pipeline.debezium
            )
            if refusal is not None:
                self._status.problem(f"unit {topic} stopped", refusal)
                units[topic] = Watched(offset=-1, state="stopped", message=refusal)
                continue
            epoch, watched = self._take_unit(topic, source, topic_id, bounds[topic])
            old = self._units.get(topic)
            units[topic] = _carried(watched, old) if old is not None else watched
            if watched.state == "ok":
                specs[topic] = self._pipeline.spec(topic, source, epoch=epoch, topic_id=topic_id)
                starting[topic] = watched.offset + 1
        self._units = units
        return specs, starting

    def _take_unit(
        self, topic: str, source: str, topic_id: str, bounds: tuple[int, int]
    ) -> tuple[int, Watched]:
        taken = take_unit(self._target.session, self._pipeline, topic, topic_id, bounds)
        refusal = taken.refusal
        if refusal is None and taken.definition is None and source in self._pipeline.debezium:
            refusal = self._define(self._pipeline.spec(topic, source, epoch=taken.epoch, topic_id=topic_id))
        watched = Watched(offset=taken.lowest.offset, commit_ts_ms=taken.commit_ts_ms)
        if refusal is not None:
            self._status.problem(f"unit {topic} stopped", refusal)
            watched = replace(watched, state="stopped", message=refusal)
        return taken.epoch, watched

    def _define(self, spec: UnitSpec) -> str | None:
        """Return why the unit cannot go on; see define_unit. Its connections are made for it, as it is done once."""
        sessions = SessionCache(self._pipeline.target, f"rowlock {self._pipeline.name} definition")
        try:
            return define_unit(self._pipeline, spec, sessions)
        finally:
            sessions.close()

    def _stop_query(self) -> None:
        query, self._query = self._query, None
        if query is not None:
            query.stop()
            self._note(self._receiver.receive(0.01))

    def close(self) -> None:
        """Close connections."""
        self._target.drop()
        self._receiver.close()


def _carried(unit: Watched, old: Watched) -> Watched:
    """Keep the figures of this process over a restart of the query."""
    return replace(unit, applied=old.applied, dropped=old.dropped, held=old.held, displaced=old.displaced)
