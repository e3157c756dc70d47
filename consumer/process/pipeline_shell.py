"""One pipeline's assigned units at work: a thread that runs the core, and the threads that do what it asks for.

Everything that happens comes through one queue: instructions, what hands, workers and Spark say, and time. Nothing in
the core's thread waits for a database, Kafka or Spark.
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
from consumer.process.operations.hands import CHECKERS, FENCERS, LOOKERS, TAKERS
from consumer.process.pipeline_queries import PipelineQueries
from consumer.process.unit_operations import UnitOperations
from consumer.process.unit_problems import UnitProblems
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import Lines, unit_name
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.spark.active_units import Attempts
from consumer.spark.pipeline import PipelineSettings
from consumer.units import decisions
from consumer.units.looks import curious
from consumer.units.messages import (
    Abort,
    AttemptsReported,
    Check,
    Effect,
    Event,
    Examine,
    FenceUnit,
    Follow,
    PipelineTick,
    Post,
    PrepareUnit,
    RemoveUnit,
    Say,
    SparkUp,
    StartQuery,
    StartUnit,
    StopQuery,
    Take,
    Waits,
    Warm,
)
from schemas.units import Ended, Mark

if TYPE_CHECKING:  # it is loaded beside us, with Spark
    from consumer.process.spark_session import Spark

log = structlog.get_logger(__name__)

TICK_S = 0.1
FAULT = 3
"""Exit code after an error of the program itself."""
LOOK_S = 0.25
SELDOM_S = 1.0
"""How often Spark's progress is looked at: while units are new to their query or catch up, and otherwise."""


@contextmanager
def fault_ends_process(pipeline: str) -> Iterator[None]:
    """An error of the program itself: nothing is known for certain any more, so that all units end with the process."""
    try:
        yield
    except BaseException:
        log.critical("the apply process has a fault", pipeline=pipeline, exc_info=True)
        os._exit(FAULT)


