"""Carries out the effects of one pipeline's core: blocking operations, each in a thread of its own group, the
commands to the slots, and all that is reported at once.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal

import structlog

from consumer.attempt.reports import Report
from consumer.process.operations.copy_desk import UnitCopies, send_request
from consumer.process.operations.unit_resources import CHECKERS, FENCERS, LOOKERS, TAKERS
from consumer.process.unit_operations import UnitOperations
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.source_times import SourceTimes
from consumer.reporting.status_lines import StatusWriter
from consumer.slots.faults import fault_ends_process
from consumer.slots.messages import ServeUnit
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.pool import SlotPool
from consumer.tables.discovery import format_topic_table
from consumer.units.messages import (
    AbortOperation,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PlaceUnit,
    PrepareTarget,
    ProbeStopped,
    ReportEvent,
    SlotLost,
    TakeOver,
    WithdrawUnit,
)
from consumer.units.supervision import describe_drift
from schemas.config.model import KafkaConfig, TargetConfig
from schemas.problems import decode_problem
from schemas.units import WorkerEnded

log = structlog.get_logger(__name__)

ThreadGroup = Literal["take", "fence", "look", "check"]
GROUP_SIZES: dict[ThreadGroup, int] = {
    "take": TAKERS, "fence": FENCERS, "look": LOOKERS, "check": CHECKERS,
}  # fmt: skip
"""Threads of each group. Groups do not wait for each other."""


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
        """Report an operation's failure."""
        if isinstance(event, OperationFailed) and not event.waits:
            log.warning(
                "operation of a unit failed", pipeline=self._pipeline.name, topic=event.topic,
                error=str(decode_problem(event.error)), retried=event.should_retry,
            )  # fmt: skip
            self._status.write_problem(f"unit {event.topic} in trouble", str(decode_problem(event.error)))

    def report_displaced_rows(self, topic: str, rows: int) -> None:
        """Report rows that had to make room, of any attempt."""
        if rows:
            self._status.write_problem(*describe_drift(topic, rows))


def build_serve_unit(run: str, placed: PlaceUnit, *, copy_at: int | None, only_here: bool) -> ServeUnit:
    """Return the command by which a slot serves a unit after its takeover."""
    unit, taken = placed.unit, placed.taken
    return ServeUnit(
        run=run,
        topic=unit.topic,
        source=unit.source,
        assignment=unit.assignment,
        topic_id=unit.topic_id,
        epoch=taken.epoch,
        offset=taken.offset,
        end=taken.end,
        real=unit.real,
        was=taken.was,
        copy_at=copy_at,
        trial=taken.trial,
        only_here=only_here,
    )


class PipelineSlots:
    """The slots of this process, for the units of one pipeline. `put_event` receives what slots report."""

    def __init__(
        self,
        pipeline: PipelineSettings,
        pool: SlotPool,
        problems: UnitProblems,
        put_event: Callable[[PipelineEvent], None],
    ) -> None:
        self._pipeline, self._pool = pipeline, pool
        self._problems, self._put_event = problems, put_event
        self._run = f"{pipeline.name}-{secrets.token_hex(4)}"
        pool.add_pipeline(self._run, pipeline, self)

    def place_unit(self, effect: PlaceUnit, copy_at: int | None) -> None:
        """Let a slot apply a unit. `copy_at`: see UnitSpec."""
        batches = self._pipeline.batches
        self._pool.serve_unit(build_serve_unit(self._run, effect, copy_at=copy_at, only_here=batches))

    def use_target(self, target: TargetConfig) -> None:
        """Let slots connect with these settings from now on, which differ in secrets alone."""
        self._replace_settings(dataclasses.replace(self._pipeline, target=target))

    def use_kafka(self, kafka: KafkaConfig) -> None:
        """Let slots read topics with these settings from now on, which differ in the password alone."""
        changed = dataclasses.replace(self._pipeline, kafka=kafka, kafka_options=kafka.options)
        self._replace_settings(changed)

    def _replace_settings(self, pipeline: PipelineSettings) -> None:
        self._pipeline = pipeline
        self._pool.replace_settings(self._run, pipeline)

    def withdraw_unit(self, topic: str) -> None:
        self._pool.withdraw_unit((self._run, topic))

    def is_held(self, topic: str) -> bool:
        """Return whether a slot may run an attempt at the unit."""
        return self._pool.is_held((self._run, topic))

    def kill_holder(self, topic: str) -> None:
        """Kill the process of the slot that has the unit, unless that is this process."""
        self._pool.kill_holder((self._run, topic))

    def take_reports(self, reports: list[Report]) -> None:
        """Receive reports of a slot."""
        for report in reports:
            self._problems.report_displaced_rows(report.topic, report.displaced)
        self._put_event(AttemptsReported(reports))

    def lose_unit(self, topic: str, epoch: int) -> None:
        """Receive that the slot of a unit is lost."""
        self._put_event(SlotLost(topic, epoch))

    def close(self) -> None:
        """Forget the pipeline. Its units have been withdrawn and fenced."""
        self._pool.forget_pipeline(self._run)


class EffectRunner:
    """Carries out the effects of one pipeline's core. None of its methods but `close` waits for a database
    or Kafka.

    `put_event`: receives the result of each operation and what slots report, from any thread.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        pool: SlotPool,
        status: StatusWriter,
        reporter: CheckpointReporter,
        times: SourceTimes,
        *,
        put_event: Callable[[PipelineEvent], None],
    ) -> None:
        self._name, self._reporter, self._put_event = pipeline.name, reporter, put_event
        self._problems = UnitProblems(pipeline, status)
        pipeline.state_dir.mkdir(parents=True, exist_ok=True)
        self._copies = UnitCopies(pipeline, times.get_copy_state, partial(send_request, pipeline.kafka))
        self._slots = PipelineSlots(pipeline, pool, self._problems, put_event)
        self._operations = UnitOperations(
            pipeline, self._slots, times.seed_topic, self._copies,
            lambda report: put_event(AttemptsReported([report])),
        )  # fmt: skip
        self._threads = {
            group: ThreadPoolExecutor(size, f"{group} {pipeline.name}") for group, size in GROUP_SIZES.items()
        }

    def use_target(self, target: TargetConfig) -> None:
        """Connect with these settings from now on, which differ in secrets alone."""
        self._operations.use_target(target)
        self._slots.use_target(target)

    def use_kafka(self, kafka: KafkaConfig) -> None:
        """Read topics with these settings from now on, which differ in the password alone."""
        self._slots.use_kafka(kafka)

    def run_effect(self, effect: PipelineEffect) -> None:
        """Carry an effect out, or begin to."""
        match effect:
            case PrepareTarget():
                self._submit_work("take", lambda: self._operations.prepare_target(effect))
            case TakeOver():
                self._submit_work("take", lambda: self._operations.take_over(effect))
            case PlaceUnit():
                self._slots.place_unit(effect, self._copies.find_copy_offset(effect.unit))
            case WithdrawUnit(topic):
                self._slots.withdraw_unit(topic)
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

    def close(self) -> None:
        """Wait until nothing of this pipeline can write any more. No effect comes any more."""
        for threads in self._threads.values():
            threads.shutdown(wait=True)
        self._operations.close()
        self._slots.close()
