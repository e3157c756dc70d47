"""Applies a unit's events beside Spark, a stretch at a time, by the same code as Spark's workers: what a takeover finds missing, if it
is little, and what comes while no query applies the unit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.snapshots import Reread, newest_snapshot
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.kafka_reader import read_range, read_rest, reader_settings
from consumer.attempt.reports import Report
from consumer.attempt.spec import SMALL_BATCH, UnitPlace, UnitSpec
from consumer.errors import UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.process.operations.hands import refused
from consumer.process.takeover import TakeoverResult
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.worker import ConnectionCache
from consumer.tables.definition import InForce
from consumer.tables.source_tables import keys_there, read_definition
from consumer.units.looks import SMALL
from consumer.units.messages import Failed, Followed, Took
from consumer.units.unit import About
from schemas.findings import START_OVER

BY_HAND = 60_000
"""On takeover a backlog of up to so many events is applied by the agent itself, before a Spark query gets the unit: the catching-up
query needs a second to start."""


class Stretches:
    """Of one pipeline. It knows which definitions were in force, how many units are being taken over, and what is of no use any more."""

    def __init__(
        self, pipeline: PipelineSettings, copy_at: Callable[[About], int | None] = lambda _unit: None
    ) -> None:
        """`copy_at`: where in a unit's topic the last copy of its table begins, as far as is known."""
        self._pipeline, self._copy_at = pipeline, copy_at
        self._reader = reader_settings(pipeline.bootstrap, pipeline.kafka_options)
        self._tables: dict[UnitPlace, InForce] = {}
        self._aborted: set[tuple[str, int]] = set()
        self._mutex = threading.Lock()
        self._taking = 0

    def abort(self, topic: str, assignment: int) -> None:
        """Make the unit's running operation end soon, until the unit is forgotten."""
        self._aborted.add((topic, assignment))

    def forget(self, topic: str, assignment: int) -> None:
        self._aborted.discard((topic, assignment))
        self.read_anew(topic, assignment)

    def read_anew(self, topic: str, assignment: int) -> None:
        """Whatever was in force of the unit's definition is read again from the target."""
        self._tables.pop((ApplyUnit(self._pipeline.name, topic), assignment), None)

    def announce(self) -> None:
        """A takeover has been asked for; it may have to wait for a hand."""
        with self._mutex:
            self._taking += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the takeover until it is over."""
        try:
            yield
        finally:
            with self._mutex:
                self._taking -= 1

    @property
    def _little(self) -> int:
        """Return how many events a hand applies itself now: when many units start at once, Spark is better at it."""
        return BY_HAND if self._taking <= 2 else SMALL_BATCH

    def spec(self, unit: About, epoch: int, was: str | None = None) -> UnitSpec:
        """Return what an attempt at the unit rests on. `was`: what it was stopped by before."""
        spec = self._pipeline.spec(
            unit.topic, unit.source,
            epoch=epoch, topic_id=unit.topic_id, assigned=unit.assignment, real=unit.real,
        )  # fmt: skip
        return replace(spec, was=was, copy_at=self._copy_at(unit))

    def catch_up(
        self, unit: About, taken: TakeoverResult, end: int, sessions: ConnectionCache, *, here: bool = False
    ) -> Took | Failed:
        """Apply what is missing up to `end`, if it is little, in stretches of one transaction each; `here`: the next stretch in any case."""
        lowest = taken.lowest
        took = Took(
            unit.topic, unit.assignment, taken.epoch, lowest.offset,
            position=lowest.position, commit_ts_ms=taken.commit_ts_ms,
        )  # fmt: skip
        while took.offset + 1 < end and not self.of_no_use(unit):
            if not here and end - (took.offset + 1) > self._little:
                return replace(took, behind=True)
            here = False
            upto = min(took.offset + 1 + SMALL, end)
            spec = self.spec(unit, taken.epoch, taken.was)
            report = self._apply(spec, sessions, took.offset + 1, upto)
            trouble = self._trouble(unit, taken.epoch, report, took.offset + 1, end)
            if trouble is not None:
                return trouble
            took = replace(
                took, offset=report.offset, position=report.position, applied=took.applied + report.applied,
                displaced=took.displaced + report.displaced,
                commit_ts_ms=max(took.commit_ts_ms, report.commit_ts_ms),
            )  # fmt: skip
        return took

    def follow(
        self, unit: About, epoch: int, sessions: ConnectionCache, start: int, end: int
    ) -> Followed | Failed:
        """Apply one stretch of [start, end), which is not empty."""
        report = self._apply(self.spec(unit, epoch), sessions, start, min(start + SMALL, end))
        trouble = self._trouble(unit, epoch, report, start, end)
        return trouble or Followed(unit.topic, unit.assignment, report, end - (report.offset + 1))

    def of_no_use(self, unit: About) -> bool:
        """Tell whether what is under way for the unit shall end."""
        return (unit.topic, unit.assignment) in self._aborted

    def _trouble(self, unit: About, epoch: int, report: Report, start: int, end: int) -> Failed | None:
        """Return what keeps the unit from going on behind a stretch that began at `start`. Raises UnitStoppedError."""
        if report.state == "stopped":
            return refused(unit, epoch, report.message, report.copy)
        if report.state != "ok":
            return Failed(unit.topic, unit.assignment, report.message, again=True, epoch=epoch)
        return self._no_records(unit, epoch, start, end) if report.offset < start else None

    def _no_records(self, unit: About, epoch: int, start: int, end: int) -> Failed:
        """Say why [start, end) of a topic could be read and nothing came: progress would never arrive at its end."""
        what = f"{unit.topic}: offsets {start} to {end - 1} hold no records"
        if unit.source not in self._pipeline.debezium:  # a new leader may not know its own topic's end yet
            return Failed(unit.topic, unit.assignment, f"{what} yet", again=True, epoch=epoch)
        raise UnitStoppedError(
            f"{what}: they are marks of Kafka transactions, and rowlock applies topics that are written without: set "
            f"exactly.once.source.support=disabled for the workers of Debezium's connector, and {START_OVER}"
        )

    def _apply(self, spec: UnitSpec, sessions: ConnectionCache, start: int, end: int) -> Report:
        topic, assigned = spec.unit.topic, spec.assigned
        read = partial(read_range, self._reader, topic)
        behind = partial(read_rest, self._reader, topic)
        return apply_topic(
            replace(
                spec, small_batch=min(SMALL, spec.limits.max_gather), patient=True
            ),  # one transaction, where that can be
            sessions,
            read(start, end),
            read_missing=read,
            tables=self._tables,
            find_begin=partial(find_begin, read, behind),
            find_snapshot=partial(self._find_snapshot, spec),
            read_behind=behind,
            ask_source=lambda table, keys: keys_there(
                self._pipeline.debezium[spec.source], spec.source, table, keys
            ),
            wanted=lambda: (topic, assigned) not in self._aborted,
        )

    def _find_snapshot(self, spec: UnitSpec, after: int) -> Reread | None:
        """See consumer.attempt.effects.FindSnapshot."""
        topic, pipeline = spec.unit.topic, self._pipeline
        rows = newest_snapshot(partial(read_rest, self._reader, topic), after)
        if rows is None:
            return None
        table = read_definition(pipeline.debezium[spec.source], spec.source, pipeline.prefix, topic)
        return Reread(*rows, table)
