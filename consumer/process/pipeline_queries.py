"""Starts, polls and stops the Spark queries of one pipeline, and receives the reports of their workers."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError

from consumer.attempt.reports import Report, ReportReceiver
from consumer.errors import ConsumerError, TransientError
from consumer.process.operations.unit_resources import OffsetBounds
from consumer.spark.active_units import AttemptLocks
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.query import CATCH_UP_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER, find_cause
from consumer.units.messages import QueryFailed, QueryLost, QueryProgress, QueryUp, StartQuery
from consumer.units.unit import QueryKind

if TYPE_CHECKING:  # imported with Spark, in its thread
    from consumer.process.spark_session import Spark
    from consumer.spark.query_handle import RunningQuery

log = structlog.get_logger(__name__)

FIRST_BATCH_IDLE_S = 2.0
"""Seconds that a query has to begin its first batch; there may be nothing to read."""
FIRST_BATCH_SLOW_S = 60.0
"""Seconds after which a first batch that is still running is logged as slow."""
NO_QUERY = -1
"""The number of a report that no query has sent."""
PER_TRIGGER = {QueryKind.LIVE: MAX_OFFSETS_PER_TRIGGER, QueryKind.CATCHING_UP: CATCH_UP_PER_TRIGGER}


class PipelineQueries:
    """The queries of one pipeline, by number.

    `attempts`: the attempt locks of this process, for the queries that it applies itself. `bounds`:
    returns topic → (first, next) offset in Kafka. `problem(what, why)`: reports a problem. `ending`: set
    when the pipeline ends.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        attempts: AttemptLocks,
        bounds: Callable[[Iterable[str]], dict[str, OffsetBounds]],
        problem: Callable[[str, str], None],
        ending: threading.Event,
    ) -> None:
        self._pipeline, self._attempts, self._bounds = pipeline, attempts, bounds
        self._problem, self._ending = problem, ending
        self._run = f"{pipeline.name}-{secrets.token_hex(4)}"
        self._receiver = ReportReceiver()
        self._here: dict[int, RunningQuery] = {}
        self._spark: Spark | None = None

    def provide_spark(self, spark: Spark) -> None:
        """Let queries be started in this Spark session."""
        self._spark = spark

    def start_query(self, asked: StartQuery) -> QueryUp | QueryFailed:
        """Start a query. A live query is returned after its first batch, which is slow."""
        began = time.monotonic()
        try:
            starting = self._resolve_offsets(asked)
            query = self._here[asked.number] = self._start_running_query(asked, starting)
            if asked.kind is QueryKind.LIVE:
                self._await_first_batch(query)
        except Exception as error:  # py4j raises any class, and a retry may succeed
            known = isinstance(error, ConsumerError | Py4JError | OSError)
            why = find_cause(str(error).splitlines())
            log.warning(
                "Spark query did not start",
                pipeline=self._pipeline.name,
                error=why,
                exc_info=None if known else error,
            )
            self._problem("a query cannot start", why)
            return QueryFailed(asked.kind, why)
        log.info(
            "Spark query started", pipeline=self._pipeline.name, query=asked.kind.value, topics=len(starting),
            number=asked.number, ms=round((time.monotonic() - began) * 1000),
        )  # fmt: skip
        topics = {unit.topic: (unit.topic_id, unit.real) for unit in asked.units if unit.topic in starting}
        return QueryUp(asked.number, asked.kind, topics)

    def _resolve_offsets(self, asked: StartQuery) -> dict[str, int]:
        """Return the offset from which each topic is read.

        The offset of a topic's last record replaces "the end", and also every other offset when no topic
        has anything to read. Spark would determine the end later, after an operation has read it. And
        with at least one record the query has a first batch, which is the slow one: consumers, workers
        and code are loaded when a unit needs them. Workers drop records that are already applied.
        """
        bounds = self._bounds(list(asked.starting))
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

    def _await_first_batch(self, query: RunningQuery) -> None:
        """Wait for the first batch, if there is one, without a time limit.

        It may take half a minute on a busy machine and in a JVM that has never run a query. Meanwhile
        another agent applies the units that are to move here; on a query that does not run yet they
        would be interrupted.
        """
        began = time.monotonic()
        slow_at = began + FIRST_BATCH_SLOW_S
        while query.active and not self._ending.is_set():
            finished, _, idle = query.read_progress()
            now = time.monotonic()
            if finished >= 0 or (idle and now > began + FIRST_BATCH_IDLE_S):
                return
            if now > slow_at:
                log.warning("first batch of a query is slow", query=query.name, seconds=round(now - began))
                slow_at = now + FIRST_BATCH_SLOW_S
            time.sleep(0.02)

    def _start_running_query(self, asked: StartQuery, starting: dict[str, int]) -> RunningQuery:
        pipeline = self._pipeline
        specs = {
            unit.topic: pipeline.build_unit_spec(
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
        config = pipeline.build_task_config(self._run, name, specs, self._receiver.port, self._receiver.token)
        if self._spark is None:
            raise TransientError("Spark is not up")  # no query is requested before Spark is up
        return self._spark.start_query(
            pipeline,
            config,
            starting,
            epochs=asked.epochs,
            per_trigger=PER_TRIGGER[asked.kind],
            attempts=self._attempts,
        )

    def post_active_units(self, number: int, epochs: Mapping[str, int]) -> None:
        self._here[number].post_active_units(epochs)

    def take_off_query(self, number: int) -> RunningQuery | None:
        """Remove the query and its active units, and return it. The caller stops it."""
        query = self._here.pop(number, None)
        if query is not None:
            query.post_active_units({})
        return query

    def close(self) -> None:
        """Stop all queries."""
        for query in list(self._here.values()):
            query.stop()

    # -- progress and reports

    def yield_progress(self) -> Iterator[QueryProgress | QueryLost]:
        """Yield Spark's progress of each query. Blocks while the JVM answers."""
        for number, query in list(self._here.items()):
            try:
                yield self._read_progress(number, query)
            except Exception as error:  # of the JVM, or of its answer: the next poll may succeed
                known = isinstance(error, Py4JError)
                log.warning(
                    "Spark query status not readable", query=query.name, error=str(error)[:300],
                    exc_info=None if known else error,
                )  # fmt: skip

    def _read_progress(self, number: int, query: RunningQuery) -> QueryProgress | QueryLost:
        if not query.active:
            why = query.explain_end()
            log.warning("Spark query failed", pipeline=self._pipeline.name, query=query.name, error=why)
            self._problem("a query died", why)
            return QueryLost(number, why)
        finished, ends, idle = query.read_progress()
        return QueryProgress(number, finished, ends, idle)

    def receive_reports(self, seconds: float) -> Sequence[tuple[int, Report]]:
        """Wait up to `seconds` for reports of workers; return them with the numbers of their queries."""
        return [(_parse_query_number(report.query), report) for report in self._receiver.receive(seconds)]

    def close_reports(self) -> None:
        """Close the receiver of reports."""
        self._receiver.close()


def _parse_query_number(query: str) -> int:
    _, _, number = query.rpartition("-")
    return int(number) if number.isdigit() else NO_QUERY
