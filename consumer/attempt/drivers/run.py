"""Runs one attempt at a unit of any target. The driver is chosen only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, cast

from consumer.attempt import effects as fx
from consumer.attempt.drivers.batches import BatchDriver, BatchTargets
from consumer.attempt.drivers.records import (
    AttemptRecords,
    BeginFinder,
    RangeReader,
    RestReader,
    SnapshotFinder,
    SourceLookup,
    find_no_begin,
    find_no_snapshot,
    read_nothing_after,
    refuse_source_lookup,
)
from consumer.attempt.drivers.threads import Sessions, ThreadDriver
from consumer.attempt.effects import ask_driver
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import DefinitionCache, UnitSpec
from consumer.attempt.transactions import retry_transient
from consumer.targets.base import UnitTarget
from schemas.table.model import Table


class Connections(Protocol):
    """The connections of a process to one target: one for each lane, or only number 0 for a whole-batch
    target.
    """

    def get_connection(self, number: int) -> UnitTarget:
        """Return a Session or a BatchTarget, connecting if needed. Raises TransientError."""

    def drop_if_broken(self, number: int) -> None:
        """Drop the connection if it is broken. Called after an error."""

    def drop_connection(self, number: int) -> None:
        """Close the connection, so that `get_connection` opens a new one."""


def apply_topic(
    spec: UnitSpec,
    connections: Connections,
    slices: Iterable[RecordSlice],
    *,
    read_missing: RangeReader,
    tables: DefinitionCache,
    find_begin: BeginFinder = find_no_begin,
    find_snapshot: SnapshotFinder = find_no_snapshot,
    read_rest: RestReader = read_nothing_after,
    ask_source: SourceLookup = refuse_source_lookup,
    is_assigned: Callable[[], bool] = lambda: True,
) -> Report:
    """Run one attempt over `slices`, and return its report. Raises only InputLostError."""
    records = AttemptRecords(
        slices, read_missing, find_begin=find_begin, find_snapshot=find_snapshot, read_rest=read_rest,
        ask_source=ask_source, is_assigned=is_assigned,
    )  # fmt: skip
    driver = _make_driver(spec, connections, records, tables)
    return driver.run_machine(driver.make_attempt().run())


def define_topic(spec: UnitSpec, connections: Connections, table: Table) -> None:
    """Activate `table` as the definition of a unit with a topic that carries none. Raises ConsumerError."""
    driver = _make_driver(spec, connections, _make_empty_records(), {})
    driver.run_machine(driver.make_attempt().define_initially(table))


def stop_topic(spec: UnitSpec, connections: Connections, why: str) -> None:
    """Record in the target that the unit is stopped. Raises ConsumerError after a few tries."""
    _make_driver(spec, connections, _make_empty_records(), {}).run_machine(
        retry_transient(lambda: ask_driver(fx.StopUnit(why)))
    )


def _make_driver(
    spec: UnitSpec, connections: Connections, records: AttemptRecords, tables: DefinitionCache
) -> ThreadDriver | BatchDriver:
    if spec.batches:
        return BatchDriver(spec, cast(BatchTargets, connections), records, tables)
    return ThreadDriver(spec, cast(Sessions, connections), records, tables)


def _make_empty_records() -> AttemptRecords:
    return AttemptRecords((), lambda _start, _upto: ())
