"""Finds what a target table gets of a new definition: the steps from the table as it is to the one that is wanted. Pure.

State is compared, not statements: whatever was done already, by an interrupted attempt or by a person, is found done. Only columns and
indexes that the unit has written are ever taken away; what else the target has is the target's own business. Names are the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.errors import UnitStoppedError
from consumer.tables.evolution.widening import fits, join, lossless
from consumer.tables.router import Policy
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    RenameColumn,
)
from schemas.table.collations import not_coarser
from schemas.table.fills import fill_of
from schemas.table.model import Column, ColumnType, Kind, Table, UniqueIndex
from schemas.wire.event import ColumnChanges

_LONG = frozenset({Kind.TEXT, Kind.BLOB})


@dataclass(frozen=True, slots=True)
class Wish:
    """`wanted`: the new definition in target terms; `before`: the one in force. `others`: those in force of the other units that write
    the table. `rewrite`: every row comes anew. `settled`: the steps were carried out; what can be done only once is not asked
    for again. `uniques`: False: the target refused them: new unique indexes are left out, and those go that a column would have that becomes a
    long text or bytes, over which MySQL has none (error 1170)."""

    wanted: Table
    before: Table | None
    policy: Policy
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    others: Sequence[Table] = ()
    rewrite: bool = False
    settled: bool = False
    uniques: bool = True

    @property
    def gone(self) -> list[str]:
        """Columns that the unit wrote and writes no more, by their names of now."""
        there = set(self.wanted.column_names)
        return [name for name in map(self.renamed, self._known()) if name not in there]

    def renamed(self, name: str) -> str:
        return self.columns.renamed.get(name, name)

    def shared(self, name: str) -> bool:
        return any(name in other.column_names for other in self.others)

    def _known(self) -> tuple[str, ...]:
        return () if self.before is None else self.before.column_names


def steps(real: Table, wish: Wish) -> AlterTable | None:
    """Return what is left to do to `real`; None: nothing. Raises UnitStoppedError where units want what no table can be."""
    if wish.policy in ("ignore", "stop"):
        return None
    renames = list(_renames(real, wish))
    now, joined = _after(real, renames), _joined(wish)
    found: list[Alteration] = [
        *renames,
        *_dropped_indexes(now, joined, wish),
        *_column_steps(now, joined, wish),
        *_key_steps(now, joined, wish),
        *_left(now, wish),
        *_new_indexes(now, joined, wish),
    ]
    return AlterTable(real, tuple(found)) if found else None


def kept_columns(real: Table, wish: Wish) -> list[str]:
    """Return the columns that the unit wrote and the target keeps, with their old values."""
    return [name for name in wish.gone if wish.policy != "evolve" or wish.shared(name) if _has(real, name)]


# --- what the units want together


def _joined(wish: Wish) -> Table:
    """Return the table that can hold the rows of all units: what one adds it has, what one lacks may be NULL in it."""
    tables = [wish.wanted, *wish.others]
    if len(tables) == 1:
        return wish.wanted
    for other in wish.others:
        if set(other.key.columns) != set(wish.wanted.key.columns):
            raise UnitStoppedError(
                f"{_name(wish.wanted)}: the key is ({', '.join(wish.wanted.key.columns)}) here and ({', '.join(other.key.columns)}) "
                "for another source that writes this table: change the other sources alike, or route this one to a table of its own"
            )
    columns = tuple(_joined_column(column, tables) for column in wish.wanted.columns)
    unique = tuple(
        index
        for index in wish.wanted.unique
        if all(any(_same(index, theirs) for theirs in other.unique) for other in wish.others)
    )
    return replace(wish.wanted, columns=columns, unique=unique)


def _joined_column(column: Column, tables: Sequence[Table]) -> Column:
    type_, nullable = column.type, column.nullable
    for table in tables[1:]:
        if column.name not in table.column_names:
            nullable = True
            continue
        other = table.column(column.name)
        wide = join(type_, other.type)
        if wide is None:
            raise UnitStoppedError(
                f"{_name(table)}: column {column.name} is {column.type.kind} here and {other.type.kind} for another source that writes "
                "this table: change the other sources alike, or route this one to a table of its own"
            )
        type_, nullable = wide, nullable or other.nullable
    return replace(column, type=type_, nullable=nullable)


# --- columns


def _renames(real: Table, wish: Wish) -> Iterator[RenameColumn]:
    for old, new in wish.columns.renamed.items():
        if _has(real, old) and not _has(real, new) and not wish.shared(old):
            yield RenameColumn(old, new)


def _after(real: Table, renames: Iterable[RenameColumn]) -> Table:
    """Return `real` with the columns' new names."""
    names = {rename.old: rename.new for rename in renames}
    if not names:
        return real
    columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in real.columns)
    unique = tuple(_renamed_index(index, names) for index in real.unique)
    return replace(real, columns=columns, key=_renamed_index(real.key, names), unique=unique)


