"""The threads of one pipeline: one runs the core (`decisions`), the others wait for what happens.

Every event comes through one queue: instructions, results of operations, reports of workers, Spark's
progress and time. The core's thread never waits for a database, Kafka or Spark.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from consumer.process.effect_runner import EffectRunner, fault_ends_process
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.spark.pipeline import PipelineSettings
from consumer.units import decisions
from consumer.units.messages import (
    AttemptsReported,
    PipelineEvent,
    PipelineTick,
    PrepareUnit,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    SparkUp,
    StartUnit,
)
from consumer.units.progress_checks import needs_fast_polling
from schemas.config.model import TargetConfig
from schemas.units import UnitProgress, WorkerEnded

if TYPE_CHECKING:  # imported with Spark, in its thread
    from consumer.process.spark_session import Spark

EVENT_WAIT_S = 0.1
FAST_POLL_S = 0.25
SLOW_POLL_S = 1.0
"""Seconds between two polls of Spark's progress: while units are new to their query or catch up, and
otherwise."""


class PipelineShell:
    """The threads and the event queue that run one pipeline's units.

    Instructions may come from any thread, and so may Spark (`provide_spark`). Units are applied directly
    until Spark is up.
    """

    def __init__(self, pipeline: PipelineSettings, lines: LineWriter, times: SourceTimes) -> None:
        self._pipeline = pipeline
        self._status = StatusWriter(pipeline.name, lines)
        self._reporter = CheckpointReporter(pipeline.name, lines, times, frozenset(pipeline.debezium))
        self._state = decisions.PipelineState(commit_interval_s=pipeline.commit_every)
        self._events: queue.SimpleQueue[PipelineEvent] = queue.SimpleQueue()
        self._ending, self._leaving = threading.Event(), threading.Event()
        self._closing, self._closed = threading.Lock(), False
        self._effects = EffectRunner(
            pipeline, self._status, self._reporter, times, put_event=self._events.put, ending=self._ending
        )
        self._threads = {
            what: threading.Thread(
                target=self._run_guarded, args=(target,), name=f"{what} {pipeline.name}", daemon=True
            )
            for what, target in (
                ("core", self._run_loop),
                ("reports", self._receive_reports),
                ("look", self._watch_progress),
            )
        }

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def _run_guarded(self, target: Callable[[], None]) -> None:
        with fault_ends_process(self._pipeline.name):
            target()

    # -- instructions

    def prepare_unit(self, topic: str, assignment: int, mark: UnitProgress | None) -> None:
        self._reporter.track_unit(topic, assignment, mark)
        source = self._pipeline.find_source(topic)
        if source is None:
            why = f"{topic} is not a topic of the pipeline {self._pipeline.name}"
            self._reporter.report_event(ReportEvent(topic, "", assignment, WorkerEnded, error=why))
            return
        self._events.put(PrepareUnit(topic, source, assignment))

    def start_unit(self, topic: str, assignment: int) -> None:
        self._events.put(StartUnit(topic, assignment))

    def remove_unit(self, topic: str, assignment: int) -> None:
        self._events.put(RemoveUnit(topic, assignment))

    def provide_spark(self, spark: Spark) -> None:
        """Give the shell a Spark session, so that queries can be started."""
        self._effects.provide_spark(spark)
        self._events.put(SparkUp())

    def replace_secrets(self, target: TargetConfig) -> None:
        """End the units that do not apply, now or later: another shell has the new secrets of `target`."""
        self._effects.use_target(target)  # with the earlier ones no unit could be fenced
        self._events.put(SecretsReplaced())

    def close(self, *, once_without_units: bool = False) -> None:
        """Stop all units, then the queries. Return when nothing of this pipeline can write any more,
        also if another thread closes it.

        `once_without_units`: wait until the last unit has ended instead of stopping units; no new unit
        may arrive.
        """
        if once_without_units:
            self._leaving.set()
            self._threads["core"].join()
        self._ending.set()
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._threads["core"].join()
            self._threads["reports"].join()
            self._effects.close()

    # -- the core's thread

    def _run_loop(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=EVENT_WAIT_S)
            except queue.Empty:
                event = PipelineTick()
            self._handle_event(event)
            if self._leaving.is_set() and not self._state.units and self._events.empty():
                return
            if self._ending.is_set():
                if not self._state.units:
                    return
                for unit in list(self._state.units.values()):
                    if not unit.stop_requested:
                        self._handle_event(RemoveUnit(unit.topic, unit.assignment))

    def _handle_event(self, event: PipelineEvent) -> None:
        now = time.monotonic()
        self._state, effects = decisions.step_pipeline(self._state, event, now)
        state = "stopping" if self._ending.is_set() else "running"
        self._status.write_changes(
            now, state, {u.topic: u.watched for u in self._state.units.values() if u.epoch}
        )  # before the end of a unit is reported
        for effect in effects:
            self._effects.run_effect(effect)
        self._reporter.report_changes(now, self._state.units)

    # -- the other threads

    def _watch_progress(self) -> None:
        """Poll Spark's progress, in a thread of its own because the JVM may be slow."""
        while not self._ending.wait(self._choose_poll_pause()):
            for event in self._effects.yield_progress():
                self._events.put(event)

    def _choose_poll_pause(self) -> float:
        units = list(self._state.units.values())  # a copy: the core's thread changes the dictionary
        return FAST_POLL_S if needs_fast_polling(units) else SLOW_POLL_S

    def _receive_reports(self) -> None:
        while not self._ending.is_set():
            if reports := self._effects.receive_reports(EVENT_WAIT_S):
                self._events.put(AttemptsReported(reports))
