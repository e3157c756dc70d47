"""Blocking operations on one unit: prepare, take over, probe, check, fence.

A few threads serve all units of a pipeline; the core runs one operation on a unit at a time. Events are
applied by slots (consumer.slots); a takeover applies none.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

import structlog
from msgspec import structs

from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.drivers.run import continue_in_topic, stop_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.errors import CopyNeededError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.ordering.recovery import list_untried_keys
from consumer.process.operations.copy_desk import UnitCopies
from consumer.process.operations.fencing import UnitFencing, UnitSlots
from consumer.process.operations.history import HistoryCleaner
from consumer.process.operations.target_checks import TargetProbe
from consumer.process.operations.unit_resources import (
    TargetConnectionPool,
    UnitTopics,
    build_failure,
    build_stop,
)
from consumer.process.takeover import TakeoverResult, define_unit, take_unit
from consumer.slots.connections import ConnectionCache
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.served_pipeline import UnitInputs
from consumer.tables.discovery import KafkaCluster
from consumer.tables.stored import is_sweeping
from consumer.units.messages import (
    CheckTable,
    FenceUnit,
    OperationFailed,
    PrepareTarget,
    ProbeStopped,
    StoppedProbed,
    TableChecked,
    TakeOver,
    TargetPrepared,
    UnitFenced,
    UnitTakenOver,
)
from consumer.units.unit import UnitRef
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import TargetConfig
from schemas.findings import START_OVER
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
        slots: UnitSlots,
        seen: Callable[[str, str, int], None],
        copies: UnitCopies,
        report_wait: Callable[[Report], None],
    ) -> None:
        """`slots`: shows whether a slot applies a unit. `seen` receives (source, topic, last offset) of every
        topic that an operation reads. `report_wait`: receives reports of units that wait for row locks while
        an operation writes.
        """
        self._pipeline = pipeline
        self._topics = UnitTopics(KafkaCluster(pipeline.bootstrap, pipeline.kafka_options), seen)
        self._hands = TargetConnectionPool(pipeline)
        self._copies = copies
        self._locks = LockWatch(report_wait)
        self._inputs = UnitInputs(pipeline, self._locks.watch_transaction, {})
        self._looks = TargetProbe(pipeline)
        self._fencing = UnitFencing(pipeline, self._hands, slots)
        self._history = HistoryCleaner(pipeline, self._hands)
        self._aborted: set[tuple[str, int]] = set()
        self._logged_offsets: dict[tuple[str, int], int] = {}
        """The offset at which each unit was taken over last, by topic and assignment."""

    def abort_operation(self, topic: str, assignment: int) -> None:
        """Make the unit's running operation end soon.

        Applies to later operations too, until the unit is forgotten.
        """
        self._aborted.add((topic, assignment))

    def forget_unit(self, topic: str, assignment: int) -> None:
        """Forget everything that is kept for a unit that has ended."""
        self._aborted.discard((topic, assignment))
        self._logged_offsets.pop((topic, assignment), None)
        self._looks.forget_unit(topic, assignment)

    def close(self) -> None:
        """Close the idle connections, and end the watch of row locks."""
        self._locks.close()
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
        except Exception as error:  # noqa: BLE001  # nothing can be done without its topic
            return structs.replace(build_failure(unit, error), should_retry=True, waits=False)
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

    def take_over(self, asked: TakeOver) -> UnitTakenOver | OperationFailed:
        """Take a unit over for this process: raise its fencing token."""
        unit, began = asked.unit, time.monotonic()
        took = self._take_over_unit(unit, asked.above, look=asked.look)
        if isinstance(took, UnitTakenOver) and self._is_news(unit, took):
            log.info(
                "unit taken over", pipeline=self._pipeline.name, topic=unit.topic, epoch=took.epoch,
                offset=took.offset, left=took.end - took.offset - 1,
                ms=round((time.monotonic() - began) * 1000),
            )  # fmt: skip
        return took

    def _is_news(self, unit: UnitRef, took: UnitTakenOver) -> bool:
        """Return whether this process took the unit over at another offset before, or not at all. A stopped
        unit is retried at intervals, which is no news.
        """
        place = unit.topic, unit.assignment
        is_news = self._logged_offsets.get(place) != took.offset
        self._logged_offsets[place] = took.offset
        return is_news

    def _take_over_unit(self, unit: UnitRef, above: int, *, look: bool) -> UnitTakenOver | OperationFailed:
        try:
            bounds = self._topics.require_bounds(unit)
            with self._hands.borrow_connections() as sessions:
                taken = take_unit(
                    sessions.get_connection(0), self._pipeline, unit.topic, unit.topic_id, bounds,
                    assigned=unit.assignment, above=above,
                )  # fmt: skip
                try:
                    return self._go_on(unit, taken, bounds[1], sessions, look=look)
                except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
                    return self._record_failure(unit, taken.epoch, error, sessions, taken.was)
        except Exception as error:  # noqa: BLE001  # see consumer.attempt.unit_errors
            return build_failure(unit, error)

    def _go_on(
        self, unit: UnitRef, taken: TakeoverResult, end: int, sessions: ConnectionCache, *, look: bool
    ) -> UnitTakenOver | OperationFailed:
        """Finish a takeover after the fencing token is raised."""
        debezium = unit.source in self._pipeline.debezium
        refusal = self._topics.find_topic_problem(unit, debezium=debezium)
        if refusal is not None:
            raise UnitStoppedError.from_problem(refusal)
        if taken.lost is not None:
            taken = self._continue_in_topic(unit, taken, taken.lost, sessions, debezium=debezium)
        if look or self._looks.was_misfit(unit):  # otherwise the takeover does not wait for this check
            misfit = self._looks.find_misfit(sessions.get_connection(0), unit, taken.definition)
            if misfit is not None:
                raise UnitStoppedError.from_problem(misfit)
        lacks = self._looks.find_needed_copy(unit, taken.definition, taken.lowest.offset)
        if lacks is not None and taken.lowest.offset + 1 >= end:
            raise lacks  # otherwise the attempt raises it, or finds where a copy begins
        if taken.definition is None and debezium:
            stopped = define_unit(self._pipeline, self._build_spec(unit, taken.epoch, taken.was), sessions)
            if stopped is not None:
                return build_stop(unit, taken.epoch, encode_problem(stopped))
        lowest = taken.lowest
        return UnitTakenOver(
            unit.topic, unit.assignment, taken.epoch, lowest.offset, end, lowest.position, taken.commit_ts_ms,
            was=taken.was, trial=self._has_waiting_work(unit, taken, sessions),
        )  # fmt: skip

    def _continue_in_topic(
        self,
        unit: UnitRef,
        taken: TakeoverResult,
        lost: CopyNeededError,
        sessions: ConnectionCache,
        *,
        debezium: bool,
    ) -> TakeoverResult:
        """Continue in a topic that has other offsets than the progress, at a copy there.

        Raises `lost` if none has begun. Debezium's topics have no begin of a copy that proves what is lost.
        """
        if debezium:
            raise UnitStoppedError(lost.seen, START_OVER)
        spec = replace(self._build_spec(unit, taken.epoch, taken.was), topic_id=taken.rows[0].topic_id)
        inputs = self._inputs.build(
            spec, iter(()), lambda: (unit.topic, unit.assignment) not in self._aborted
        )
        continue_in_topic(spec, sessions, inputs, unit.topic_id, lost)
        rows, _ = sessions.get_connection(0).read_progress(spec.unit)
        return replace(taken, rows=rows, lost=None)

    def _has_waiting_work(self, unit: UnitRef, taken: TakeoverResult, sessions: ConnectionCache) -> bool:
        """Return whether an earlier attempt has left keys in quarantine untried, or ranges of a key sweep
        uncompared: these would otherwise wait for the next event of the topic. A target of events has
        neither.
        """
        if find_target_kind(self._pipeline.target.type).events:
            return False
        if taken.definition is not None and is_sweeping(taken.definition):
            return True
        entries = sessions.get_connection(0).read_quarantine(ApplyUnit(self._pipeline.name, unit.topic))
        return bool(list_untried_keys(entries, taken.lowest.offset))

    def _build_spec(self, unit: UnitRef, epoch: int, was: str | None) -> UnitSpec:
        """Return the settings of an operation's own attempt. `was`: why the unit was stopped before."""
        spec = self._pipeline.build_unit_spec(
            unit.topic, unit.source,
            epoch=epoch, topic_id=unit.topic_id, assigned=unit.assignment, real=unit.real,
        )  # fmt: skip
        return replace(spec, was=was, copy_at=self._copies.find_copy_offset(unit))

    def _record_failure(
        self, unit: UnitRef, epoch: int, error: Exception, sessions: ConnectionCache, was: str | None = None
    ) -> OperationFailed:
        """Record in the target why a unit that this process owns is stopped.

        A failure to record it changes nothing else.
        """
        trouble = structs.replace(build_failure(unit, error), epoch=epoch)
        if trouble.waits:
            try:
                stop_topic(self._build_spec(unit, epoch, was), sessions, trouble.error)
            except Exception as failure:  # noqa: BLE001  # logged, and kept in memory
                log.warning("stop of a unit not recorded", topic=unit.topic, error=str(failure)[:300])
                sessions.drop_connection(0)
        return trouble

    # -- probe and check

    def probe_stopped(self, asked: ProbeStopped) -> StoppedProbed:
        """Read what a stopped unit depends on: its topic, target table and bookkeeping, the copy that it
        needs, and where the last copy of its table begins, which may end any stop.
        """
        unit = asked.unit
        try:
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
