"""Runs one attempt at a unit of any target. The driver is chosen only here."""

from __future__ import annotations

from typing import cast

from consumer.attempt.drivers.batches import BatchDriver
from consumer.attempt.drivers.driver import AttemptInputs, Connections
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import StopUnit, ask_driver
from consumer.attempt.reports import Report
from consumer.attempt.spec import DefinitionCache, UnitSpec
from consumer.attempt.transactions import retry_transient
from consumer.errors import CopyNeededError
from consumer.targets.base import UnitTarget
from consumer.targets.batches import BatchTarget
from consumer.targets.session import SqlSession
from schemas.table.model import Table


def apply_topic(
    spec: UnitSpec, connections: Connections[UnitTarget], inputs: AttemptInputs, tables: DefinitionCache
) -> Report:
    """Run one attempt over the slices of `inputs`, and return its report. Never raises."""
    driver = _make_driver(spec, connections, inputs, tables)
    return driver.run_machine(driver.make_attempt().run())


def define_topic(spec: UnitSpec, connections: Connections[UnitTarget], table: Table) -> None:
    """Activate `table` as the definition of a unit with a topic that carries none. Raises ConsumerError."""
    driver = _make_driver(spec, connections, AttemptInputs(), {})
    driver.run_machine(driver.make_attempt().define_initially(table))


def continue_in_topic(
    spec: UnitSpec,
    connections: Connections[UnitTarget],
    inputs: AttemptInputs,
    topic_id: str,
    lost: CopyNeededError,
) -> None:
    """Move a unit's progress to a copy in the topic `topic_id`, which has other offsets than the progress.

    The topic id of `spec` is that of the progress. Raises `lost` if no copy has begun there, and
    ConsumerError.
    """
    driver = _make_driver(spec, connections, inputs, {})
    driver.run_machine(driver.make_attempt().continue_in_topic(topic_id, lost))


def stop_topic(spec: UnitSpec, connections: Connections[UnitTarget], why: str) -> None:
    """Record in the target that the unit is stopped. Raises ConsumerError after a few tries."""
    _make_driver(spec, connections, AttemptInputs(), {}).run_machine(
        retry_transient(lambda: ask_driver(StopUnit(why)))
    )


def _make_driver(
    spec: UnitSpec, connections: Connections[UnitTarget], inputs: AttemptInputs, tables: DefinitionCache
) -> ThreadDriver | BatchDriver:
    if spec.batches:
        return BatchDriver(spec, cast(Connections[BatchTarget], connections), inputs, tables)
    return ThreadDriver(spec, cast(Connections[SqlSession], connections), inputs, tables)