def _renamed_index(index: UniqueIndex, names: dict[str, str]) -> UniqueIndex:
    parts = tuple(replace(part, column=names.get(part.column, part.column)) for part in index.parts)
    return replace(index, parts=parts)


def _column_steps(now: Table, joined: Table, wish: Wish) -> Iterator[Alteration]:
    for column in joined.columns:
        if not _has(now, column.name):
            yield _added(column, wish)
            continue
        there = now.column(column.name)
        if column.name in _replaced(wish):
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
    if wish.before is None or wish.others:
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


# --- key and unique indexes


def _key_steps(now: Table, joined: Table, wish: Wish) -> Iterator[ChangeKey]:
    known = None if wish.before is None else {*map(wish.renamed, wish.before.key.columns)}
    changed = known != set(joined.key.columns)
    if wish.rewrite and changed and set(now.key.columns) != set(joined.key.columns):
        yield ChangeKey(now.key, joined.key)


def _dropped_indexes(now: Table, joined: Table, wish: Wish) -> Iterator[DropUnique]:
    """Those that the source has no longer, or whose column goes: later rows would push each other out."""
    before = (
        [] if wish.before is None else [_renamed_index(i, wish.columns.renamed) for i in wish.before.unique]
    )
    gone = set(wish.gone)
    for index in now.unique:
        wanted = any(_same(each, index) for each in joined.unique)
        ours = any(_same(each, index) for each in before) or not gone.isdisjoint(index.columns)
        again = not _replaced(wish).isdisjoint(index.columns)
        if ours and (not wanted or again or (not wish.uniques and _becomes_long(index, now, joined))):
            yield DropUnique(index)


def becomes_long(now: Column, wanted: Column) -> bool:
    """Tell whether a column becomes a long text or bytes."""
    return wanted.type.kind in _LONG and now.type.kind not in _LONG


def _becomes_long(index: UniqueIndex, now: Table, wanted: Table) -> bool:
    old, new = ({each.name: each for each in table.columns} for table in (now, wanted))
    return any(name in new and becomes_long(old[name], new[name]) for name in index.columns)


def _new_indexes(now: Table, joined: Table, wish: Wish) -> Iterator[AddUnique]:
    if not wish.uniques or wish.before is None:
        return
    before = {_parts(_renamed_index(index, wish.columns.renamed)) for index in wish.before.unique}
    for index in joined.unique:
        known = any(_same(index, there) for there in now.unique)
        again = not _replaced(wish).isdisjoint(index.columns)
        if again or (not known and (_parts(index) not in before or not _new(wish).isdisjoint(index.columns))):
            yield AddUnique(index)


def _new(wish: Wish) -> set[str]:
    """Columns that the source has dropped and added under one name."""
    return set(wish.columns.dropped).intersection(wish.columns.added)


def _replaced(wish: Wish) -> set[str]:
    """Those of them that are dropped and added at the target now: their indexes go with them, and come again."""
    return set() if wish.settled or wish.rewrite else _new(wish)


def _same(wanted: UniqueIndex, real: UniqueIndex) -> bool:
    """Tell whether a real index is the wanted one; it may compare more of a value, never less."""
    if set(wanted.columns) != set(real.columns):
        return False
    prefixes = {part.column: part.prefix for part in wanted.parts}
    return all(
        part.prefix is None or (prefixes[part.column] or part.prefix + 1) <= part.prefix
        for part in real.parts
    )


def _parts(index: UniqueIndex) -> frozenset[tuple[str, int | None]]:
    return frozenset((part.column, part.prefix) for part in index.parts)


# --- columns beside others


def names_beside(real: Table, wanted: Table, policy: Policy, names: Mapping[str, str]) -> dict[str, str]:
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
        found[column.name] = free = _free(names.get(column.name, column.name), taken)
        taken.add(free)
    return found


def names_apart(real: Table, source: Table, names: Mapping[str, str]) -> dict[str, str]:
    """Return source name → the name of a new column, for each whose own name another one of `names` (source name → the target's) is written under:
    the source gave a column the name that the target had chosen for a column beside."""
    taken = {*real.column_names, *source.column_names, *names.values()}
    found = {}
    for name in source.column_names:
        if name not in names and name in names.values():
            found[name] = free = _free(name, taken)
            taken.add(free)
    return found


def _free(name: str, taken: set[str]) -> str:
    return next(free for n in range(2, len(taken) + 3) if (free := f"{name}_{n}") not in taken)


def _has(table: Table, name: str) -> bool:
    return name in table.column_names


def _name(table: Table) -> str:
    return f"{table.db}.{table.name}"
