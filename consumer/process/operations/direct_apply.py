"""Direct apply: applies a unit's events without Spark, a range at a time, by the same code as Spark's
workers.

It applies a short backlog during a takeover, and new events while no query serves the unit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.snapshots import find_newest_snapshot
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.drivers.run import apply_topic, continue_in_topic
from consumer.attempt.effects import TableSnapshot
from consumer.attempt.readers.kafka_reader import build_reader_settings, read_range, read_rest
from consumer.attempt.reports import Report
from consumer.attempt.spec import SMALL_BATCH, UnitAssignment, UnitSpec
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.ordering.recovery import list_untried_keys
from consumer.process.operations.unit_resources import build_stop
from consumer.process.takeover import TakeoverResult
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.worker import ConnectionCache
from consumer.tables.definition import ActiveDefinition
from consumer.tables.shared_tables import SharedTableReader
from consumer.tables.source_tables import find_source_keys, read_definition
from consumer.tables.stored import is_sweeping
from consumer.units.messages import OperationFailed, RangeApplied, UnitTakenOver
from consumer.units.progress_checks import MAX_LIVE_BACKLOG
from consumer.units.unit import UnitRef
from schemas.config.kinds.targets import find_target_kind
from schemas.findings import START_OVER
from schemas.problems import Problem, encode_problem

MAX_DIRECT_EVENTS = 60_000
"""A takeover applies a backlog of up to this many events directly, because the catching-up query needs a
second to start."""

SWEEP_S = 0.5
"""Seconds for which a range of events is followed by a comparison of ranges of a key sweep. So long the next
events wait."""


class DirectApplier:
    """Applies the units of one pipeline directly.

    It keeps the units' active definitions, what it remembers of their key sweeps, the number of takeovers
    that are running or queued, and the aborted operations.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        copy_at: Callable[[UnitRef], int | None] = lambda _unit: None,
        report_wait: Callable[[Report], None] = lambda _report: None,
    ) -> None:
        """`copy_at`: returns the offset in a unit's topic at which the last copy of its table begins, if
        known. `report_wait`: see LockWatch.
        """
        self._pipeline, self._copy_at = pipeline, copy_at
        self._locks = LockWatch(report_wait)
        self._reader = build_reader_settings(pipeline.bootstrap, pipeline.kafka_options)
        self._tables: dict[UnitAssignment, ActiveDefinition] = {}
        self._key_sweeps: dict[UnitAssignment, KeySweep] = {}
        self._sharers = SharedTableReader()
        self._aborted: set[tuple[str, int]] = set()
        self._mutex = threading.Lock()
        self._taking = 0

    def close(self) -> None:
        """End the watch of row locks. Nothing is applied any more."""
        self._locks.close()

    def abort_operation(self, topic: str, assignment: int) -> None:
        """Make the unit's running operation end soon.

        Applies to later operations too, until the unit is forgotten.
        """
        self._aborted.add((topic, assignment))

    def forget_unit(self, topic: str, assignment: int) -> None:
        self._aborted.discard((topic, assignment))
        self.forget_definition(topic, assignment)

    def forget_definition(self, topic: str, assignment: int) -> None:
        """Forget the unit's active definition, so that it is read from the target again."""
        place = ApplyUnit(self._pipeline.name, topic), assignment
        self._tables.pop(place, None)
        self._key_sweeps.pop(place, None)

    def queue_takeover(self) -> None:
        """Count a requested takeover, which may have to wait for a thread."""
        with self._mutex:
            self._taking += 1

    @contextmanager
    def track_takeover(self) -> Iterator[None]:
        """Keep a takeover counted until it has ended."""
        try:
            yield
        finally:
            with self._mutex:
                self._taking -= 1

    @property
    def _max_direct_events(self) -> int:
        """The largest backlog applied directly now.

        It is smaller while many units start at once: Spark is then faster.
        """
        return MAX_DIRECT_EVENTS if self._taking <= 2 else SMALL_BATCH

    def build_spec(self, unit: UnitRef, epoch: int, was: str | None = None) -> UnitSpec:
        """Return the settings of an attempt at the unit. `was`: why the unit was stopped before."""
        spec = self._pipeline.build_unit_spec(
            unit.topic, unit.source,
            epoch=epoch, topic_id=unit.topic_id, assigned=unit.assignment, real=unit.real,
        )  # fmt: skip
        return replace(spec, was=was, copy_at=self._copy_at(unit))

    def catch_up(
        self, unit: UnitRef, taken: TakeoverResult, end: int, sessions: ConnectionCache, *, here: bool = False
    ) -> UnitTakenOver | OperationFailed:
        """Apply a short backlog up to `end`, in ranges of one transaction each.

        `here`: apply the next range directly even if the backlog is long.
        """
        lowest = taken.lowest
        took = UnitTakenOver(
            unit.topic, unit.assignment, taken.epoch, lowest.offset,
            position=lowest.position, commit_ts_ms=taken.commit_ts_ms,
        )  # fmt: skip
        if took.offset + 1 >= end and (report := self._apply_no_records(unit, taken, sessions)):
            took = _add_report(took, report)
            if trouble := self._check_report(unit, taken.epoch, report, taken.lowest.offset, end):
                return trouble
        while took.offset + 1 < end and not self.is_aborted(unit):
            if not here and end - (took.offset + 1) > self._max_direct_events:
                return replace(took, has_backlog=True)
            here = False
            upto = min(took.offset + 1 + MAX_LIVE_BACKLOG, end)
            spec = self.build_spec(unit, taken.epoch, taken.was)
            report = self._apply_records(spec, sessions, took.offset + 1, upto)
            trouble = self._check_report(unit, taken.epoch, report, took.offset + 1, end)
            if trouble is not None:
                return trouble
            took = _add_report(took, report)
        return took

    def continue_in_topic(
        self,
        unit: UnitRef,
        taken: TakeoverResult,
        lost: CopyNeededError,
        sessions: ConnectionCache,
        *,
        debezium: bool,
    ) -> TakeoverResult:
        """Move a unit whose progress has other offsets than its topic to a copy there.

        Raises `lost` if none has begun. Debezium's topics have no begin of a copy that proves what is lost.
        """
        if debezium:
            raise UnitStoppedError(lost.seen, START_OVER)
        spec = replace(self.build_spec(unit, taken.epoch, taken.was), topic_id=taken.rows[0].topic_id)
        continue_in_topic(spec, sessions, self._make_inputs(spec, 0, 0), unit.topic_id, lost)
        rows, _ = sessions.get_connection(0).read_progress(spec.unit)
        return replace(taken, rows=rows, lost=None)

    def _apply_no_records(
        self, unit: UnitRef, taken: TakeoverResult, sessions: ConnectionCache
    ) -> Report | None:
        """Run an attempt without records if an earlier one left keys in quarantine untried, or ranges of a
        key sweep uncompared.

        Otherwise they would wait for the next event of the topic. A target of events has neither.
        """
        if find_target_kind(self._pipeline.target.type).events:
            return None
        entries = sessions.get_connection(0).read_quarantine(ApplyUnit(self._pipeline.name, unit.topic))
        sweeping = taken.definition is not None and is_sweeping(taken.definition)
        if not sweeping and not list_untried_keys(entries, taken.lowest.offset):
            return None
        end = taken.lowest.offset + 1
        return self._apply_records(self.build_spec(unit, taken.epoch, taken.was), sessions, end, end)

    def apply_range(
        self, unit: UnitRef, epoch: int, sessions: ConnectionCache, start: int, end: int
    ) -> RangeApplied | OperationFailed:
        """Apply one range of [start, end). If it is empty, only what waits for no record is done."""
        upto = min(start + MAX_LIVE_BACKLOG, end)
        sweep_s = SWEEP_S if upto == end else 0.0  # otherwise events wait
        report = self._apply_records(self.build_spec(unit, epoch), sessions, start, upto, sweep_s)
        trouble = self._check_report(unit, epoch, report, start, end)
        return trouble or RangeApplied(unit.topic, unit.assignment, report, end - (report.offset + 1))

    def is_aborted(self, unit: UnitRef) -> bool:
        """Return whether the unit's running operation should end."""
        return (unit.topic, unit.assignment) in self._aborted

    def _check_report(
        self, unit: UnitRef, epoch: int, report: Report, start: int, end: int
    ) -> OperationFailed | None:
        """Return what stops or delays the unit after a range that began at `start`.

        Raises UnitStoppedError.
        """
        if report.state == "stopped":
            return build_stop(unit, epoch, report.message, report.copy)
        if report.state != "ok":
            return OperationFailed(
                unit.topic, unit.assignment, report.message, should_retry=True, epoch=epoch
            )
        is_stuck = report.offset < start < end
        return self._explain_no_records(unit, epoch, start, end) if is_stuck else None

    def _explain_no_records(self, unit: UnitRef, epoch: int, start: int, end: int) -> OperationFailed:
        """Return the failure of a unit if [start, end) of its topic was read and held no record: its
        progress would never reach the end.
        """
        what = f"{unit.topic}: offsets {start} to {end - 1} hold no records"
        if unit.source not in self._pipeline.debezium:  # a new leader may not know its own topic's end yet
            why = encode_problem(Problem(f"{what} yet"))
            return OperationFailed(unit.topic, unit.assignment, why, should_retry=True, epoch=epoch)
        raise UnitStoppedError(
            f"{what}: these offsets are commit markers of Kafka transactions, and rowlock reads only topics "
            "that are written without transactions",
            "set exactly.once.source.support=disabled for the workers of Debezium's "
            f"connector, and {START_OVER}",
        )

    def _apply_records(
        self, spec: UnitSpec, sessions: ConnectionCache, start: int, end: int, sweep_s: float = 0.0
    ) -> Report:
        small_batch = min(MAX_LIVE_BACKLOG, spec.limits.max_gather)  # one transaction, if possible
        return apply_topic(
            replace(spec, small_batch=small_batch, patient=True, sweep_s=sweep_s),
            sessions,
            self._make_inputs(spec, start, end),
            self._tables,
        )

    def _make_inputs(self, spec: UnitSpec, start: int, end: int) -> AttemptInputs:
        """Return the inputs of an attempt at the records in [start, end)."""
        topic, assigned = spec.unit.topic, spec.assigned
        read = partial(read_range, self._reader, topic)
        rest_reader = partial(read_rest, self._reader, topic)
        return AttemptInputs(
            read(start, end) if start < end else (),
            read_missing=read,
            find_begin=partial(find_begin, read, rest_reader),
            find_snapshot=partial(self._find_snapshot, spec),
            read_rest=rest_reader,
            ask_source=lambda table, keys: find_source_keys(
                self._pipeline.debezium[spec.source], spec.source, table, keys
            ),
            key_sweeps=self._key_sweeps,
            is_assigned=lambda: (topic, assigned) not in self._aborted,
            watch_transaction=self._locks.watch_transaction,
            sharers=self._sharers,
        )

    def _find_snapshot(self, spec: UnitSpec, after: int) -> TableSnapshot | None:
        """Return the newest snapshot after `after`, with its definition; see
        consumer.attempt.effects.FindSnapshot.
        """
        topic, pipeline = spec.unit.topic, self._pipeline
        rows = find_newest_snapshot(partial(read_rest, self._reader, topic), after)
        if rows is None:
            return None
        table = read_definition(pipeline.debezium[spec.source], spec.source, pipeline.prefix, topic)
        return TableSnapshot(*rows, table)


def _add_report(took: UnitTakenOver, report: Report) -> UnitTakenOver:
    """Return a takeover with what one more attempt of it has done."""
    return replace(
        took, offset=report.offset, position=report.position, applied=took.applied + report.applied,
        held=took.held + report.held, displaced=took.displaced + report.displaced,
        lanes=took.lanes.merge(report.lanes), commit_ts_ms=max(took.commit_ts_ms, report.commit_ts_ms),
        trial_in_s=report.trial_in_s, sweeping=report.sweeping,
    )  # fmt: skip
