"""The map from the source's names of columns to the target's: how it begins, follows a change and is applied.

It has only the columns whose names differ, and those to which the route gives a name. It is part of the
stored definition (consumer.tables.stored), and a column of the source that gets another name leaves it.
Everything that runs after routing sees the target's names only. Without I/O.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from msgspec.structs import replace

from schemas.table.model import Table
from schemas.wire.event import ColumnChanges


def keep_names(names: Mapping[str, str], after: Table, changes: ColumnChanges) -> dict[str, str]:
    """Return the map after a statement that led to the table `after` by `changes`."""
    stay = {*after.column_names} - {*changes.dropped, *changes.renamed}
    return {name: there for name, there in names.items() if name in stay}


def follow_route(
    names: Mapping[str, str], by_route: Mapping[str, str], renames: Mapping[str, str]
) -> dict[str, str]:
    """Return the map with the names that a route's `rename` gives now.

    `by_route`: the names that it gave when the map was made. A name that it still gives may have another
    spelling in the target, and keeps it.
    """
    kept = {name: there for name, there in names.items() if by_route.get(name) == renames.get(name)}
    return {**renames, **kept}


def adopt_spelling(
    names: Mapping[str, str],
    columns: Iterable[str],
    spelled: Mapping[str, str],
    by_route: Container[str] = (),
) -> dict[str, str]:
    """Return the map of `columns` with the target's spelling.

    `spelled`: name in the target → how the target spells it. `by_route`: the columns to which the route
    gives a name. They stay in the map even if the target spells it as the source does: otherwise the route's
    name would look like a new one.
    """
    now = {name: names.get(name, name) for name in columns}
    found = {name: spelled.get(there, there) for name, there in now.items()}
    return {name: there for name, there in found.items() if there != name or name in by_route}


def translate_changes(
    changes: ColumnChanges,
    before: Mapping[str, str],
    after: Mapping[str, str],
    rerouted: Iterable[str] = (),
    by_route: Iterable[str] = (),
) -> ColumnChanges:
    """Return a statement's changes of columns in the target's names, by the maps before and after it.

    A column that keeps its name in the target is not renamed. `by_route`: the columns to which the route
    gives a name. `rerouted`: columns that the statement does not rename, but the route does now.
    """
    named = {*by_route}
    renamed = {
        before.get(old, old): after.get(new, new)
        for old, new in changes.renamed.items()
        if new not in after or new in named
    }
    renamed |= {before.get(name, name): after.get(name, name) for name in rerouted}
    return replace(
        changes,
        renamed={old: new for old, new in renamed.items() if old != new},
        added=tuple(after.get(name, name) for name in changes.added),
        dropped=tuple(before.get(name, name) for name in changes.dropped),
    )


def omit_unwritten_columns(source: Table, names: Mapping[str, str], written: Iterable[str]) -> Table:
    """Return `source` with only the columns whose names in the target are in `written`."""
    there = set(written)
    columns = tuple(each for each in source.columns if names.get(each.name, each.name) in there)
    return source if len(columns) == len(source.columns) else replace(source, columns=columns)
