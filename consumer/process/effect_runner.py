"""Carries out the effects of one pipeline's core: blocking operations and queries, each in a thread of its
own group, and all that is reported at once.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

from consumer.attempt.reports import Report
from consumer.process.operations.copy_desk import UnitCopies, send_request
from consumer.process.operations.unit_resources import CHECKERS, FENCERS, LOOKERS, TAKERS
from consumer.process.pipeline_queries import NO_QUERY, PipelineQueries
from consumer.process.unit_operations import UnitOperations
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.spark.active_units import AttemptLocks
from consumer.spark.pipeline import PipelineSettings
from consumer.tables.discovery import format_topic_table
from consumer.units.messages import (
    AbortOperation,
    ApplyRange,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PostActiveUnits,
    PrepareTarget,
    ProbeStopped,
    QueryLost,
    QueryProgress,
    RangeApplied,
    ReportEvent,
    StartQuery,
    StopQuery,
    TakeOver,
    UnitTakenOver,
)
from consumer.units.supervision import describe_drift
from schemas.config.model import TargetConfig
from schemas.problems import decode_problem
from schemas.units import WorkerEnded

if TYPE_CHECKING:  # imported with Spark, in its thread
    from consumer.process.spark_session import Spark

log = structlog.get_logger(__name__)

FAULT_EXIT_CODE = 3
"""Exit code after an error of the program itself."""
ThreadGroup = Literal["take", "fence", "look", "check", "start", "stop"]
GROUP_SIZES: dict[ThreadGroup, int] = {
    "take": TAKERS, "fence": FENCERS, "look": LOOKERS, "check": CHECKERS, "start": 1, "stop": 2,
}  # fmt: skip
"""Threads of each group. Groups do not wait for each other."""


@contextmanager
def fault_ends_process(pipeline: str) -> Iterator[None]:
    """End the process after an error of the program itself.

    The state in memory is uncertain after such an error, so all units end with the process.
    """
    try:
        yield
    except BaseException:
        log.critical("apply process ends: internal error", pipeline=pipeline, exc_info=True)
        os._exit(FAULT_EXIT_CODE)


class UnitProblems:
    """Reports problems of a pipeline's units to people, as log lines and in the status lines on stdout."""

    def __init__(self, pipeline: PipelineSettings, status: StatusWriter) -> None:
        self._pipeline, self._status = pipeline, status

    def log_wait(self, effect: LogWaiting) -> None:
        """Log once that a unit is stopped, because the stop may last long."""
        problem = decode_problem(effect.why)
        log.error(
            "unit stopped", pipeline=self._pipeline.name, topic=effect.topic,
            table=format_topic_table(self._pipeline.prefix, effect.source, effect.topic), reason=problem.what,
            remedy=problem.action,
        )  # fmt: skip
        self._status.write_problem(f"unit {effect.topic} stopped", str(problem))

    def log_end(self, effect: ReportEvent) -> None:
        """Report the error with which a unit has ended."""
        if effect.error:
            self._status.write_problem(f"unit {effect.topic} ended", str(decode_problem(effect.error)))

    def log_outcome(self, event: PipelineEvent) -> None:
        """Report an operation's failure or displaced rows."""
        if isinstance(event, OperationFailed) and not event.waits:
            log.warning(
                "operation of a unit failed", pipeline=self._pipeline.name, topic=event.topic,
                error=str(decode_problem(event.error)), retried=event.should_retry,
            )  # fmt: skip
            self._status.write_problem(f"unit {event.topic} in trouble", str(decode_problem(event.error)))
        elif isinstance(event, UnitTakenOver):
            self.report_displaced_rows(event.topic, event.displaced)
        elif isinstance(event, RangeApplied) and event.report is not None:
            self.report_displaced_rows(event.topic, event.report.displaced)

    def report_displaced_rows(self, topic: str, rows: int) -> None:
        """Report rows that had to make room, of any attempt."""
        if rows:
            self._status.write_problem(*describe_drift(topic, rows))


