"""Blocking operations on one unit: prepare, take over (and catch up), apply directly, probe, check,
fence.

A few threads serve all units of a pipeline; the core runs one operation on a unit at a time. A short
backlog is applied here, by the same code as in Spark's workers, before a query applies the unit. A move
therefore interrupts the unit only for that time, and no query is restarted. Until a query reads the
unit's topic, the unit is applied here, a range at a time: a start does not wait for Spark.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from consumer.attempt.drivers.run import stop_topic
from consumer.attempt.reports import Report
from consumer.errors import TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.process.operations.copy_desk import UnitCopies
from consumer.process.operations.direct_apply import DirectApplier
from consumer.process.operations.fencing import UnitFencing
from consumer.process.operations.history import HistoryCleaner
from consumer.process.operations.target_checks import TargetProbe
from consumer.process.operations.unit_resources import (
    OffsetBounds,
    TargetConnectionPool,
    UnitTopics,
    build_failure,
    build_stop,
)
from consumer.process.takeover import TakeoverResult, define_unit, take_unit
from consumer.spark.active_units import AttemptLocks
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.worker import ConnectionCache
from consumer.tables.discovery import KafkaCluster
from consumer.units.messages import (
    ApplyRange,
    CheckTable,
    FenceUnit,
    OperationFailed,
    PrepareTarget,
    ProbeStopped,
    RangeApplied,
    StoppedProbed,
    TableChecked,
    TakeOver,
    TargetPrepared,
    UnitFenced,
    UnitTakenOver,
)
from consumer.units.unit import UnitRef
from schemas.config.model import TargetConfig
from schemas.problems import Problem, encode_problem

log = structlog.get_logger(__name__)


class UnitOperations:
    """The blocking operations on the units of one pipeline.

    An operation returns the event for the core and never raises: an error of any class concerns its unit
    alone (consumer.attempt.unit_errors).
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        attempts: AttemptLocks,
        seen: Callable[[str, str, int], None],
        copies: UnitCopies,
        report_wait: Callable[[Report], None],
    ) -> None:
        """`seen` receives (source, topic, last offset) of every topic that an operation reads. `report_wait`
        receives reports of units that wait for row locks while an operation applies them.
        """
        self._pipeline = pipeline
        self._topics = UnitTopics(KafkaCluster(pipeline.bootstrap, pipeline.kafka_options), seen)
        self._hands = TargetConnectionPool(pipeline)
        self._copies = copies
        self._stretches = DirectApplier(pipeline, copies.find_copy_offset, report_wait)
        self._looks = TargetProbe(pipeline)
        self._fencing = UnitFencing(pipeline, self._hands, attempts)
        self._history = HistoryCleaner(pipeline, self._hands)

    def fetch_bounds(self, topics: Iterable[str]) -> dict[str, OffsetBounds]:
        """Return topic → (first, next) offset. Raises TransientError."""
        return self._topics.fetch_bounds(topics)

    def abort_operation(self, topic: str, assignment: int) -> None:
        """Make the unit's running operation end soon.

        Applies to later operations too, until the unit is forgotten.
        """
        self._stretches.abort_operation(topic, assignment)

    def forget_unit(self, topic: str, assignment: int) -> None:
        """Forget everything that is kept for a unit that has ended."""
        self._stretches.forget_unit(topic, assignment)
        self._looks.forget_unit(topic, assignment)

    def close(self) -> None:
        """Close the idle connections, and end the watch of row locks."""
        self._stretches.close()
        self._hands.close()

    def use_target(self, target: TargetConfig) -> None:
        """Connect with these settings from now on, which differ in secrets alone."""
        self._hands.use_target(target)

    # -- prepare

    def prepare_target(self, asked: PrepareTarget) -> TargetPrepared | OperationFailed:
        """Read the topic's id, connect, and read the target table that a takeover will need."""
        unit = asked.unit
        try:
            found = self._topics.describe_topic(unit)
            if found is None:
                why = encode_problem(Problem(f"{unit.topic}: no such topic yet"))
                return OperationFailed(unit.topic, unit.assignment, why, should_retry=True)
            self._topics.fetch_expected_bounds(unit)
        except Exception as error:  # noqa: BLE001  # nothing can be done without its topic
            return replace(build_failure(unit, error), should_retry=True, waits=False)
        try:
            with self._hands.borrow_connections() as sessions:
                real = self._looks.read_real_table(sessions.get_connection(0), unit)
                return TargetPrepared(unit.topic, unit.assignment, found.id, real)
        except TransientError as error:
            return build_failure(unit, error)
        except Exception as error:  # noqa: BLE001  # the takeover meets it again and stops the unit
            log.info("target table not readable", topic=unit.topic, error=str(error)[:300])
            return TargetPrepared(unit.topic, unit.assignment, found.id)

    # -- start

    def queue_takeover(self) -> None:
        """Count a requested takeover, which may have to wait for a thread."""
        self._stretches.queue_takeover()

    def take_over(self, asked: TakeOver) -> UnitTakenOver | OperationFailed:
        """Take a unit over for this process: raise its fencing token, then apply a short backlog."""
        unit, began = asked.unit, time.monotonic()
        with self._stretches.track_takeover():
            took = self._take_over_unit(unit, asked.above, look=asked.look, here=asked.here)
        if isinstance(took, UnitTakenOver):
            log.info(
                "unit taken over", pipeline=self._pipeline.name, topic=unit.topic, epoch=took.epoch,
                offset=took.offset, backlog=took.has_backlog, ms=round((time.monotonic() - began) * 1000),
            )  # fmt: skip
        return took

    def _take_over_unit(
        self, unit: UnitRef, above: int, *, look: bool, here: bool
    ) -> UnitTakenOver | OperationFailed:
        try:
            bounds = self._topics.require_bounds(unit)
            with self._hands.borrow_connections() as sessions:
                taken = take_unit(
                    sessions.get_connection(0), self._pipeline, unit.topic, unit.topic_id, bounds,
                    assigned=unit.assignment, above=above,
                )  # fmt: skip
                try:
                    return self._go_on(unit, taken, bounds[1], sessions, look=look, here=here)
                except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
                    return self._record_failure(unit, taken.epoch, error, sessions, taken.was)
        except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
            return build_failure(unit, error)

    def _go_on(
        self,
        unit: UnitRef,
        taken: TakeoverResult,
        end: int,
        sessions: ConnectionCache,
        *,
        look: bool,
        here: bool,
    ) -> UnitTakenOver | OperationFailed:
        """Finish a takeover after the fencing token is raised."""
        debezium = unit.source in self._pipeline.debezium
        refusal = self._topics.find_topic_problem(unit, debezium=debezium)
        if refusal is not None:
            raise UnitStoppedError.from_problem(refusal)
        if taken.lost is not None:
            taken = self._stretches.continue_in_topic(unit, taken, taken.lost, sessions, debezium=debezium)
        if look or self._looks.was_misfit(unit):  # otherwise the takeover does not wait for this check
            misfit = self._looks.find_misfit(sessions.get_connection(0), unit, taken.definition)
            if misfit is not None:
                raise UnitStoppedError.from_problem(misfit)
        lacks = self._looks.find_needed_copy(unit, taken.definition, taken.lowest.offset)
        if lacks is not None and taken.lowest.offset + 1 >= end:
            raise lacks  # otherwise the attempt raises it, or finds where a copy begins
        if taken.definition is None and debezium:
            spec = self._stretches.build_spec(unit, taken.epoch, taken.was)
            stopped = define_unit(self._pipeline, spec, sessions)
            if stopped is not None:
                return build_stop(unit, taken.epoch, encode_problem(stopped))
        here = here or taken.gap or taken.was is not None or lacks is not None
        return self._stretches.catch_up(unit, taken, end, sessions, here=here)

    def _record_failure(
        self, unit: UnitRef, epoch: int, error: Exception, sessions: ConnectionCache, was: str | None = None
    ) -> OperationFailed:
        """Record in the target why a unit that this process owns is stopped.

        A failure to record it changes nothing else.
        """
        trouble = replace(build_failure(unit, error), epoch=epoch)
        if trouble.waits:
            try:
                stop_topic(self._stretches.build_spec(unit, epoch, was), sessions, trouble.error)
            except Exception as failure:  # noqa: BLE001  # logged, and kept in memory
                log.warning("stop of a unit not recorded", topic=unit.topic, error=str(failure)[:300])
                sessions.drop_connection(0)
        return trouble

    def apply_range(self, asked: ApplyRange) -> RangeApplied | OperationFailed:
        """Apply a range of the unit's events directly. The unit is owned here and has no query yet."""
        unit, start = asked.unit, asked.offset + 1
        try:
            _, end = self._topics.require_bounds(unit)
            if (end <= start and not asked.trial) or self._stretches.is_aborted(unit):
                return RangeApplied(unit.topic, unit.assignment)
            with self._hands.borrow_connections() as sessions:
                try:
                    return self._stretches.apply_range(unit, asked.epoch, sessions, start, max(start, end))
                except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
                    return self._record_failure(unit, asked.epoch, error, sessions)
        except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
            return build_failure(unit, error)

    # -- probe and check

    def probe_stopped(self, asked: ProbeStopped) -> StoppedProbed:
        """Read what a stopped unit depends on: its topic, target table and bookkeeping, the copy that it
        needs, and where the last copy of its table begins, which may end any stop.
        """
        unit = asked.unit
        try:
            self._stretches.forget_definition(unit.topic, unit.assignment)
            found = self._topics.describe_topic(unit)
            first = self._topics.fetch_bounds([unit.topic]).get(unit.topic, (-1, -1))[0]
            with self._hands.borrow_connections() as sessions:
                seen, real = self._looks.probe_stopped(sessions.get_connection(0), unit)
            copy = None if asked.copy is None else self._copies.check_needed_copy(unit, asked.copy, asked.why)
            copied_from = self._copies.find_copy_offset(unit)
        except Exception as error:  # noqa: BLE001  # probed again, or retried later
            log.info("check of a waiting unit failed", topic=unit.topic, error=str(error)[:300])
            return StoppedProbed(unit.topic, unit.assignment)
        all_seen = repr((found, first, seen, copy and copy.digest, copied_from))
        digest = hashlib.blake2b(all_seen.encode(), digest_size=16).hexdigest()
        return StoppedProbed(
            unit.topic, unit.assignment, digest, unit.topic_id if found is None else found.id, real,
            message=None if copy is None else copy.waiting_reason, begun=copy is not None and copy.has_begun,
        )  # fmt: skip

    def check_table(self, asked: CheckTable) -> TableChecked:
        """Check whether the target table of a running unit still fits; record in the target that the unit is
        stopped if it does not. Running units are checked every minute, so old entries of the quarantine's
        history are deleted here, too.
        """
        self._history.clean()
        unit, why = asked.unit, None
        try:
            split = self._topics.find_partitions_problem(
                unit, debezium=unit.source in self._pipeline.debezium
            )
            with self._hands.borrow_connections() as sessions:
                problem = split or self._looks.explain_unfit(sessions.get_connection(0), unit)
        except Exception as error:  # noqa: BLE001  # checked again later
            log.info("running unit not checked", topic=unit.topic, error=str(error)[:300])
            problem = None
        if problem is not None:
            why = encode_problem(problem)
            self._record_stop(unit, asked.epoch, why)
        return TableChecked(unit.topic, unit.assignment, asked.epoch, why)

    def _record_stop(self, unit: UnitRef, epoch: int, why: str) -> None:
        """Record in the target that the unit is stopped. It stops in this process in any case."""
        try:
            with self._hands.borrow_connections() as sessions:
                sessions.get_connection(0).stop_unit(ApplyUnit(self._pipeline.name, unit.topic), epoch, why)
        except Exception as error:  # noqa: BLE001  # the next takeover finds the problem again, and records it
            log.warning("stop of a unit not recorded", topic=unit.topic, error=str(error)[:300])

    # -- stop

    def fence_unit(self, asked: FenceUnit) -> UnitFenced:
        """Fence the unit, however long it takes (consumer.process.operations.fencing)."""
        return self._fencing.fence(asked)
