"""Names of columns that the target takes for one, though they differ: `v` and `V` are two columns of PostgreSQL, and one of MySQL. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.table.model import Table
from schemas.table.names import Names

SHORT = 63
"""Bytes that a name of any target may have."""


def spelled_there(
    source: Table, real: Table, names: Mapping[str, str], goes: Collection[str], same: Names
) -> dict[str, str]:
    """Return source name → the target's, for each column that the target has by its name in another spelling.

    `names`: source name → the target's, where that is known to be another. `goes`: columns of the target that get another name or are dropped now.
    """
    spelled = {same.fold(name): name for name in real.column_names}
    taken = {*goes, *(names.get(name, name) for name in source.column_names)}
    found: dict[str, str] = {}
    for name in source.column_names:
        there = spelled.get(same.fold(name), name)
        if name not in names and name not in real.column_names and there not in taken and there != name:
            found[name] = there
            taken.add(there)
    return found


def free_name(name: str, taken: Collection[str], same: Names) -> str:
    """Return `name` with a number, which is none of `taken` to the target, and not longer than any target takes."""
    there = {same.fold(each) for each in taken}
    numbered = (_short(name, f"_{n}") for n in range(2, len(there) + 3))
    return next(each for each in numbered if same.fold(each) not in there)


def _short(name: str, end: str) -> str:
    """PostgreSQL would cut a longer name, and MySQL refuse it."""
    return name.encode()[: SHORT - len(end)].decode(errors="ignore") + end
