"""Carries out a session's operations of a schema change inside a transaction (see
consumer.attempt.effects.Transact).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from consumer.attempt.operations import (
    DropTarget,
    FollowDefinition,
    MarkSharersIncomplete,
    RequireTableUnchanged,
)
from consumer.attempt.spec import UnitSpec
from consumer.errors import (
    StepsLeftError,
    TableChangedError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.model import TargetTable, UnitState
from consumer.tables.evolution.plans import ChangePlan, build_change_mark, find_sharers, plan_change
from consumer.tables.router import ResolvedRoute, resolve_route
from consumer.tables.stored import compute_stable_since, decode_stored
from consumer.tables.target_checks import explain_missing_target
from consumer.targets.alterations import DropTable
from consumer.targets.base import UnitTarget
from consumer.targets.session import SqlTransaction
from schemas.table.model import Table
from schemas.table.names import NameRules


def resolve_target(spec: UnitSpec, source: Table) -> ResolvedRoute:
    """Return the route of the unit's table. Raises UnitStoppedError if there is none."""
    routed = resolve_route(spec.routes, spec.source, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(
            f"{spec.unit.topic}: no route of pipeline {spec.unit.pipeline} matches "
            f"{source.db}.{source.name} now",
            "add one, or take the table out of the source's `tables`",
        )
    return routed


def resolve_target_place(spec: UnitSpec, source: Table) -> tuple[str, str]:
    """Return (schema, name) of the target table of `source`."""
    routed = resolve_target(spec, source)
    return routed.schema, routed.table


def list_sharing_topics(
    spec: UnitSpec, units: dict[str, UnitState], source: Table, same: NameRules
) -> list[str]:
    """Return the topics of the other units that write the target table of `source`. `same`: see
    find_sharers.
    """
    place = resolve_target_place(spec, source)
    return sorted(find_sharers(units, spec.unit.topic, spec.routes, place, same=same))


def drop_target(spec: UnitSpec, session: UnitTarget, transaction: SqlTransaction, asked: DropTarget) -> None:
    """Carry out a DropTarget."""
    real = session.read_table(*resolve_target_place(spec, asked.source))
    if real is not None:
        transaction.alter_table(DropTable(real))


def lose_others(
    spec: UnitSpec, session: UnitTarget, transaction: SqlTransaction, asked: MarkSharersIncomplete
) -> None:
    """Carry out a MarkSharersIncomplete. Raises TransientError if another unit alters the table."""
    routed = resolve_target(spec, asked.source)
    if session.read_table(routed.schema, routed.table) is not None:
        return  # the usual case: no unit's row is locked for it
    units = transaction.lock_units()
    found = _find_unchanged_sharers(spec, units, routed, session.table_names)
    if not found or session.read_table(routed.schema, routed.table) is not None:
        return  # a unit records that it has rows there once the table is created
    for topic in found:
        state = units[topic]
        stored = decode_stored(state.definition or "")
        if not stored.rows_missing:
            text = replace(stored, rows_missing=True).encode()
            transaction.write_other(topic, msgspec.structs.replace(state, definition=text))


def require_rows_present(spec: UnitSpec, transaction: SqlTransaction) -> None:
    """Carry out a RequireRowsPresent."""
    _refuse_lost(spec, transaction.lock_units())


def require_table_unchanged(
    spec: UnitSpec, session: UnitTarget, transaction: SqlTransaction, asked: RequireTableUnchanged
) -> None:
    """Carry out a RequireTableUnchanged."""
    routed = resolve_target(spec, asked.source)
    _find_unchanged_sharers(spec, transaction.lock_units(), routed, session.table_names)
    if session.read_table(routed.schema, routed.table) != asked.real:
        raise TableChangedError(
            f"target table {routed.schema}.{routed.table} was altered while rowlock read its definition for "
            f"{spec.unit.topic}: rowlock reads it again"
        )


def _refuse_lost(spec: UnitSpec, units: dict[str, UnitState]) -> None:
    state = units.get(spec.unit.topic)
    if state is not None and state.definition is not None and decode_stored(state.definition).rows_missing:
        raise TransientError(
            f"{spec.unit.topic}: the copy of another source's table has recreated the target table "
            "meanwhile: rowlock retries"
        )


def follow_definition(
    spec: UnitSpec, session: UnitTarget, transaction: SqlTransaction, asked: FollowDefinition
) -> None:
    """Carry out a FollowDefinition.

    Raises StepsLeftError, TransientError if another unit alters the table, and the target's errors.
    """
    change = asked.change
    routed = resolve_target(spec, change.after)
    others = _lock_sharers(spec, transaction, routed, session.table_names, rewrite=change.rewrite)
    real = session.read_table(routed.schema, routed.table)
    if real is None:
        raise TargetConfigError.from_problem(
            explain_missing_target(routed, asked.change.after, debezium=spec.debezium is not None)
        )
    planned = _plan_stored_change(asked, real, routed, list(others.values()), session.column_names)
    asked.found.append(planned)
    if asked.how == "end" and planned.alter is not None:
        raise StepsLeftError(
            f"target table {routed.schema}.{routed.table} does not have the columns yet that "
            f"{spec.unit.topic} needs: rowlock retries"
        )
    if change.rows_deleted_first and not change.statements_done and asked.how != "end":
        transaction.truncate_table(_build_whole_target(real, routed), routed.where)
    if asked.how == "mark":
        _mark_change(transaction, asked, planned)
        return
    if planned.alter is not None:
        transaction.alter_table(planned.alter)
    transaction.write_unit(UnitState(planned.stored.encode(), None, None))


def _plan_stored_change(
    asked: FollowDefinition, real: Table, routed: ResolvedRoute, others: Sequence[Table], same: NameRules
) -> ChangePlan:
    change = asked.change
    planned = plan_change(change, real, routed, others, same)
    since = compute_stable_since(change.before, change.columns, asked.at[0], rewrite=change.rewrite)
    return replace(planned, stored=replace(planned.stored, columns_stable_since=since))


def build_unaltered_state(spec: UnitSpec, session: UnitTarget, asked: FollowDefinition) -> UnitState:
    """Return the unit's state after a change for which a whole-batch target need not be altered.

    Raises TargetConfigError if the target would have to be altered.
    """
    routed = resolve_target(spec, asked.change.after)
    real = session.read_table(routed.schema, routed.table)
    if real is None:
        raise TargetConfigError.from_problem(
            explain_missing_target(routed, asked.change.after, debezium=spec.debezium is not None)
        )
    planned = _plan_stored_change(asked, real, routed, (), session.column_names)
    asked.found.append(planned)
    if planned.alter is not None:
        raise TargetConfigError(
            f"target table {routed.schema}.{routed.table} of {spec.unit.topic} needs "
            f"{len(planned.alter.steps)} alterations, and rowlock cannot alter tables of this type of target",
            "alter it by hand as the source's table was altered",
        )
    return UnitState(planned.stored.encode(), None, None)


def _mark_change(transaction: SqlTransaction, asked: FollowDefinition, planned: ChangePlan) -> None:
    """Record the change as unfinished. The earlier definition stays active until the change is complete."""
    mark = build_change_mark(asked.change, planned, asked.at, asked.connection)
    transaction.write_unit(UnitState(asked.change.before.encode(), mark.encode(), None))


def _lock_sharers(
    spec: UnitSpec,
    transaction: SqlTransaction,
    routed: ResolvedRoute,
    same: NameRules,
    *,
    rewrite: bool = False,
) -> dict[str, Table]:
    """Return, by topic, the table that each other unit needs as its target table. The units' bookkeeping
    rows stay locked against concurrent changes.

    `rewrite`: a copy brings every row of this unit again.
    """
    if not routed.added:
        return {}
    units = transaction.lock_units()
    if not rewrite:
        _refuse_lost(spec, units)
    return _find_unchanged_sharers(spec, units, routed, same)


def _find_unchanged_sharers(
    spec: UnitSpec, units: dict[str, UnitState], routed: ResolvedRoute, same: NameRules
) -> dict[str, Table]:
    found = find_sharers(units, spec.unit.topic, spec.routes, (routed.schema, routed.table), same=same)
    for topic in found:
        if units[topic].ddl is not None:
            raise TransientError(
                f"target table {routed.schema}.{routed.table} is being altered for {topic}: "
                f"{spec.unit.topic} waits until that has ended"
            )
    return found


def _build_whole_target(real: Table, routed: ResolvedRoute) -> TargetTable:
    key_at = real.find_ordinals(real.key.columns)
    return TargetTable(real, key_at, (), routed.added_names)
