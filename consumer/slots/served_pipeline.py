"""One pipeline in a slot: its settings, definitions and consumers, and attempts at its units."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.snapshots import find_newest_snapshot
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.drivers.run import apply_topic, stop_topic
from consumer.attempt.effects import TableSnapshot
from consumer.attempt.readers.kafka_reader import (
    build_reader_settings,
    read_new_records,
    read_range,
    read_rest,
)
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec
from consumer.attempt.unit_errors import Trouble, classify_error
from consumer.errors import ConsumerError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.slots.connections import ConnectionCache, ignore_unreachable
from consumer.slots.messages import ServeUnit
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.schedule import ServedUnit, Turn
from consumer.slots.topic_follower import LoseRecords, TakeRecords, TopicFollower, build_follower_settings
from consumer.tables.definition import ActiveDefinition
from consumer.tables.shared_tables import SharedTableReader
from consumer.tables.source_tables import find_source_keys, read_definition
from consumer.targets.session import SqlSession
from schemas.findings import START_OVER
from schemas.io.kafka_clients import report_unreachable
from schemas.io.kafka_passwords import use_passwords_of
from schemas.problems import decode_problem, encode_problem

log = structlog.get_logger(__name__)

MAX_RANGE = 200_000
"""The most offsets of one attempt at a unit that reads by itself."""
TURN_S = 2.0
"""Seconds after which an attempt takes no further records while other units wait for their turn."""
SWEEP_S = 0.5
"""Seconds for which an attempt without waiting events compares ranges of a key sweep. So long the next
events wait."""

WatchTransaction = Callable[[UnitSpec, int, SqlSession], AbstractContextManager[None]]


class UnitInputs:
    """Builds the inputs of attempts at the units of one pipeline."""

    def __init__(
        self,
        settings: PipelineSettings,
        watch: WatchTransaction,
        key_sweeps: MutableMapping[UnitAssignment, KeySweep | TableSweep],
        on_unreachable: Callable[[str], None] = ignore_unreachable,
    ) -> None:
        """`on_unreachable`: receives why no broker of Kafka can be reached."""
        on_error = report_unreachable(on_unreachable)
        self.reader = build_reader_settings(settings.bootstrap, settings.kafka_options, on_error)
        self._settings, self._watch, self._key_sweeps = settings, watch, key_sweeps
        self._sharers = SharedTableReader()

    def build(
        self, spec: UnitSpec, slices: Iterator[RecordSlice], is_assigned: Callable[[], bool] = lambda: True
    ) -> AttemptInputs:
        topic = spec.unit.topic
        read = partial(read_range, self.reader, topic)
        rest_reader = partial(read_rest, self.reader, topic)
        debezium = self._settings.debezium
        return AttemptInputs(
            slices,
            read_missing=read,
            find_begin=partial(find_begin, read, rest_reader),
            find_snapshot=partial(self._find_snapshot, spec),
            read_rest=rest_reader,
            ask_source=lambda table, keys: find_source_keys(debezium[spec.source], spec.source, table, keys),
            key_sweeps=self._key_sweeps,
            is_assigned=is_assigned,
            watch_transaction=self._watch,
            sharers=self._sharers,
        )

    def _find_snapshot(self, spec: UnitSpec, after: int) -> TableSnapshot | None:
        """Return the newest snapshot after `after`, with its definition; see
        consumer.attempt.effects.FindSnapshot.
        """
        topic, settings = spec.unit.topic, self._settings
        rows = find_newest_snapshot(partial(read_rest, self.reader, topic), after)
        if rows is None:
            return None
        table = read_definition(settings.debezium[spec.source], spec.source, settings.prefix, topic)
        return TableSnapshot(*rows, table)


class ServedPipeline:
    """A pipeline in one slot. `report` receives what its transactions wait for, from any thread."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        report: Callable[[Report], None],
        take: TakeRecords,
        lose: LoseRecords,
        others_wait: Callable[[], bool],
        on_unreachable: Callable[[str], None],
    ) -> None:
        """`take`, `lose`: see TopicFollower. `others_wait`: returns whether units wait for their turn.
        `on_unreachable`: receives why Kafka or the target cannot be reached, from any thread.
        """
        self.settings, self._on_unreachable = settings, on_unreachable
        self._others_wait = others_wait
        self._tables: dict[UnitAssignment, ActiveDefinition] = {}
        self._key_sweeps: dict[UnitAssignment, KeySweep | TableSweep] = {}
        self._locks = LockWatch(report)
        self._inputs = UnitInputs(settings, self._locks.watch_transaction, self._key_sweeps, on_unreachable)
        self.reader = TopicFollower(
            build_follower_settings(settings.bootstrap, settings.kafka_options), settings.name, take, lose,
            on_unreachable,
        )  # fmt: skip

    def use_settings(self, settings: PipelineSettings) -> None:
        """Use these settings from now on, which differ in secrets alone."""
        use_passwords_of(settings.kafka)
        self.settings = settings

    def make_connections(self, number: int) -> ConnectionCache:
        """Return the connections of the thread `number` of the slot."""
        return ConnectionCache(
            self.settings.target, f"rowlock {self.settings.name} {number}", self._on_unreachable
        )

    def forget_unit(self, serve: ServeUnit) -> None:
        """Forget what is kept for a unit that is served elsewhere from now on, or stopped."""
        place = ApplyUnit(self.settings.name, serve.topic), serve.assignment
        self._tables.pop(place, None)
        self._key_sweeps.pop(place, None)

    def close(self) -> None:
        self.reader.close()
        self._locks.close()

    def run_attempt(self, turn: Turn, connections: ConnectionCache) -> tuple[Report, int]:
        """Run one attempt, and return its report and the topic's next offset, 0 if that was not read.

        Never raises: an error of any class is the unit's own (consumer.attempt.unit_errors).
        """
        serve = turn.unit.serve
        records = _TurnRecords(turn, self._inputs.reader, self._others_wait)
        has_time = turn.records is not None and not turn.unit.records
        spec = self._build_spec(serve, sweep_s=SWEEP_S if has_time else 0.0)
        try:
            inputs = self._inputs.build(spec, iter(records), lambda: not turn.unit.releasing)
            report = apply_topic(spec, connections, inputs, self._tables)
            if report.state == "ok" and records.is_empty_range:
                self._refuse_empty_range(spec, turn, records.end, connections)
        except Exception as error:  # noqa: BLE001  # classified, and logged if it is an error of rowlock
            report = _build_failure_report(turn, error)
        if report.state == "stopped":
            connections.close()  # a right that ends the stop may hold for new sessions only, as in MySQL
        _log_report(report)
        return report, records.end

    def _build_spec(self, serve: ServeUnit, sweep_s: float) -> UnitSpec:
        spec = self.settings.build_unit_spec(
            serve.topic, serve.source,
            epoch=serve.epoch, topic_id=serve.topic_id, assigned=serve.assignment, real=serve.real,
        )  # fmt: skip
        return replace(spec, was=serve.was, copy_at=serve.copy_at, patient=True, sweep_s=sweep_s)

    def _refuse_empty_range(self, spec: UnitSpec, turn: Turn, end: int, connections: ConnectionCache) -> None:
        """Stop a unit whose range was read and held no record: its progress would never reach the end. A new
        leader of the topic may not know the topic's end yet, so rowlock's own topics are read again.

        Raises UnitStoppedError.
        """
        if turn.unit.serve.source not in self.settings.debezium:
            return
        error = UnitStoppedError(
            f"{spec.unit.topic}: offsets {turn.start} to {end - 1} hold no records: these offsets are commit "
            "markers of Kafka transactions, and rowlock reads only topics that are written without "
            "transactions",
            "set exactly.once.source.support=disabled for the workers of Debezium's "
            f"connector, and {START_OVER}",
        )
        try:
            stop_topic(spec, connections, encode_problem(error.problem))
        except ConsumerError as failure:  # the report stops the unit all the same
            log.error("stop not recorded", topic=spec.unit.topic, error=str(failure)[:300])
        raise error


