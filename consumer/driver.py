"""The apply process of one pipeline: takes units over, runs the query, watches it, starts it anew (design.md §6).

Every start of the query raises the epoch of every unit, takes the offsets from the target's progress and a new
checkpoint folder; whatever an older query or process still does is then fenced in the target. New topics, units that
fell behind, a dead query: always the same way, drain → stop → take over → start, under a second when nothing waits.
"""

from __future__ import annotations

import functools
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from consumer.discovery import Cluster, Selection, select_topics
from consumer.errors import ConsumerError, TransientError
from consumer.lanes import Limits
from consumer.model import Unit
from consumer.progress import start_refusal
from consumer.query import kafka_options, start_query
from consumer.reports import ReportReceiver
from consumer.router import Route
from consumer.status import StatusWriter
from consumer.supervision import Backoff, Watched, left_behind, reported, troubled
from consumer.targets.base import Session
from consumer.targets.dialect import open_session
from consumer.task import run_task
from consumer.unit import UnitSpec, initial_layout
from consumer.worker import TaskConfig
from schemas.config import Config, PipelineConfig, TargetConfig

log = structlog.get_logger(__name__)

LOOK_S = 0.2
"""How often the query is looked at, and the longest wait for a report."""
DISCOVER_S = 1.0
COMPARE_S = 5.0
"""How often progress is compared with Spark's offsets: the net under lost reports, not the way they usually come."""
DRAIN_S = 30.0
"""Longest wait for the batch in flight when the query is stopped."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the driver needs of the configuration."""

    name: str
    config: PipelineConfig
    target: TargetConfig
    bootstrap: str
    prefix: str
    kafka_options: Mapping[str, str]
    state_dir: Path
    slots: int
    routes: tuple[Route, ...] = field(default=())

    @classmethod
    def of(cls, config: Config, name: str, slots: int) -> Pipeline:
        """Raises KeyError when there is no pipeline `name`."""
        pipeline = config.pipelines[name]
        return cls(
            name=name,
            config=pipeline,
            target=config.targets[pipeline.target],
            bootstrap=config.kafka.bootstrap,
            prefix=config.kafka.prefix,
            kafka_options=config.kafka.options,
            state_dir=config.state_dir / "apply" / name,
            slots=slots,
            routes=tuple(Route.of(route) for route in pipeline.routes),
        )

    @property
    def limits(self) -> Limits:
        most = self.config.max_gather
        return Limits() if most is None else Limits(max_gather=most)


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
        self._session: Session | None = None
        self._query: Any = None
        self._drain_file = pipeline.state_dir / "drain"
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
        while not self._stopping():
            now = time.monotonic()
            if self._query is None:
                self._try_start(now)
            else:
                self._look(now)
            self._status.tick(now, self._state, self._units)
        self._stop_query()
        self._drain_file.unlink(missing_ok=True)
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
            self._drop_session()
        log.warning(
            what, pipeline=self._pipeline.name, error=str(error)[:500], again_in_s=self._backoff.pause
        )
        self._status.problem(what, str(error)[:500])

    def _look(self, now: float) -> None:
        """One look at the running query."""
        for report in self._receiver.receive(LOOK_S):
            unit = self._units.get(report.topic)
            if unit is not None:
                facts = {name: getattr(report, name) for name in _FIGURES}
                self._units[report.topic] = reported(unit, **facts)
        if not self._query.isActive:
            self._lost()
        elif behind := troubled(self._units) or self._left_behind(now):
            self._stop_query()
            first = self._units[behind[0]]
            self._trouble("units behind, starting again", f"{behind[:5]}: {first.state} {first.message}")
        elif now >= self._next_discovery:
            self._next_discovery = now + DISCOVER_S
            self._discover_more()

    def _lost(self) -> None:
        error = self._query.exception()
        self._query = None
        text = str(error).strip().splitlines() if error is not None else ["the query ended"]
        self._trouble("the query died, starting again", _cause(text))

    def _left_behind(self, now: float) -> list[str]:
        """Compare with the offsets of a batch that was over at the previous look: its reports had time to arrive."""
        if now < self._next_comparison:
            return []
        self._next_comparison = now + COMPARE_S
        progress = self._query.lastProgress
        checked, self._checked_end = self._checked_end, _end_offsets(progress)
        found = left_behind(self._units, checked)
        return [topic for topic in found if not self._confirmed(topic, checked[topic])]

    def _confirmed(self, topic: str, end: int) -> bool:
        """Read the unit's progress itself: a lost report is no trouble."""
        try:
            rows, state = self._target_session().read(Unit(self._pipeline.name, topic))
        except TransientError:
            self._drop_session()
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
        pipeline = self._pipeline
        found = select_topics(
            self._cluster.topics(),
            prefix=pipeline.prefix,
            sources=pipeline.config.sources,
            routes=pipeline.routes,
        )
        if new := set(found.skipped) - set(self._selection.skipped):
            log.warning("topics without a route are not applied", topics=sorted(new))
        return found

    def _start(self) -> None:
        """Take every unit over and start the query at their progress."""
        self._drain_file.unlink(missing_ok=True)
        self._target_session()
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
        self._query = start_query(
            self._spark,
            name=f"{pipeline.name}-{self._starts}",
            options=kafka_options(pipeline.bootstrap, starting, pipeline.kafka_options, {}),
            task=functools.partial(run_task, self._task_config(specs)),
            slots=pipeline.slots,
            checkpoints=pipeline.state_dir / "checkpoint",
        )
        log.info("query started", pipeline=pipeline.name, units=len(specs), start=self._starts)

    def _task_config(self, specs: Mapping[str, UnitSpec]) -> TaskConfig:
        pipeline = self._pipeline
        return TaskConfig(
            run=f"{pipeline.name}-{self._starts}-{secrets.token_hex(4)}",
            pipeline=pipeline.name,
            target=pipeline.target,
            bootstrap=pipeline.bootstrap,
            kafka_options=dict(pipeline.kafka_options),
            units=specs,
            drain=str(self._drain_file.resolve()),
            report_port=self._receiver.port,
            report_token=self._receiver.token,
        )

    def _target_session(self) -> Session:
        if self._session is None:
            self._session = open_session(self._pipeline.target, name=f"rowlock {self._pipeline.name} driver")
            self._session.ensure_bookkeeping()
        return self._session

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(ConsumerError):
                session.close()

    def _take_over(self, selection: Selection) -> tuple[dict[str, UnitSpec], dict[str, int]]:
        """Return the units to run, and topic → first offset. Units that cannot go on are stopped with a message."""
        topics = sorted(selection.units)
        ids, bounds = self._cluster.topic_ids(topics), self._cluster.bounds(topics)
        specs: dict[str, UnitSpec] = {}
        starting: dict[str, int] = {}
        units: dict[str, Watched] = {}
        for topic in topics:
            if topic not in ids or topic not in bounds:
                continue
            spec, watched = self._take_unit(topic, selection.units[topic], ids[topic], bounds[topic])
            old = self._units.get(topic)
            units[topic] = _carried(watched, old) if old is not None else watched
            if watched.state == "ok":
                specs[topic], starting[topic] = spec, watched.offset + 1
        self._units = units
        return specs, starting

    def _take_unit(
        self, topic: str, source: str, topic_id: str, bounds: tuple[int, int]
    ) -> tuple[UnitSpec, Watched]:
        pipeline, session = self._pipeline, self._target_session()
        unit = Unit(pipeline.name, topic)
        lanes = pipeline.config.lanes
        layout = initial_layout(pipeline.routes, lanes).encode()
        epoch, rows, _ = session.take_over(unit, topic_id, layout, lanes)
        watched = Watched(
            offset=min(row.offset for row in rows), commit_ts_ms=max(row.commit_ts_ms for row in rows)
        )
        if refusal := start_refusal(rows, topic_id, *bounds):
            session.stop_unit(unit, epoch, refusal)
            log.error("unit stopped", topic=topic, reason=refusal)
            self._status.problem(f"unit {topic} stopped", refusal)
            watched = replace(watched, state="stopped", message=refusal)
        spec = UnitSpec(
            unit=unit,
            source=source,
            epoch=epoch,
            topic_id=topic_id,
            routes=pipeline.routes,
            lanes=lanes,
            create_tables=pipeline.config.create_tables,
            replace=pipeline.config.conflicts == "replace",
            limits=pipeline.limits,
        )
        return spec, watched

    def _stop_query(self) -> None:
        """Let the batch in flight end (tasks that see the drain file begin nothing more), then stop the query.

        `query.stop()` alone would cancel the running task in the middle of its transactions.
        """
        query, self._query = self._query, None
        if query is None or not query.isActive:
            return
        self._drain_file.touch()
        try:
            _wait_for_batch(query)
            query.stop()
        except Exception as error:  # noqa: BLE001  # py4j raises what the query died of; it is gone either way
            log.warning("the query died while stopping", error=_cause(str(error).splitlines()))
        for report in self._receiver.receive(0.01):
            if (unit := self._units.get(report.topic)) is not None:
                self._units[report.topic] = reported(
                    unit, **{name: getattr(report, name) for name in _FIGURES}
                )

    def close(self) -> None:
        """Close connections."""
        self._drop_session()
        self._receiver.close()


