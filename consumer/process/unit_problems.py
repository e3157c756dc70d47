"""Reports problems of a pipeline's units to people, as log lines and in the status lines on stdout."""

from __future__ import annotations

import structlog

from consumer.reporting.status_lines import StatusWriter
from consumer.spark.pipeline import PipelineSettings
from consumer.tables.discovery import format_topic_table
from consumer.units.messages import (
    LogWaiting,
    OperationFailed,
    PipelineEvent,
    RangeApplied,
    ReportEvent,
    UnitTakenOver,
)
from consumer.units.supervision import describe_drift
from schemas.problems import decode_problem

log = structlog.get_logger(__name__)


class UnitProblems:
    def __init__(self, pipeline: PipelineSettings, status: StatusWriter) -> None:
        self._pipeline, self._status = pipeline, status

    def log_wait(self, effect: LogWaiting) -> None:
        """Log once that a unit is stopped, because the stop may last long."""
        problem = decode_problem(effect.why)
        log.error(
            "unit stopped", pipeline=self._pipeline.name, topic=effect.topic,
            table=format_topic_table(self._pipeline.prefix, effect.source, effect.topic), reason=problem.what, remedy=problem.action,
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
                "unit retried", pipeline=self._pipeline.name, topic=event.topic, error=str(decode_problem(event.error)),
                again=event.should_retry,
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
