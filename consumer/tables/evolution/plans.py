"""Plans the activation of a definition: the remaining steps in the target table, and what is stored.
Without I/O.

A `TableChange` is planned again whenever it is resumed, from the table as it is then. Only the *choices*
of the first plan (names of columns) are kept, in the mark that a target without transactional DDL has of
the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import UnitState
from consumer.ordering.progress import LaneMark
from consumer.tables.column_names import keep_names, translate_changes
from consumer.tables.evolution.index_steps import is_lengthened
from consumer.tables.evolution.required_table import TargetGoal
from consumer.tables.evolution.steps import list_retained_columns, plan_steps
from consumer.tables.evolution.widening import join_types
from consumer.tables.router import (
    ResolvedRoute,
    SchemaChangePolicy,
    TableRoute,
    build_stored_table,
    find_duplicate_columns,
    list_unmapped_columns,
    name_columns,
    resolve_route,
)
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.alterations import AddUnique, AlterTable, ChangeColumn
from consumer.targets.checks.column_spelling import match_other_spellings
from schemas.findings import merge_findings
from schemas.table.fills import ColumnFill, find_fill
from schemas.table.model import Table
from schemas.table.names import NameRules
from schemas.wire.event import ColumnChanges
from schemas.wire.records import parse_topic_origin


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of a unit's definition."""

    before: StoredDefinition
    """The active definition."""
    after: Table
    """The definition that becomes active."""
    policy: SchemaChangePolicy
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    rewrite: bool = False
    """Whether every row follows again."""
    planned: StoredDefinition | None = None
    """The choices of a plan that was begun already."""
    statements_done: bool = False
    """See TargetGoal."""
    with_unique_indexes: bool = True
    """See TargetGoal."""
    rows_deleted_first: bool = False
    """Whether the unit's rows are deleted first, because the target cannot alter the table with them.
    All of them follow again."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The plan of a change.

    `alter`: the remaining steps, None if there are none. `stored`: the definition that is active after them.
    """

    alter: AlterTable | None
    stored: StoredDefinition


def plan_change(
    change: TableChange, real: Table, routed: ResolvedRoute, others: Sequence[Table], same: NameRules
) -> ChangePlan:
    """Plan `change` for the target table `real`.

    `others`: the tables that other units need it to be. `same`: how the target compares names of columns.
    Raises CopyNeededError if the target's rows would not have the source's values, UnitStoppedError if no
    table fits all units.
    """
    before, after = change.before, _name_after(change, real, routed, same)
    if twice := find_duplicate_columns(after, routed, same):
        raise UnitStoppedError.from_problem(merge_findings(twice))
    names = dict(after.names)
    if change.planned is None:
        spelled = match_other_spellings(
            change.after, real, names, _find_released_names(change, others, same), same
        )
        _refuse_spelling(change, spelled, real)
        names |= spelled
    goal = TargetGoal(
        desired=build_stored_table(replace(after, names=names), routed),
        before=build_stored_table(before, routed),
        policy=change.policy,
        columns=translate_changes(
            change.columns, before.names, names, _list_rerouted(change, after, real), after.route_names
        ),
        others=others,
        rewrite=change.rewrite,
        statements_done=change.statements_done,
        with_unique_indexes=change.with_unique_indexes,
    )
    _refuse_shared_drops(goal, real)
    if change.planned is None and not change.rewrite:
        _refuse_old_values(goal, before, real)
    left = {*map(goal.get_new_name, before.retained_columns), *list_retained_columns(real, goal)} - {
        *goal.desired.column_names
    }
    lacks = list_unmapped_columns(goal.desired, real, change.policy)
    stored = before.build_successor(change.after, names, tuple(sorted(left)), lacks)
    return ChangePlan(plan_steps(real, goal), replace(stored, route_names=after.route_names))


def _name_after(change: TableChange, real: Table, routed: ResolvedRoute, same: NameRules) -> StoredDefinition:
    """Return the definition after `change` with the names that its columns have in the target.

    A column to which the route gives a name that the target has in another spelling is written there.
    """
    if change.planned is not None:
        return change.planned
    before = change.before
    kept = keep_names(before.names, change.after, change.columns)
    after = name_columns(StoredDefinition(change.after, kept, route_names=before.route_names), routed)
    spelled = {same.fold_name(name): name for name in real.column_names}
    renames = {
        name: spelled.get(same.fold_name(there), there)
        for name, there in after.names.items()
        if name in after.route_names and there not in real.column_names
    }
    return replace(after, names={**after.names, **renames})


