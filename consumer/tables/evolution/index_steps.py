"""Finds what a target table's key and unique indexes become with a new definition. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from consumer.tables.evolution.wish import Wish, same_index
from consumer.targets.alterations import AddUnique, ChangeKey, DropUnique
from schemas.table.model import Column, Kind, Table, UniqueIndex

_LONG = frozenset({Kind.TEXT, Kind.BLOB})


def key_steps(now: Table, joined: Table, wish: Wish) -> Iterator[ChangeKey]:
    changed = {*map(wish.renamed, wish.before.key.columns)} != set(joined.key.columns)
    if wish.rewrite and changed and set(now.key.columns) != set(joined.key.columns):
        yield ChangeKey(now.key, joined.key)


def dropped_indexes(now: Table, joined: Table, wish: Wish) -> Iterator[DropUnique]:
    """Those that the source has no longer, or whose column goes: later rows would push each other out."""
    before = [index.renamed(wish.columns.renamed) for index in wish.before.unique]
    gone = set(wish.gone)
    for index in now.unique:
        wanted = any(same_index(each, index) for each in joined.unique)
        ours = any(same_index(each, index) for each in before) or not gone.isdisjoint(index.columns)
        again = not wish.replaced.isdisjoint(index.columns)
        if ours and (not wanted or again or (not wish.uniques and _becomes_long(index, now, joined))):
            yield DropUnique(index)


def becomes_long(now: Column, wanted: Column) -> bool:
    """Tell whether a column becomes a long text or bytes."""
    return wanted.type.kind in _LONG and now.type.kind not in _LONG


def _becomes_long(index: UniqueIndex, now: Table, wanted: Table) -> bool:
    old, new = ({each.name: each for each in table.columns} for table in (now, wanted))
    return any(name in new and becomes_long(old[name], new[name]) for name in index.columns)


def new_indexes(now: Table, joined: Table, wish: Wish) -> Iterator[AddUnique]:
    if not wish.uniques:
        return
    before = {_parts(index.renamed(wish.columns.renamed)) for index in wish.before.unique}
    for index in joined.unique:
        known = any(same_index(index, there) for there in now.unique)
        again = not wish.replaced.isdisjoint(index.columns)
        if again or (not known and (_parts(index) not in before or not wish.anew.isdisjoint(index.columns))):
            yield AddUnique(index)


def _parts(index: UniqueIndex) -> frozenset[tuple[str, int | None]]:
    return frozenset((part.column, part.prefix) for part in index.parts)