_FIGURES = ("state", "offset", "applied", "dropped", "held", "commit_ts_ms", "message")


def _carried(unit: Watched, old: Watched) -> Watched:
    """Keep the figures of this process over a restart of the query."""
    return replace(unit, applied=old.applied, dropped=old.dropped, held=old.held)


def _wait_for_batch(query: Any) -> None:
    deadline = time.monotonic() + DRAIN_S
    before = _batch(query)
    while time.monotonic() < deadline and query.isActive:
        if not query.status["isTriggerActive"] or _batch(query) != before:
            return
        time.sleep(0.02)
    log.warning("the batch in flight did not end in time", seconds=DRAIN_S)


def _batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _end_offsets(progress: Any) -> dict[str, int]:
    """Return topic → next offset behind the last finished batch."""
    if progress is None:
        return {}
    ends: dict[str, int] = {}
    for source in progress["sources"]:
        offsets = source["endOffset"]
        if isinstance(offsets, str):
            offsets = json.loads(offsets)
        ends |= {topic: parts["0"] for topic, parts in (offsets or {}).items()}
    return ends


def _cause(lines: list[str]) -> str:
    """Return the last line of a Java or Python trace that says something."""
    said = [line.strip() for line in lines if line.strip() and not line.strip().startswith(("at ", "..."))]
    errors = [line for line in said if "Error" in line or "Exception" in line]
    return (errors or said or ["unknown"])[-1][:400]