def _list_rerouted(change: TableChange, after: StoredDefinition, real: Table) -> list[str]:
    """Return the columns that stay at the source, and that the target is to rename because the route gives
    them another name now.

    A column of a type that does not fit the source's stays as it is, and another one is added.
    """
    before, columns = change.before, change.columns
    stay = {*before.table.column_names}.intersection(change.after.column_names)
    stay.difference_update(columns.dropped, columns.added, columns.renamed, columns.renamed.values())
    there = {each.name: each.type for each in real.columns}
    return sorted(
        name
        for name in stay
        if before.route_names.get(name) != after.route_names.get(name)
        and after.get_target_name(name) not in there
        and (now := there.get(before.get_target_name(name))) is not None
        and join_types(now, change.after.get_column(name).type) is not None
    )


def _find_released_names(change: TableChange, others: Sequence[Table], same: NameRules) -> set[str]:
    """Return the target's columns that are renamed or dropped under the policy.

    If the target does not keep spellings, a column that only changes its spelling is neither.
    """
    if change.policy not in ("lenient", "evolve"):
        return set()
    written = change.before.table.column_names if change.policy == "evolve" else change.columns.renamed
    shared = {name for other in others for name in other.column_names}
    released = {change.before.get_target_name(name) for name in written} - shared
    if same.keeps_spelling:
        return released
    stay = {same.fold_name(name) for name in change.after.column_names}
    return {name for name in released if same.fold_name(name) not in stay}


def _refuse_spelling(change: TableChange, there: Mapping[str, str], real: Table) -> None:
    """Raise CopyNeededError if the target considers a new column's name equal to one that it has: its
    values are another column's.
    """
    if change.rewrite:
        return
    was = {new: old for old, new in change.columns.renamed.items()}
    known = {*change.before.table.column_names} - {*change.before.unmapped_columns, *change.columns.added}
    for name, spelled in there.items():
        if name not in known and change.before.get_target_name(was.get(name, "")) != spelled:
            raise CopyNeededError(
                f"target table {real.db}.{real.name} already has a column {spelled}, whose name its "
                f"server does not distinguish from {name}, which is new or renamed at the source; its "
                "values may differ from the source's",
                cause="definition",
            )


def _refuse_shared_drops(goal: TargetGoal, real: Table) -> None:
    """Raise CopyNeededError if a column that the target would drop and add again has values to keep: other
    sources', or those that the policy keeps.

    Two names at the source may be one in the target, by the route.
    """
    for name in sorted(goal.replaced_names.intersection(real.column_names)):
        shared = goal.is_shared(name)
        if goal.policy != "evolve" or shared:
            why = "other sources write it" if shared else f"`schema_changes: {goal.policy}` drops nothing"
            raise CopyNeededError(
                f"target table {real.db}.{real.name} has the column {name} for a column that was dropped at "
                f"the source and for the new one that takes its place, and {why}",
                cause="definition",
            )


def _refuse_old_values(goal: TargetGoal, before: StoredDefinition, real: Table) -> None:
    """Raise CopyNeededError if the target already has a column that is new at the source or was not
    written: its values may be wrong.
    """
    if goal.policy == "stop":
        return
    for name in _list_new_names(goal, before, real):
        if name in real.column_names and not _empty_there(goal, before, real, name):
            raise CopyNeededError(
                f"target table {real.db}.{real.name} already has a column {name}, which is new or renamed "
                "at the source; its values may differ from the source's",
                cause="definition",
            )


def _list_new_names(goal: TargetGoal, before: StoredDefinition, real: Table) -> list[str]:
    """Return the columns that the unit did not write, and will write if the target has them already."""
    columns = goal.columns
    if goal.policy == "ignore":  # no column ever goes there, or gets another name
        unwritten = {*map(goal.get_new_name, before.unmapped_columns)}
        return [*columns.added, *columns.renamed.values(), *unwritten.intersection(goal.desired.column_names)]
    vacated = {*columns.dropped, *columns.renamed}
    renamed = [new for old, new in columns.renamed.items() if old in real.column_names]  # else it was already
    return [*(name for name in columns.added if name not in vacated), *renamed]


