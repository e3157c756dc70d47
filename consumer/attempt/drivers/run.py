"""One attempt at a unit, whichever kind its target is: the one place that chooses what carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, cast

from consumer.attempt import effects as fx
from consumer.attempt.drivers.batches import BatchDriver, BatchTargets
from consumer.attempt.drivers.records import (
    AskSource,
    AttemptRecords,
    FindBegin,
    FindSnapshot,
    ReadBehind,
    ReadMissing,
    no_begin,
    no_snapshot,
    no_source,
    nothing_behind,
)
from consumer.attempt.drivers.threads import Sessions, ThreadDriver
from consumer.attempt.effects import ask
from consumer.attempt.readers.reader import Slice
from consumer.attempt.reports import Report
from consumer.attempt.spec import Tables, UnitSpec
from consumer.attempt.transactions import retried
from consumer.targets.base import UnitTarget
from schemas.table.model import Table


class Connections(Protocol):
    """The connections of a process to one target: one a lane; only number 0 where it takes whole batches."""

    def get(self, number: int) -> UnitTarget:
        """Return a connection, made where needed: a Session, or a BatchTarget. Raises TransientError."""

    def check(self, number: int) -> None:
        """After an error: drop the connection if it is broken."""

    def drop(self, number: int) -> None:
        """Close the connection, so that `get` makes a new one."""


def apply_topic(
    spec: UnitSpec,
    connections: Connections,
    slices: Iterable[Slice],
    *,
    read_missing: ReadMissing,
    tables: Tables,
    find_begin: FindBegin = no_begin,
    find_snapshot: FindSnapshot = no_snapshot,
    read_behind: ReadBehind = nothing_behind,
    ask_source: AskSource = no_source,
    wanted: Callable[[], bool] = lambda: True,
) -> Report:
    """Run one attempt over `slices` and return what became of it. Raises InputLostError alone."""
    records = AttemptRecords(
        slices, read_missing, find_begin=find_begin, find_snapshot=find_snapshot, read_behind=read_behind,
        ask_source=ask_source, wanted=wanted,
    )  # fmt: skip
    driver = _driver(spec, connections, records, tables)
    return driver.run(driver.attempt().run())


def define_topic(spec: UnitSpec, connections: Connections, table: Table) -> None:
    """Put `table` in force as the definition of a unit whose topic carries none. Raises consumer.errors."""
    driver = _driver(spec, connections, _nothing(), {})
    driver.run(driver.attempt().define(table))


def stop_topic(spec: UnitSpec, connections: Connections, why: str) -> None:
    """Record in the target that the unit waits for a person. Raises consumer.errors after a few tries."""
    _driver(spec, connections, _nothing(), {}).run(retried(lambda: ask(fx.StopUnit(why))))


def _driver(
    spec: UnitSpec, connections: Connections, records: AttemptRecords, tables: Tables
) -> ThreadDriver | BatchDriver:
    if spec.batches:
        return BatchDriver(spec, cast(BatchTargets, connections), records, tables)
    return ThreadDriver(spec, cast(Sessions, connections), records, tables)


def _nothing() -> AttemptRecords:
    return AttemptRecords((), lambda _start, _upto: ())
