"""Finds what a target table gets of a new definition: the steps from the table as it is to the one that is wanted. Pure.

State is compared, not statements: whatever was done already, by an interrupted attempt or by a person, is found done. Only columns and
indexes that the unit has written are ever taken away; what else the target has is the target's own business. Names are the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from consumer.errors import UnitStoppedError
from consumer.tables.evolution.free_name import free_name
from consumer.tables.evolution.index_steps import dropped_indexes, key_steps, new_indexes
from consumer.tables.evolution.widening import join, lossless
from consumer.tables.evolution.wish import Wish, joined_table
from consumer.tables.router import Policy
from consumer.targets.alterations import (
    AddColumn,
    Alteration,
    AlterTable,
    ChangeColumn,
    DropColumn,
    RenameColumn,
)
from consumer.targets.checks.column_fit import fits
from schemas.table.collations import not_coarser
from schemas.table.fills import fill_of
from schemas.table.model import Column, ColumnType, Table
from schemas.table.names import Names


def steps(real: Table, wish: Wish) -> AlterTable | None:
    """Return what is left to do to `real`; None: nothing. Raises UnitStoppedError where units want what no table can be."""
    if wish.policy in ("ignore", "stop"):
        return None
    renames = list(_renames(real, wish))
    now, joined = _after(real, renames), joined_table(wish)
    found: list[Alteration] = [
        *renames,
        *dropped_indexes(now, joined, wish),
        *_column_steps(now, joined, wish),
        *key_steps(now, joined, wish),
        *_left(now, wish),
        *new_indexes(now, joined, wish),
    ]
    return AlterTable(real, tuple(found)) if found else None


def kept_columns(real: Table, wish: Wish) -> list[str]:
    """Return the columns that the unit wrote and the target keeps, with their old values."""
    return [name for name in wish.gone if wish.policy != "evolve" or wish.shared(name) if _has(real, name)]


# --- columns


def _renames(real: Table, wish: Wish) -> Iterator[RenameColumn]:
    for old, new in wish.columns.renamed.items():
        if _has(real, old) and not _has(real, new) and not wish.shared(old):
            yield RenameColumn(old, new)


def _after(real: Table, renames: Iterable[RenameColumn]) -> Table:
    """Return `real` with the columns' new names."""
    names = {rename.old: rename.new for rename in renames}
    return real.renamed(names) if names else real


def _column_steps(now: Table, joined: Table, wish: Wish) -> Iterator[Alteration]:
    for column in joined.columns:
        if not _has(now, column.name):
            yield _added(column, wish)
            continue
        there = now.column(column.name)
        if column.name in wish.replaced:
            yield DropColumn(column.name)
            yield _added(column, wish)
        elif (changed := _changed(there, column, now, joined, wish)) != there:
            safe = not wish.rewrite or fits(there.type, changed.type)
            yield ChangeColumn(there, changed, lossless=safe)


def _added(column: Column, wish: Wish) -> AddColumn:
    if wish.others:  # rows of other sources are in the table, and none of theirs has this column
        return AddColumn(Column(name=column.name, type=column.type))
    fill = fill_of(wish.wanted.column(column.name))
    unknown = fill is None or (fill.value is None and not column.nullable)
    plain = Column(name=column.name, type=column.type, nullable=column.nullable or unknown)
    return AddColumn(plain, fill=None if fill is None else fill.value)


def _changed(there: Column, column: Column, now: Table, joined: Table, wish: Wish) -> Column:
    """Return the target's column as it shall be."""
    loose = column.nullable and column.name not in joined.key.columns
    return replace(there, type=_type(there, column, now, joined, wish), nullable=there.nullable or loose)


def _type(there: Column, column: Column, now: Table, joined: Table, wish: Wish) -> ColumnType:
    narrowed = wish.policy == "evolve" and wish.rewrite and not wish.settled and _type_changed(column, wish)
    if not fits(column.type, there.type) or narrowed:
        return _wide_enough(there, column, joined, wish)
    coarse = not not_coarser(column.type.collation, there.type.collation)
    if coarse and column.name in _compared(now, joined):
        return replace(there.type, charset=column.type.charset, collation=column.type.collation)
    return there.type


def _type_changed(column: Column, wish: Wish) -> bool:
    """Tell whether the source gave the column another type. (A target's type may be wider by itself, and stays so.)"""
    if wish.others:
        return False
    old = {wish.renamed(each.name): each.type for each in wish.before.columns}.get(column.name)
    return old is not None and replace(old, collation=None) != replace(column.type, collation=None)


def _wide_enough(there: Column, column: Column, joined: Table, wish: Wish) -> ColumnType:
    if wish.policy == "evolve" or lossless(there.type, column.type):
        return column.type
    wide = join(there.type, column.type)
    if wide is None:
        raise UnitStoppedError(
            f"{_name(joined)}: column {column.name} is {there.type.kind} and becomes {column.type.kind}, and belongs to a key or unique "
            "index, so that no column beside it can take its place: set `schema_changes: evolve`, or change its type by hand"
        )
    return wide


def _compared(now: Table, joined: Table) -> set[str]:
    """Columns whose collation decides which rows are the same."""
    return {name for index in (now.key, *now.unique, joined.key, *joined.unique) for name in index.columns}


def _left(now: Table, wish: Wish) -> Iterator[Alteration]:
    """Columns that the unit does not write any more: dropped where it follows, else without a value from now on."""
    for name in wish.gone:
        if not _has(now, name):
            continue
        there = now.column(name)
        if wish.policy == "evolve" and not wish.shared(name):
            yield DropColumn(name)
        elif not there.nullable and name not in wish.wanted.key.columns:
            yield ChangeColumn(there, replace(there, nullable=True), lossless=True)


# --- columns beside others


def names_beside(
    real: Table, wanted: Table, policy: Policy, names: Mapping[str, str], same: Names
) -> dict[str, str]:
    """Return wanted name → the name of a new column beside it, for each whose values the target's column cannot come to hold.
    `names`: wanted name → the source's, where that is another.

    Only under `lenient`, which neither drops nor narrows; columns of the key and of unique indexes have no such way.
    """
    if policy != "lenient":
        return {}
    compared = {name for index in (wanted.key, *wanted.unique) for name in index.columns}
    taken = {*real.column_names, *wanted.column_names}
    found = {}
    for column in wanted.columns:
        if not _has(real, column.name) or column.name in compared:
            continue
        there = real.column(column.name).type
        if lossless(there, column.type) or join(there, column.type) is not None:
            continue
        found[column.name] = free = free_name(names.get(column.name, column.name), taken, same)
        taken.add(free)
    return found


def names_apart(real: Table, source: Table, names: Mapping[str, str], same: Names) -> dict[str, str]:
    """Return source name → the name of a new column, for each whose own name another one of `names` (source name → the target's) is written under:
    the source gave a column the name that the target had chosen for a column beside."""
    taken = {*real.column_names, *source.column_names, *names.values()}
    written = {same.fold(name) for name in names.values()}
    found = {}
    for name in source.column_names:
        if name not in names and same.fold(name) in written:
            found[name] = free = free_name(name, taken, same)
            taken.add(free)
    return found


def _has(table: Table, name: str) -> bool:
    return name in table.column_names


def _name(table: Table) -> str:
    return f"{table.db}.{table.name}"