class EffectRunner:
    """Carries out the effects of one pipeline's core. None of its methods but `close` waits for a database,
    Kafka or Spark; the two that poll do, each in a thread of its own.

    `put_event`: receives the result of each operation, from any thread.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        status: StatusWriter,
        reporter: CheckpointReporter,
        times: SourceTimes,
        *,
        put_event: Callable[[PipelineEvent], None],
        ending: threading.Event,
    ) -> None:
        """`ending`: set when the pipeline ends."""
        self._name, self._reporter, self._put_event = pipeline.name, reporter, put_event
        self._problems = UnitProblems(pipeline, status)
        pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(pipeline.state_dir / "queries", ignore_errors=True)
        self._attempts = AttemptLocks(str(pipeline.state_dir.resolve() / "attempts"))
        desk = UnitCopies(pipeline, times.get_copy_state, partial(send_request, pipeline.kafka))
        self._operations = UnitOperations(
            pipeline, self._attempts, times.seed_topic, desk,
            lambda report: put_event(AttemptsReported([(NO_QUERY, report)])),
        )  # fmt: skip
        self._queries = PipelineQueries(
            pipeline, self._attempts, self._operations.fetch_bounds, status.write_problem, ending
        )
        self._threads = {
            group: ThreadPoolExecutor(size, f"{group} {pipeline.name}") for group, size in GROUP_SIZES.items()
        }

    def provide_spark(self, spark: Spark) -> None:
        """Give the queries a Spark session."""
        self._queries.provide_spark(spark)

    def use_target(self, target: TargetConfig) -> None:
        """Connect with these settings from now on, which differ in secrets alone; queries keep theirs."""
        self._operations.use_target(target)

    def run_effect(self, effect: PipelineEffect) -> None:
        """Carry an effect out, or begin to."""
        match effect:
            case PrepareTarget():
                self._submit_work("take", lambda: self._operations.prepare_target(effect))
            case TakeOver():
                self._operations.queue_takeover()
                self._submit_work("take", lambda: self._operations.take_over(effect))
            case ApplyRange():
                self._submit_work("take", lambda: self._operations.apply_range(effect))
            case ProbeStopped():
                self._submit_work("look", lambda: self._operations.probe_stopped(effect))
            case CheckTable():
                self._submit_work("check", lambda: self._operations.check_table(effect))
            case LogWaiting():
                self._problems.log_wait(effect)
            case FenceUnit():
                self._submit_work("fence", lambda: self._operations.fence_unit(effect))
            case AbortOperation(topic, assignment):
                self._operations.abort_operation(topic, assignment)
            case StartQuery():
                self._submit_work("start", lambda: self._queries.start_query(effect))
            case StopQuery(number):
                if (query := self._queries.take_off_query(number)) is not None:
                    self._threads["stop"].submit(query.stop)
            case PostActiveUnits(number, epochs):
                self._queries.post_active_units(number, epochs)
            case ReportEvent():
                if effect.event is WorkerEnded:
                    self._operations.forget_unit(effect.topic, effect.assignment)
                    self._problems.log_end(effect)
                self._reporter.report_event(effect)

    def _submit_work(self, group: ThreadGroup, work: Callable[[], PipelineEvent]) -> None:
        self._threads[group].submit(work).add_done_callback(self._put_result)

    def _put_result(self, future: Future[PipelineEvent]) -> None:
        """Pass on the operation's result."""
        with fault_ends_process(self._name):
            event = future.result()
            self._problems.log_outcome(event)
            self._put_event(event)

    def yield_progress(self) -> Iterator[QueryProgress | QueryLost]:
        """Yield Spark's progress of each query. Blocks while the JVM answers."""
        yield from self._queries.yield_progress()

    def receive_reports(self, seconds: float) -> Sequence[tuple[int, Report]]:
        """Wait up to `seconds` for reports of workers; return them with the numbers of their queries."""
        reports = self._queries.receive_reports(seconds)
        for _, report in reports:
            self._problems.report_displaced_rows(report.topic, report.displaced)
        return reports

    def close(self) -> None:
        """Stop the queries, and wait until nothing of this pipeline can write any more.

        No effect comes any more, and nothing polls.
        """
        self._queries.close()
        for threads in self._threads.values():
            threads.shutdown(wait=True)
        self._operations.close()
        self._queries.close_reports()
        self._attempts.close()
