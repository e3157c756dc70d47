"""The steps from a target table as it is to the one that a new definition requires. Without I/O.

Tables are compared, not statements: a step that an interrupted attempt or a person has done already is
recognised. Only columns and indexes that the unit has written are ever dropped; others in the target are
not touched. Names are the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from consumer.errors import UnitStoppedError
from consumer.tables.evolution.index_steps import plan_dropped_indexes, plan_key_steps, plan_new_indexes
from consumer.tables.evolution.required_table import TargetGoal, join_tables
from consumer.tables.evolution.widening import is_lossless, join_types
from consumer.targets.alterations import (
    AddColumn,
    Alteration,
    AlterTable,
    ChangeColumn,
    DropColumn,
    RenameColumn,
)
from consumer.targets.checks.column_fit import can_hold_all_values
from schemas.table.collations import is_not_coarser
from schemas.table.fills import find_fill
from schemas.table.model import Column, ColumnType, Table, TextOf


def plan_steps(real: Table, goal: TargetGoal) -> AlterTable | None:
    """Return the remaining steps for `real`, or None. Raises UnitStoppedError if no table fits all units."""
    if goal.policy in ("ignore", "stop"):
        return None
    renames = list(_plan_renames(real, goal))
    now, joined = _apply_renames(real, renames), join_tables(goal)
    found: list[Alteration] = [
        *renames,
        *plan_dropped_indexes(now, joined, goal),
        *_plan_column_steps(now, joined, goal),
        *plan_key_steps(now, joined, goal),
        *_plan_unwritten_columns(now, goal),
        *plan_new_indexes(now, joined, goal),
    ]
    return AlterTable(real, tuple(found)) if found else None


def list_retained_columns(real: Table, goal: TargetGoal) -> list[str]:
    """Return the columns that the unit wrote earlier and the target keeps, with their old values."""
    return [
        name
        for name in goal.unwritten_names
        if goal.policy != "evolve" or goal.is_shared(name)
        if _has_column(real, name)
    ]


# --- columns


def _plan_renames(real: Table, goal: TargetGoal) -> Iterator[RenameColumn]:
    for old, new in goal.columns.renamed.items():
        if _has_column(real, old) and not _has_column(real, new) and not goal.is_shared(old):
            yield RenameColumn(old, new)


def _apply_renames(real: Table, renames: Iterable[RenameColumn]) -> Table:
    """Return `real` with the columns' new names."""
    names = {rename.old: rename.new for rename in renames}
    return real.with_renamed_columns(names) if names else real


def _plan_column_steps(now: Table, joined: Table, goal: TargetGoal) -> Iterator[Alteration]:
    for column in joined.columns:
        if not _has_column(now, column.name):
            yield _plan_added_column(column, goal)
            continue
        there = now.get_column(column.name)
        if column.name in goal.replaced_names:
            yield DropColumn(column.name)
            yield _plan_added_column(column, goal)
        elif (changed := _build_changed_column(there, column, now, joined, goal)) != there:
            safe = not goal.rewrite or can_hold_all_values(there.type, changed.type)
            yield ChangeColumn(there, changed, lossless=safe)


def _plan_added_column(column: Column, goal: TargetGoal) -> AddColumn:
    if goal.others:  # the table has rows of other sources, and none of those has this column
        return AddColumn(Column(name=column.name, type=column.type))
    fill = find_fill(goal.desired.get_column(column.name))
    unknown = fill is None or (fill.value is None and not column.nullable)
    plain = Column(name=column.name, type=column.type, nullable=column.nullable or unknown)
    return AddColumn(plain, fill=None if fill is None else fill.value)


def _build_changed_column(
    there: Column, column: Column, now: Table, joined: Table, goal: TargetGoal
) -> Column:
    """Return the target's column as it should be."""
    loose = column.nullable and column.name not in joined.key.columns
    return replace(
        there, type=_choose_type(there, column, now, joined, goal), nullable=there.nullable or loose
    )


def _choose_type(there: Column, column: Column, now: Table, joined: Table, goal: TargetGoal) -> ColumnType:
    narrowed = (
        goal.policy == "evolve"
        and goal.rewrite
        and not goal.statements_done
        and _has_type_changed(column, goal)
    )
    if not can_hold_all_values(column.type, there.type) or narrowed:
        return _choose_wide_type(there, column, joined, goal)
    coarse = not is_not_coarser(column.type.collation, there.type.collation)
    if coarse and column.name in _list_compared_columns(now, joined):
        return replace(there.type, charset=column.type.charset, collation=column.type.collation)
    return there.type


def _has_type_changed(column: Column, goal: TargetGoal) -> bool:
    """Return whether the source changed the column's type. (A wider type of the target itself stays.)"""
    if goal.others:
        return False
    old = {goal.get_new_name(each.name): each.type for each in goal.before.columns}.get(column.name)
    return old is not None and replace(old, collation=None) != replace(column.type, collation=None)


def _choose_wide_type(there: Column, column: Column, joined: Table, goal: TargetGoal) -> ColumnType:
    if goal.others and there.type.text_of is TextOf.INET:
        raise UnitStoppedError(
            f"{_format_name(joined)}: column {column.name} is inet in the target and {column.type.kind} at "
            "the source. The table has rows of other sources, and the target would spell some of their "
            "addresses otherwise than their sources do",
            "change it back at the source and copy the table, or route this source to a table of its own",
        )
    if goal.policy == "evolve" or is_lossless(there.type, column.type):
        return column.type
    wide = join_types(there.type, column.type)
    if wide is None:
        raise UnitStoppedError(
            f"{_format_name(joined)}: column {column.name} is {there.type.kind} in the target and "
            f"{column.type.kind} at the source, and no type holds the values of both",
            "set `schema_changes: evolve`, or change its type in the target by hand, "
            "or change it back at the source and copy the table",
        )
    return wide


def _list_compared_columns(now: Table, joined: Table) -> set[str]:
    """Return the columns with a collation that decides which rows are equal."""
    return {name for index in (now.key, *now.unique, joined.key, *joined.unique) for name in index.columns}


def _plan_unwritten_columns(now: Table, goal: TargetGoal) -> Iterator[Alteration]:
    """Yield steps for columns that the unit no longer writes: dropped under `evolve`, otherwise made
    nullable.
    """
    for name in goal.unwritten_names:
        if not _has_column(now, name):
            continue
        there = now.get_column(name)
        if goal.policy == "evolve" and not goal.is_shared(name):
            yield DropColumn(name)
        elif not there.nullable and name not in goal.desired.key.columns:
            yield ChangeColumn(there, replace(there, nullable=True), lossless=True)


def _has_column(table: Table, name: str) -> bool:
    return name in table.column_names


def _format_name(table: Table) -> str:
    return f"{table.db}.{table.name}"