class PipelineShell:
    """Instructions may come from any thread, and so may Spark, once it is up (`spark_up`); units are applied by hands until then."""

    def __init__(self, pipeline: PipelineSettings, lines: Lines, times: SourceTimes) -> None:
        self._pipeline = pipeline
        self._lines = lines
        self._status = StatusWriter(pipeline.name, lines)
        self._problems = UnitProblems(pipeline, self._status)
        self._speaker = CheckpointReporter(pipeline.name, lines, times, frozenset(pipeline.debezium))
        self._state = decisions.PipelineState(pace=pipeline.commit_every)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ending, self._leaving = threading.Event(), threading.Event()
        self._closing, self._closed = threading.Lock(), False
        self._curious = False
        pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(pipeline.state_dir / "queries", ignore_errors=True)
        self._attempts = Attempts(str(pipeline.state_dir.resolve() / "attempts"))
        desk = UnitCopies(pipeline, times.copy, partial(send_request, pipeline.kafka))
        self._hands = UnitOperations(pipeline, self._attempts, times.seed, desk)
        self._queries = PipelineQueries(
            pipeline, self._attempts, self._hands.bounds, self._status.problem, self._ending
        )
        self._takers = ThreadPoolExecutor(TAKERS, f"take {pipeline.name}")
        self._fencers = ThreadPoolExecutor(FENCERS, f"fence {pipeline.name}")
        self._lookers = ThreadPoolExecutor(LOOKERS, f"look {pipeline.name}")
        self._checkers = ThreadPoolExecutor(CHECKERS, f"check {pipeline.name}")
        self._starter = ThreadPoolExecutor(1, f"start {pipeline.name}")
        self._stopper = ThreadPoolExecutor(2, f"stop {pipeline.name}")
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(target,), name=f"{what} {pipeline.name}", daemon=True
            )
            for what, target in (("core", self._loop), ("reports", self._receive), ("look", self._look))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _guarded(self, target: Callable[[], None]) -> None:
        with fault_ends_process(self._pipeline.name):
            target()

    # -- instructions

    def prepare(self, topic: str, assignment: int, mark: Mark | None) -> None:
        source = self._pipeline.source_of(topic)
        if source is None:
            why = f"{topic} is not a topic of the pipeline {self._pipeline.name}"
            unit = unit_name(self._pipeline.name, topic)
            self._lines.say(unit, Ended(assignment, mark, why))
            return
        self._speaker.taken_up(topic, assignment, mark)
        self._events.put(PrepareUnit(topic, source, assignment))

    def start_unit(self, topic: str, assignment: int) -> None:
        self._events.put(StartUnit(topic, assignment))

    def remove_unit(self, topic: str, assignment: int) -> None:
        self._events.put(RemoveUnit(topic, assignment))

    def spark_up(self, spark: Spark) -> None:
        """Spark has started: queries can be."""
        self._queries.spark = spark
        self._events.put(SparkUp())

    def close(self, *, once_without_units: bool = False) -> None:
        """Stop all units, then the queries. Returns when nothing of this pipeline can write any more, whoever has closed it.

        `once_without_units`: nothing is stopped, the last unit ends by itself; none may come any more.
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
            self._hands.close()
            self._threads[1].join()  # it reads there
            self._queries.hear_no_more()
            self._attempts.close()

    # -- the core's thread

    def _loop(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=TICK_S)
            except queue.Empty:
                event = PipelineTick()
            self._step(event)
            if self._leaving.is_set() and not self._state.units and self._events.empty():
                return
            if self._ending.is_set():
                if not self._state.units:
                    return
                for unit in list(self._state.units.values()):
                    if not unit.stop_asked:
                        self._step(RemoveUnit(unit.topic, unit.assignment))

    def _step(self, event: Event) -> None:
        now = time.monotonic()
        self._state, effects = decisions.step(self._state, event, now)
        for effect in effects:
            self._execute(effect)
        self._curious = curious(self._state.units.values())
        self._speaker.tick(now, self._state.units)
        state = "stopping" if self._ending.is_set() else "running"
        self._status.tick(now, state, {u.topic: u.watched for u in self._state.units.values() if u.epoch})

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Warm():
                self._submit(self._takers, lambda: self._hands.warm(effect))
            case Take():
                self._hands.announce()
                self._submit(self._takers, lambda: self._hands.take(effect))
            case Follow():
                self._submit(self._takers, lambda: self._hands.follow(effect))
            case Examine():
                self._submit(self._lookers, lambda: self._hands.examine(effect))
            case Check():
                self._submit(self._checkers, lambda: self._hands.check(effect))
            case Waits():
                self._problems.waits(effect)
            case FenceUnit():
                self._submit(self._fencers, lambda: self._hands.fence(effect))
            case Abort(topic, assignment):
                self._hands.abort(topic, assignment)
            case StartQuery():
                self._submit(self._starter, lambda: self._queries.start(effect))
            case StopQuery(number):
                if (query := self._queries.taken_off(number)) is not None:
                    self._stopper.submit(query.stop)
            case Post(number, epochs):
                self._queries.post(number, epochs)
            case Say():
                if effect.event is Ended:
                    self._hands.forget(effect.topic, effect.assignment)
                    self._problems.ended(effect)
                self._speaker.say(effect)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Event]) -> None:
        pool.submit(work).add_done_callback(self._done)

    def _done(self, future: Future[Event]) -> None:
        """Hand on what came of it."""
        with fault_ends_process(self._pipeline.name):
            event = future.result()
            self._problems.came(event)
            self._events.put(event)

    def _look(self) -> None:
        """Look at Spark's progress, in a thread of its own: the JVM may take its time."""
        while not self._ending.wait(LOOK_S if self._curious else SELDOM_S):
            for event in self._queries.look():
                self._events.put(event)

    # -- workers

    def _receive(self) -> None:
        while not self._ending.is_set():
            reports = self._queries.reports(TICK_S)
            for _, report in reports:
                self._problems.displaced(report.topic, report.displaced)
            if reports:
                self._events.put(AttemptsReported(reports))
