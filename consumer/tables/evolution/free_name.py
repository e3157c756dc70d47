"""A name for an additional column that no server considers equal to an existing one. Without I/O."""

from __future__ import annotations

from collections.abc import Collection

from schemas.table.names import NameRules

MAX_NAME_LENGTH = 63
"""Bytes that a name may have in every target."""


def free_name(name: str, taken: Collection[str], same: NameRules) -> str:
    """Return `name` with a number, so that no target considers it equal to one of `taken` or too long."""
    there = {same.fold_name(each) for each in taken}
    numbered = (_shorten_name(name, f"_{n}") for n in range(2, len(there) + 3))
    return next(each for each in numbered if same.fold_name(each) not in there)


def _shorten_name(name: str, end: str) -> str:
    """Shorten `name` before `end`: PostgreSQL would cut a longer name, and MySQL refuse it."""
    return name.encode()[: MAX_NAME_LENGTH - len(end)].decode(errors="ignore") + end