class _TurnRecords:
    """The records of one attempt, slice by slice, while its unit stays here.

    `end`: the topic's next offset once the attempt has read it.
    """

    def __init__(self, turn: Turn, reader: dict[str, Any], others_wait: Callable[[], bool]) -> None:
        self._turn, self._reader, self._others_wait = turn, reader, others_wait
        self._began = time.monotonic()
        self._given = 0
        self.end = 0

    def __iter__(self) -> Iterator[RecordSlice]:
        for records in self._read():
            if self._turn.unit.releasing:
                return
            self._given += 1
            yield records
            if time.monotonic() > self._began + TURN_S and self._others_wait():
                return

    def _read(self) -> Iterator[RecordSlice]:
        turn = self._turn
        if turn.records is not None:
            return iter([turn.records] if turn.records else [])
        return read_new_records(self._reader, turn.unit.serve.topic, turn.start, MAX_RANGE, self._note_end)

    def _note_end(self, end: int) -> None:
        self.end = end

    @property
    def is_empty_range(self) -> bool:
        """True if the topic should have had records here, and had none."""
        return self._turn.start < self.end and not self._given and not self._turn.unit.releasing


def _build_failure_report(turn: Turn, error: Exception) -> Report:
    unit: ServedUnit = turn.unit
    topic = unit.serve.topic
    trouble: Trouble = classify_error(topic, error)
    if trouble.fault:
        log.error("unit failed by an internal error", topic=topic, exc_info=error)
    return Report(
        topic, trouble.state, unit.serve.epoch, turn.start - 1,
        message=encode_problem(trouble.problem), copy=trouble.copy,
    )  # fmt: skip


CONTINUED_ELSEWHERE = (
    "another command or process has worked on the unit, for example `rowlock quarantine retry`; it goes on"
)


def _log_report(report: Report) -> None:
    """Log a failed attempt. A stopped unit is logged once, by the process that owns it."""
    if report.state == "fenced":  # as each takeover does it: the newer attempt goes on
        seen = str(decode_problem(report.message))
        log.info("unit was continued elsewhere", topic=report.topic, message=CONTINUED_ELSEWHERE, seen=seen)
    elif report.state == "behind":
        message = str(decode_problem(report.message))
        log.warning("unit lags", topic=report.topic, offset=report.offset, message=message)
