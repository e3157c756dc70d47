"""The threads of one pipeline: one runs the core (`decisions`), the others carry out the core's effects.

Every event comes through one queue: instructions, results of operations, reports of workers, Spark's
progress and time. The core's thread never waits for a database, Kafka or Spark.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog

from consumer.process.operations.copy_desk import UnitCopies, send_request
from consumer.process.operations.unit_resources import CHECKERS, FENCERS, LOOKERS, TAKERS
from consumer.process.pipeline_queries import PipelineQueries
from consumer.process.unit_operations import UnitOperations
from consumer.process.unit_problems import UnitProblems
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter, build_unit_name
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.spark.active_units import AttemptLocks
from consumer.spark.pipeline import PipelineSettings
from consumer.units import decisions
from consumer.units.messages import (
    AbortOperation,
    ApplyRange,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    PipelineEffect,
    PipelineEvent,
    PipelineTick,
    PostActiveUnits,
    PrepareTarget,
    PrepareUnit,
    ProbeStopped,
    RemoveUnit,
    ReportEvent,
    SparkUp,
    StartQuery,
    StartUnit,
    StopQuery,
    TakeOver,
)
from consumer.units.progress_checks import needs_fast_polling
from schemas.units import UnitProgress, WorkerEnded

if TYPE_CHECKING:  # imported with Spark, in its thread
    from consumer.process.spark_session import Spark

log = structlog.get_logger(__name__)

EVENT_WAIT_S = 0.1
FAULT_EXIT_CODE = 3
"""Exit code after an error of the program itself."""
FAST_POLL_S = 0.25
SLOW_POLL_S = 1.0
"""Seconds between two polls of Spark's progress: while units are new to their query or catch up, and
otherwise."""


@contextmanager
def fault_ends_process(pipeline: str) -> Iterator[None]:
    """End the process after an error of the program itself.

    The state in memory is uncertain after such an error, so all units end with the process.
    """
    try:
        yield
    except BaseException:
        log.critical("the apply process has a fault", pipeline=pipeline, exc_info=True)
        os._exit(FAULT_EXIT_CODE)


class PipelineShell:
    """The threads and the event queue that run one pipeline's units.

    Instructions may come from any thread, and so may Spark (`provide_spark`). Units are applied directly
    until Spark is up.
    """

    def __init__(self, pipeline: PipelineSettings, lines: LineWriter, times: SourceTimes) -> None:
        self._pipeline = pipeline
        self._lines = lines
        self._status = StatusWriter(pipeline.name, lines)
        self._problems = UnitProblems(pipeline, self._status)
        self._speaker = CheckpointReporter(pipeline.name, lines, times, frozenset(pipeline.debezium))
        self._state = decisions.PipelineState(commit_interval_s=pipeline.commit_every)
        self._events: queue.SimpleQueue[PipelineEvent] = queue.SimpleQueue()
        self._ending, self._leaving = threading.Event(), threading.Event()
        self._closing, self._closed = threading.Lock(), False
        self._curious = False
        pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(pipeline.state_dir / "queries", ignore_errors=True)
        self._attempts = AttemptLocks(str(pipeline.state_dir.resolve() / "attempts"))
        desk = UnitCopies(pipeline, times.get_copy_state, partial(send_request, pipeline.kafka))
        self._operations = UnitOperations(pipeline, self._attempts, times.seed_topic, desk)
        self._queries = PipelineQueries(
            pipeline, self._attempts, self._operations.fetch_bounds, self._status.write_problem, self._ending
        )
        self._takers = ThreadPoolExecutor(TAKERS, f"take {pipeline.name}")
        self._fencers = ThreadPoolExecutor(FENCERS, f"fence {pipeline.name}")
        self._lookers = ThreadPoolExecutor(LOOKERS, f"look {pipeline.name}")
        self._checkers = ThreadPoolExecutor(CHECKERS, f"check {pipeline.name}")
        self._starter = ThreadPoolExecutor(1, f"start {pipeline.name}")
        self._stopper = ThreadPoolExecutor(2, f"stop {pipeline.name}")
        self._threads = [
            threading.Thread(
                target=self._run_guarded, args=(target,), name=f"{what} {pipeline.name}", daemon=True
            )
            for what, target in (
                ("core", self._run_loop),
                ("reports", self._receive_reports),
                ("look", self._watch_progress),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run_guarded(self, target: Callable[[], None]) -> None:
        with fault_ends_process(self._pipeline.name):
            target()

    # -- instructions

    def prepare_unit(self, topic: str, assignment: int, mark: UnitProgress | None) -> None:
        source = self._pipeline.find_source(topic)
        if source is None:
            why = f"{topic} is not a topic of the pipeline {self._pipeline.name}"
            unit = build_unit_name(self._pipeline.name, topic)
            self._lines.report_event(unit, WorkerEnded(assignment, mark, why))
            return
        self._speaker.track_unit(topic, assignment, mark)
        self._events.put(PrepareUnit(topic, source, assignment))

    def start_unit(self, topic: str, assignment: int) -> None:
        self._events.put(StartUnit(topic, assignment))

    def remove_unit(self, topic: str, assignment: int) -> None:
        self._events.put(RemoveUnit(topic, assignment))

    def provide_spark(self, spark: Spark) -> None:
        """Give the shell a Spark session, so that queries can be started."""
        self._queries.spark = spark
        self._events.put(SparkUp())

    def close(self, *, once_without_units: bool = False) -> None:
        """Stop all units, then the queries. Return when nothing of this pipeline can write any more,
        also if another thread closes it.

        `once_without_units`: wait until the last unit has ended instead of stopping units; no new unit
        may arrive.
        """
        if once_without_units:
            self._leaving.set()
            self._threads[0].join()
        self._ending.set()
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._threads[0].join()
            self._queries.close()
            for pool in (
                self._takers, self._fencers, self._lookers, self._checkers, self._starter, self._stopper,
            ):  # fmt: skip
                pool.shutdown(wait=True)
            self._operations.close()
            self._threads[1].join()  # that thread reads from the receiver
            self._queries.close_reports()
            self._attempts.close()

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
        for effect in effects:
            self._execute_effect(effect)
        self._curious = needs_fast_polling(self._state.units.values())
        self._speaker.report_changes(now, self._state.units)
        state = "stopping" if self._ending.is_set() else "running"
        self._status.write_changes(
            now, state, {u.topic: u.watched for u in self._state.units.values() if u.epoch}
        )

    def _execute_effect(self, effect: PipelineEffect) -> None:
        match effect:
            case PrepareTarget():
                self._submit_work(self._takers, lambda: self._operations.prepare_target(effect))
            case TakeOver():
                self._operations.queue_takeover()
                self._submit_work(self._takers, lambda: self._operations.take_over(effect))
            case ApplyRange():
                self._submit_work(self._takers, lambda: self._operations.apply_range(effect))
            case ProbeStopped():
                self._submit_work(self._lookers, lambda: self._operations.probe_stopped(effect))
            case CheckTable():
                self._submit_work(self._checkers, lambda: self._operations.check_table(effect))
            case LogWaiting():
                self._problems.log_wait(effect)
            case FenceUnit():
                self._submit_work(self._fencers, lambda: self._operations.fence_unit(effect))
            case AbortOperation(topic, assignment):
                self._operations.abort_operation(topic, assignment)
            case StartQuery():
                self._submit_work(self._starter, lambda: self._queries.start_query(effect))
            case StopQuery(number):
                if (query := self._queries.take_off_query(number)) is not None:
                    self._stopper.submit(query.stop)
            case PostActiveUnits(number, epochs):
                self._queries.post_active_units(number, epochs)
            case ReportEvent():
                if effect.event is WorkerEnded:
                    self._operations.forget_unit(effect.topic, effect.assignment)
                    self._problems.log_end(effect)
                self._speaker.report_event(effect)

    def _submit_work(self, pool: ThreadPoolExecutor, work: Callable[[], PipelineEvent]) -> None:
        pool.submit(work).add_done_callback(self._queue_result)

    def _queue_result(self, future: Future[PipelineEvent]) -> None:
        """Put the operation's result into the core's queue."""
        with fault_ends_process(self._pipeline.name):
            event = future.result()
            self._problems.log_outcome(event)
            self._events.put(event)

    def _watch_progress(self) -> None:
        """Poll Spark's progress, in a thread of its own because the JVM may be slow."""
        while not self._ending.wait(FAST_POLL_S if self._curious else SLOW_POLL_S):
            for event in self._queries.yield_progress():
                self._events.put(event)

    # -- workers

    def _receive_reports(self) -> None:
        while not self._ending.is_set():
            reports = self._queries.receive_reports(EVENT_WAIT_S)
            for _, report in reports:
                self._problems.report_displaced_rows(report.topic, report.displaced)
            if reports:
                self._events.put(AttemptsReported(reports))
