"""The thread of one pipeline, which runs the core (`decisions`).

Every event comes through one queue: instructions, results of operations, what slots report, and time. The
core's thread never waits for a database, Kafka or Spark.
"""

from __future__ import annotations

import queue
import threading
import time

from consumer.process.effect_runner import EffectRunner
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.slots.faults import fault_ends_process
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.pool import SlotPool
from consumer.units import decisions
from consumer.units.messages import (
    PipelineEvent,
    PipelineTick,
    PrepareUnit,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    StartUnit,
)
from consumer.units.supervision import WatchedUnit
from schemas.config.model import KafkaConfig, TargetConfig
from schemas.units import UnitProgress, WorkerEnded

EVENT_WAIT_S = 0.1


class PipelineShell:
    """The thread and the event queue that run one pipeline's units. Instructions may come from any thread."""

    def __init__(
        self, pipeline: PipelineSettings, pool: SlotPool, lines: LineWriter, times: SourceTimes
    ) -> None:
        self._pipeline = pipeline
        self._times = times
        self._status = StatusWriter(pipeline.name, lines, self._count_left)
        self._reporter = CheckpointReporter(pipeline.name, lines, times, frozenset(pipeline.debezium))
        self._state = decisions.PipelineState()
        self._events: queue.SimpleQueue[PipelineEvent] = queue.SimpleQueue()
        self._ending, self._leaving = threading.Event(), threading.Event()
        self._closing, self._closed = threading.Lock(), False
        self._effects = EffectRunner(
            pipeline, pool, self._status, self._reporter, times, put_event=self._events.put
        )
        self._thread = threading.Thread(target=self._run_guarded, name=f"core {pipeline.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run_guarded(self) -> None:
        with fault_ends_process(self._pipeline.name):
            self._run_loop()

    def _count_left(self, topic: str, unit: WatchedUnit) -> int | None:
        """Return how many records of the topic are not applied. Watermarks count those of a unit that is
        stopped, too; without them, as of the unit's last attempt.
        """
        source = self._pipeline.find_source(topic)
        if source is None or source in self._pipeline.debezium:
            return unit.left
        found = self._times.count_left(source, topic, unit.offset)
        return unit.left if found is None else found

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

    def use_kafka(self, kafka: KafkaConfig) -> None:
        """Read topics with these settings from now on, which differ in the password alone."""
        self._effects.use_kafka(kafka)

    def replace_secrets(self, target: TargetConfig) -> None:
        """End the units that do not apply, now or later: another shell has the new secrets of `target`."""
        self._effects.use_target(target)  # with the earlier ones no unit could be fenced
        self._events.put(SecretsReplaced())

    def close(self, *, once_without_units: bool = False) -> None:
        """Stop all units. Return when nothing of this pipeline can write any more,
        also if another thread closes it.

        `once_without_units`: wait until the last unit has ended instead of stopping units; no new unit
        may arrive.
        """
        if once_without_units:
            self._leaving.set()
            self._thread.join()
        self._ending.set()
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._thread.join()
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
                    self._handle_event(RemoveUnit(unit.ref.topic, unit.ref.assignment))

    def _handle_event(self, event: PipelineEvent) -> None:
        now = time.monotonic()
        self._state, effects = decisions.step_pipeline(self._state, event, now)
        self._status.write_changes(
            now, {topic: u.watched for topic, u in self._state.units.items() if u.epoch}
        )  # before the end of a unit is reported
        for effect in effects:
            self._effects.run_effect(effect)
        self._reporter.report_changes(now, self._state.units)
