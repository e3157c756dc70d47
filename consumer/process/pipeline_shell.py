"""One pipeline's assigned units at work: a thread that runs the core, and the threads that do what it asks for.

Everything that happens comes through one queue: instructions, what hands, workers and Spark say, and time. Nothing in
the core's thread waits for a database, Kafka or Spark.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError

from consumer.attempt.reports import ReportReceiver
from consumer.errors import ConsumerError, TransientError
from consumer.process.unit_operations import CHECKERS, FENCERS, LOOKERS, TAKERS, UnitOperations
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import Lines, Said, UnitMark, unit_name
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.spark.active_units import Attempts
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.query import CATCH_UP_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER, cause
from consumer.tables.discovery import table_of
from consumer.units import decisions
from consumer.units.messages import (
    Abort,
    AttemptsReported,
    Check,
    Effect,
    Event,
    Examine,
    Failed,
    FenceUnit,
    Follow,
    Followed,
    Looked,
    Open,
    PipelineTick,
    Post,
    QueryFailed,
    QueryKind,
    QueryLost,
    QueryUp,
    Say,
    SparkUp,
    StartQuery,
    StartUnit,
    Stop,
    StopQuery,
    Take,
    Took,
    Waits,
    Warm,
)
from consumer.units.supervision import drift
from schemas.findings import split_remedy

if TYPE_CHECKING:  # it is loaded beside us, with Spark
    from consumer.process.spark_session import Spark
    from consumer.spark.query_handle import RunningQuery

log = structlog.get_logger(__name__)

TICK_S = 0.1
WARM_IDLE_S = 2.0
"""How long a query has to begin its first batch: there may be nothing to read."""
WARM_SLOW_S = 60.0
"""How long that batch may take before it is said to be slow."""
FAULT = 3
"""Exit code after an error of the program itself."""
LOOK_S = 0.25
SELDOM_S = 1.0
"""How often Spark's progress is looked at: while units are new to their query or catch up, and otherwise."""
PER_TRIGGER = {QueryKind.LIVE: MAX_OFFSETS_PER_TRIGGER, QueryKind.CATCHING_UP: CATCH_UP_PER_TRIGGER}


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
        self._spark: Spark | None = None
        self._lines = lines
        self._status = StatusWriter(pipeline.name, lines)
        self._speaker = CheckpointReporter(pipeline.name, lines, times, frozenset(pipeline.debezium))
        self._state = decisions.PipelineState()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._queries: dict[int, RunningQuery] = {}
        self._run = f"{pipeline.name}-{secrets.token_hex(4)}"
        self._ending = threading.Event()
        self._curious = False
        pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(pipeline.state_dir / "queries", ignore_errors=True)
        self._attempts = Attempts(str(pipeline.state_dir.resolve() / "attempts"))
        self._receiver = ReportReceiver()
        self._hands = UnitOperations(pipeline, self._attempts, times.seed)
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

    def open(self, topic: str, assignment: int, mark: UnitMark | None) -> None:
        source = self._source_of(topic)
        if source is None:
            why = f"{topic} is not a topic of the pipeline {self._pipeline.name}"
            unit = unit_name(self._pipeline.name, topic)
            self._lines.say(Said(unit, assignment, "ended", mark, error=why))
            return
        self._speaker.opened(topic, assignment, mark)
        self._events.put(Open(topic, source, assignment))

    def start_unit(self, topic: str, assignment: int) -> None:
        self._events.put(StartUnit(topic, assignment))

    def stop_unit(self, topic: str, assignment: int) -> None:
        self._events.put(Stop(topic, assignment))

    def spark_up(self, spark: Spark) -> None:
        """Spark has started: queries can be."""
        self._spark = spark
        self._events.put(SparkUp())

    def _source_of(self, topic: str) -> str | None:
        return self._pipeline.select([topic]).get(topic)

    def close(self) -> None:
        """Stop all units, then the queries. Returns when nothing of this pipeline can write any more."""
        self._ending.set()
        self._threads[0].join()
        for query in list(self._queries.values()):
            query.stop()
        for pool in (
            self._takers, self._fencers, self._lookers, self._checkers, self._starter, self._stopper,
        ):  # fmt: skip
            pool.shutdown(wait=True)
        self._hands.close()
        self._threads[1].join()  # it reads there
        self._receiver.close()
        self._attempts.close()

    # -- the core's thread

    def _loop(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=TICK_S)
            except queue.Empty:
                event = PipelineTick()
            self._step(event)
            if self._ending.is_set():
                if not self._state.units:
                    return
                for unit in list(self._state.units.values()):
                    if not unit.stop_asked:
                        self._step(Stop(unit.topic, unit.assignment))

    def _step(self, event: Event) -> None:
        now = time.monotonic()
        self._state, effects = decisions.step(self._state, event, now)
        for effect in effects:
            self._execute(effect)
        self._curious = decisions.curious(self._state)
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
                self._waits(effect)
            case FenceUnit():
                self._submit(self._fencers, lambda: self._hands.fence(effect))
            case Abort(topic, assignment):
                self._hands.abort(topic, assignment)
            case StartQuery():
                self._submit(self._starter, lambda: self._start_query(effect))
            case StopQuery(number):
                if (query := self._queries.pop(number, None)) is not None:
                    query.post({})
                    self._stopper.submit(query.stop)
            case Post(number, epochs):
                self._queries[number].post(epochs)
            case Say():
                self._said(effect)

    def _waits(self, effect: Waits) -> None:
        """Tell people that a unit waits for one of them: once, for it may wait for long."""
        seen, remedy = split_remedy(effect.why)
        log.error(
            "unit stopped", pipeline=self._pipeline.name, topic=effect.topic,
            table=table_of(self._pipeline.prefix, effect.source, effect.topic), reason=seen, do=remedy,
        )  # fmt: skip
        self._status.problem(f"unit {effect.topic} stopped", effect.why)

    def _said(self, effect: Say) -> None:
        if effect.what == "ended":
            self._hands.forget(effect.topic, effect.assignment)
            if effect.error:
                self._status.problem(f"unit {effect.topic} ended", effect.error)
        self._speaker.say(effect)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Event]) -> None:
        pool.submit(work).add_done_callback(self._done)

    def _done(self, future: Future[Event]) -> None:
        """Hand on what came of it."""
        with fault_ends_process(self._pipeline.name):
            event = future.result()
            if isinstance(event, Failed) and not event.waits:
                log.warning(
                    "unit in trouble", pipeline=self._pipeline.name, topic=event.topic, error=event.error,
                    again=event.again,
                )  # fmt: skip
                self._status.problem(f"unit {event.topic} in trouble", event.error)
            elif isinstance(event, Took):
                self._noted(event.topic, event.displaced)
            elif isinstance(event, Followed) and event.report is not None:
                self._noted(event.topic, event.report.displaced)
            self._events.put(event)

    # -- queries

    def _start_query(self, asked: StartQuery) -> QueryUp | QueryFailed:
        began = time.monotonic()
        try:
            starting = self._resolved(asked)
            query = self._queries[asked.number] = self._running(asked, starting)
            if asked.kind is QueryKind.LIVE:
                self._warm(query)
        except Exception as error:  # py4j raises what it likes; another start may go better
            known = isinstance(error, ConsumerError | Py4JError | OSError)
            why = cause(str(error).splitlines())
            log.warning(
                "a query cannot start",
                pipeline=self._pipeline.name,
                error=why,
                exc_info=None if known else error,
            )
            self._status.problem("a query cannot start", why)
            return QueryFailed(asked.kind, why)
        log.info(
            "query started", pipeline=self._pipeline.name, query=asked.kind.value, topics=len(starting),
            number=asked.number, ms=round((time.monotonic() - began) * 1000),
        )  # fmt: skip
        topics = {unit.topic: (unit.topic_id, unit.real) for unit in asked.units if unit.topic in starting}
        return QueryUp(asked.number, asked.kind, topics)

    def _resolved(self, asked: StartQuery) -> dict[str, int]:
        """Put the topics' last records where "the end" is asked for, and everywhere where there is nothing else to read.

        Spark would look for the end later, behind what a hand does. And with a record the query has a first batch, which
        is the slow one: consumers, workers and code are there when a unit needs them. Whoever applies drops what is applied.
        """
        bounds = self._hands.bounds(list(asked.starting))
        ends = {topic: end for topic, (_, end) in bounds.items()}
        last = {topic: max(first, end - 1) for topic, (first, end) in bounds.items()}
        found = {
            topic: first if first >= 0 else last[topic]
            for topic, first in asked.starting.items()
            if first >= 0 or topic in last
        }
        if any(first < ends.get(topic, 0) for topic, first in found.items()):
            return found
        return {topic: min(first, last.get(topic, first)) for topic, first in found.items()}

    def _warm(self, query: RunningQuery) -> None:
        """Wait for the first batch, if there is one, for as long as it takes.

        A machine that is busy and a JVM that has never run a query need half a minute. Whoever is to move here is applied by
        another agent meanwhile; on a query that does nothing yet it would stand still.
        """
        began = time.monotonic()
        slow_at = began + WARM_SLOW_S
        while query.active and not self._ending.is_set():
            finished, _, idle = query.look()
            now = time.monotonic()
            if finished >= 0 or (idle and now > began + WARM_IDLE_S):
                return
            if now > slow_at:
                log.warning("a query's first batch takes long", query=query.name, seconds=round(now - began))
                slow_at = now + WARM_SLOW_S
            time.sleep(0.02)

    def _running(self, asked: StartQuery, starting: dict[str, int]) -> RunningQuery:
        pipeline = self._pipeline
        specs = {
            unit.topic: pipeline.spec(
                unit.topic,
                unit.source,
                epoch=0,
                topic_id=unit.topic_id,
                assigned=unit.assignment,
                real=unit.real,
            )
            for unit in asked.units
        }
        name = f"{self._run}-{asked.number}"
        config = pipeline.task_config(self._run, name, specs, self._receiver.port, self._receiver.token)
        if self._spark is None:
            raise TransientError("Spark is not up")  # nothing asks for a query before
        return self._spark.query(
            pipeline,
            config,
            starting,
            epochs=asked.epochs,
            per_trigger=PER_TRIGGER[asked.kind],
        )

    def _look(self) -> None:
        """Look at Spark's progress, in a thread of its own: the JVM may take its time."""
        while not self._ending.wait(LOOK_S if self._curious else SELDOM_S):
            for number, query in list(self._queries.items()):
                try:
                    self._events.put(self._looked(number, query))
                except Exception as error:  # of the JVM, or of what it said: the next look may go better
                    known = isinstance(error, Py4JError)
                    log.warning(
                        "a query cannot be looked at", query=query.name, error=str(error)[:300],
                        exc_info=None if known else error,
                    )  # fmt: skip

    def _looked(self, number: int, query: RunningQuery) -> Looked | QueryLost:
        if not query.active:
            why = query.cause()
            log.warning("a query died", pipeline=self._pipeline.name, query=query.name, error=why)
            self._status.problem("a query died", why)
            return QueryLost(number, why)
        finished, ends, idle = query.look()
        return Looked(number, finished, ends, idle)

    # -- workers

    def _receive(self) -> None:
        while not self._ending.is_set():
            reports = self._receiver.receive(TICK_S)
            if reports:
                for report in reports:
                    self._noted(report.topic, report.displaced)
                numbered = [(_number(report.query), report) for report in reports]
                self._events.put(AttemptsReported(numbered))

    def _noted(self, topic: str, displaced: int) -> None:
        """Whoever's attempt it was: the rows had to make room."""
        if displaced:
            self._status.problem(*drift(topic, displaced))


def _number(query: str) -> int:
    _, _, number = query.rpartition("-")
    return int(number) if number.isdigit() else -1