def _empty_there(goal: TargetGoal, before: StoredDefinition, real: Table, name: str) -> bool:
    """Return whether a column is NULL in every row of this unit, as it should be.

    Another unit added it, and this one never wrote it.
    """
    there, fresh = real.get_column(name), name not in {*before.retained_columns, *before.unmapped_columns}
    default = there.default is not None or there.default_expression is not None
    empty = there.nullable and not default and name in goal.columns.added
    return (
        goal.is_shared(name)
        and fresh
        and empty
        and find_fill(goal.desired.get_column(name)) == ColumnFill(None)
    )


# --- other units of a shared target table


def find_sharers(
    units: Mapping[str, UnitState],
    topic: str,
    routes: Sequence[TableRoute],
    place: tuple[str, str],
    *,
    same: NameRules,
) -> dict[str, Table]:
    """Return topic → required table, of the pipeline's other units that write the target table `place`.

    `topic`: of this unit; `same`: how the target compares names of tables.
    """
    own, at = parse_topic_origin(topic), same.normalize_table(place)
    found: dict[str, Table] = {}
    for other, state in units.items():
        origin = parse_topic_origin(other)
        if other == topic or state.definition is None or own is None or origin is None or origin[0] != own[0]:
            continue
        stored = decode_stored(state.definition)
        routed = resolve_route(routes, origin[1], stored.table.db, stored.table.name)
        if routed is not None and same.normalize_table((routed.schema, routed.table)) == at:
            found[other] = build_stored_table(name_columns(stored, routed), routed)
    return found


# --- the mark


class ChangeMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `UnitState.ddl` while statements run that commit by themselves."""

    connection: int = msgspec.field(name="connection")
    """The id of the connection over which they run."""
    at: LaneMark = msgspec.field(name="at")
    """The event: (offset, position, generation, commit time in ms)."""
    after: str | None = msgspec.field(name="after")
    """The definition that is stored at the end; None if the table is dropped."""
    policy: SchemaChangePolicy = msgspec.field(name="policy", default="lenient")
    columns: ColumnChanges = msgspec.field(name="columns", default=ColumnChanges())
    rewrite: bool = msgspec.field(name="rewrite", default=False)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    def restore_change(self, before: StoredDefinition, after: str) -> TableChange:
        """Return the change to resume. `after`: as in the mark."""
        planned = decode_stored(after)
        return TableChange(before, planned.table, self.policy, self.columns, self.rewrite, planned)


def build_change_mark(change: TableChange, planned: ChangePlan, at: LaneMark, connection: int) -> ChangeMark:
    """Return the mark of a change that begins."""
    return ChangeMark(connection, at, planned.stored.encode(), change.policy, change.columns, change.rewrite)


def decode_mark(text: str) -> ChangeMark | None:
    """Parse `UnitState.ddl`; None if it is no mark of this version."""
    try:
        return msgspec.json.decode(text, type=ChangeMark)
    except msgspec.MsgspecError:
        return None


def choose_after_refusal(change: TableChange, planned: ChangePlan) -> TableChange | None:
    """Return the change to try after the target refused the statements because of its rows; None if
    there is none.

    First, a unique index that cannot be built, or that a changed column cannot have, is left out. As the
    last resort, rows that all follow again are deleted first.
    """
    alter = planned.alter
    if alter is not None and change.with_unique_indexes and _may_violate_unique(alter):
        return replace(change, with_unique_indexes=False)
    if alter is not None and change.rewrite and not change.rows_deleted_first:
        return replace(change, rows_deleted_first=True, with_unique_indexes=True)
    return None


def _may_violate_unique(alter: AlterTable) -> bool:
    """Return whether the steps may be refused because of a unique index."""
    return any(
        isinstance(step, AddUnique)
        or (
            isinstance(step, ChangeColumn)
            and bool(alter.table.unique)
            and is_lengthened(step.now, step.desired)
        )
        for step in alter.steps
    )
