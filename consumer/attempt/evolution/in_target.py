"""Carries out what a session does in a transaction for a change of its target table: the part of `Transact` that asks the target (see effects)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from consumer.attempt.operations import DropTarget, FollowDefinition, LoseOthers, StillAsRead
from consumer.attempt.spec import UnitSpec
from consumer.errors import (
    StepsLeftError,
    TableChangedError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.model import TargetTable, UnitState
from consumer.tables.evolution.plans import Planned, mark_of, plan_change, sharers
from consumer.tables.fitness import gone
from consumer.tables.router import Routed, resolve
from consumer.tables.stored import decode_stored, since_behind
from consumer.targets.alterations import AlterTable, DropTable
from schemas.table.model import Table
from schemas.table.names import Names


class Reading(Protocol):
    """The part of a session that this needs."""

    column_names: Names

    def read_table(self, schema: str, name: str) -> Table | None: ...


class Changing(Protocol):
    """The part of an open transaction that this needs."""

    def lock_units(self) -> dict[str, UnitState]: ...

    def alter(self, change: AlterTable | DropTable) -> None: ...

    def truncate(self, table: TargetTable, where: dict[str, str] | None) -> None: ...

    def write_unit(self, state: UnitState) -> None: ...

    def write_other(self, topic: str, state: UnitState) -> None: ...


def routed_table(spec: UnitSpec, source: Table) -> Routed:
    """Return where the unit's table goes. Raises UnitStoppedError: nowhere."""
    routed = resolve(spec.routes, spec.source, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(
            f"{spec.unit.topic}: no route of pipeline {spec.unit.pipeline} takes {source.db}.{source.name} any more: add one, or take the "
            "table out of the source's `tables`"
        )
    return routed


def routed_place(spec: UnitSpec, source: Table) -> tuple[str, str]:
    """Return (schema, name) of the target table of `source`."""
    routed = routed_table(spec, source)
    return routed.schema, routed.table


def sharing(spec: UnitSpec, units: dict[str, UnitState], source: Table) -> list[str]:
    """Return the topics of the other units that write the target table of `source`."""
    place = routed_place(spec, source)
    return sorted(sharers(units, spec.unit.topic, spec.routes, place))


def drop_target(spec: UnitSpec, session: Reading, transaction: Changing, asked: DropTarget) -> None:
    """Carry out a DropTarget."""
    real = session.read_table(*routed_place(spec, asked.source))
    if real is not None:
        transaction.alter(DropTable(real))


def lose_others(spec: UnitSpec, session: Reading, transaction: Changing, asked: LoseOthers) -> None:
    """Carry out a LoseOthers. Raises TransientError: another unit changes the table."""
    routed = routed_table(spec, asked.source)
    if session.read_table(routed.schema, routed.table) is not None:
        return  # no row of a pipeline is locked for what nearly every unit finds
    units = transaction.lock_units()
    found = _sharers(spec, units, routed)
    if not found or session.read_table(routed.schema, routed.table) is not None:
        return  # a unit says that it has rows there once the table is made
    for topic in found:
        state = units[topic]
        stored = decode_stored(state.definition or "")
        if not stored.lost:
            text = replace(stored, lost=True).encode()
            transaction.write_other(topic, msgspec.structs.replace(state, definition=text))


def not_lost(spec: UnitSpec, transaction: Changing) -> None:
    """Carry out a NotLost."""
    _refuse_lost(spec, transaction.lock_units())


def still_as_read(spec: UnitSpec, session: Reading, transaction: Changing, asked: StillAsRead) -> None:
    """Carry out a StillAsRead."""
    routed = routed_table(spec, asked.source)
    _sharers(spec, transaction.lock_units(), routed)
    if session.read_table(routed.schema, routed.table) != asked.real:
        raise TableChangedError(
            f"{routed.schema}.{routed.table} was changed while {spec.unit.topic} looked at it: it looks again"
        )


def _refuse_lost(spec: UnitSpec, units: dict[str, UnitState]) -> None:
    state = units.get(spec.unit.topic)
    if state is not None and state.definition is not None and decode_stored(state.definition).lost:
        raise TransientError(
            f"{spec.unit.topic}: another unit has made the target table anew meanwhile: what this one does next is looked at again"
        )


def follow(spec: UnitSpec, session: Reading, transaction: Changing, asked: FollowDefinition) -> None:
    """Carry out a FollowDefinition. Raises StepsLeftError, TransientError (another unit changes the table), and what the target raises."""
    change = asked.change
    routed = routed_table(spec, change.after)
    others = _others(spec, transaction, routed, rewrite=change.rewrite)
    real = session.read_table(routed.schema, routed.table)
    if real is None:
        raise TargetConfigError(gone(routed, asked.change.after, debezium=spec.debezium is not None))
    planned = _planned(asked, real, routed, list(others.values()), session.column_names)
    asked.found.append(planned)
    if asked.how == "end" and planned.alter is not None:
        raise StepsLeftError(f"{routed.schema}.{routed.table} is not as {spec.unit.topic} needs it yet")
    if change.emptied and not change.settled and asked.how != "end":
        transaction.truncate(_whole(real, routed), routed.where)
    if asked.how == "mark":
        _mark(transaction, asked, planned)
        return
    if planned.alter is not None:
        transaction.alter(planned.alter)
    transaction.write_unit(UnitState(planned.stored.encode(), None, None))


def _planned(
    asked: FollowDefinition, real: Table, routed: Routed, others: Sequence[Table], same: Names
) -> Planned:
    change = asked.change
    planned = plan_change(change, real, routed, others, same)
    since = since_behind(change.before, change.columns, asked.at[0], rewrite=change.rewrite)
    return replace(planned, stored=replace(planned.stored, since=since))


def unaltered(spec: UnitSpec, session: Reading, asked: FollowDefinition) -> UnitState:
    """Return the unit's state behind a change for which a target of whole batches need not be altered.

    Raises TargetConfigError: it would have to be.
    """
    routed = routed_table(spec, asked.change.after)
    real = session.read_table(routed.schema, routed.table)
    if real is None:
        raise TargetConfigError(gone(routed, asked.change.after, debezium=spec.debezium is not None))
    planned = _planned(asked, real, routed, (), session.column_names)
    asked.found.append(planned)
    if planned.alter is not None:
        raise TargetConfigError(
            f"{routed.schema}.{routed.table} of {spec.unit.topic} would have to be altered ({len(planned.alter.steps)} steps), which this "
            "version does not do for a target that takes whole batches: alter it by hand as the source's table was"
        )
    return UnitState(planned.stored.encode(), None, None)


def _mark(transaction: Changing, asked: FollowDefinition, planned: Planned) -> None:
    """The definition before stays in force while the change is under way."""
    mark = mark_of(asked.change, planned, asked.at, asked.connection)
    transaction.write_unit(UnitState(asked.change.before.encode(), mark.encode(), None))


def _others(
    spec: UnitSpec, transaction: Changing, routed: Routed, *, rewrite: bool = False
) -> dict[str, Table]:
    """Return what other units want of the target table; their rows stay locked, so that none of them changes it meanwhile.

    `rewrite`: every row of this unit comes anew.
    """
    if not routed.added:
        return {}
    units = transaction.lock_units()
    if not rewrite:
        _refuse_lost(spec, units)
    return _sharers(spec, units, routed)


def _sharers(spec: UnitSpec, units: dict[str, UnitState], routed: Routed) -> dict[str, Table]:
    found = sharers(units, spec.unit.topic, spec.routes, (routed.schema, routed.table))
    for topic in found:
        if units[topic].ddl is not None:
            raise TransientError(
                f"{routed.schema}.{routed.table} is being changed for {topic}: {spec.unit.topic} waits for that"
            )
    return found


def _whole(real: Table, routed: Routed) -> TargetTable:
    key_at = real.indexes_of(real.key.columns)
    return TargetTable(real, key_at, (), routed.added_names)
