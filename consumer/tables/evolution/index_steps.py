"""The changes of a target table's key and unique indexes for a new definition. Without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from consumer.tables.evolution.required_table import TargetGoal, is_same_index
from consumer.targets.alterations import AddUnique, ChangeKey, DropUnique
from schemas.table.model import Column, Kind, Table, UniqueIndex

_LONG = frozenset({Kind.TEXT, Kind.BLOB})


def plan_key_steps(now: Table, joined: Table, goal: TargetGoal) -> Iterator[ChangeKey]:
    changed = {*map(goal.get_new_name, goal.before.key.columns)} != set(joined.key.columns)
    if goal.rewrite and changed and set(now.key.columns) != set(joined.key.columns):
        yield ChangeKey(now.key, joined.key)


def plan_dropped_indexes(now: Table, joined: Table, goal: TargetGoal) -> Iterator[DropUnique]:
    """Yield the unique indexes that the source has dropped, or with a column that is no longer written.

    If they stayed, later rows would displace each other.
    """
    before = [index.with_renamed_columns(goal.columns.renamed) for index in goal.before.unique]
    unwritten = set(goal.unwritten_names)
    for index in now.unique:
        is_desired = any(is_same_index(each, index) for each in joined.unique)
        ours = any(is_same_index(each, index) for each in before) or not unwritten.isdisjoint(index.columns)
        is_replaced = not goal.replaced_names.isdisjoint(index.columns)
        if ours and (
            not is_desired
            or is_replaced
            or (not goal.with_unique_indexes and _has_lengthened_column(index, now, joined))
        ):
            yield DropUnique(index)


def is_lengthened(now: Column, desired: Column) -> bool:
    """Return whether a column becomes a long text or bytes."""
    return desired.type.kind in _LONG and now.type.kind not in _LONG


def _has_lengthened_column(index: UniqueIndex, now: Table, desired: Table) -> bool:
    old, new = ({each.name: each for each in table.columns} for table in (now, desired))
    return any(name in new and is_lengthened(old[name], new[name]) for name in index.columns)


def plan_new_indexes(now: Table, joined: Table, goal: TargetGoal) -> Iterator[AddUnique]:
    if not goal.with_unique_indexes:
        return
    before = {
        _collect_parts(index.with_renamed_columns(goal.columns.renamed)) for index in goal.before.unique
    }
    for index in joined.unique:
        known = any(is_same_index(index, there) for there in now.unique)
        is_replaced = not goal.replaced_names.isdisjoint(index.columns)
        if is_replaced or (
            not known
            and (_collect_parts(index) not in before or not goal.readded_names.isdisjoint(index.columns))
        ):
            yield AddUnique(index)


def _collect_parts(index: UniqueIndex) -> frozenset[tuple[str, int | None]]:
    return frozenset((part.column, part.prefix) for part in index.parts)
