"""Looking for rows by keys of which the target may be unable to hold some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from consumer.errors import RefusedError
from schemas.table.model import Key

T = TypeVar("T")


def find_under_keys(look: Callable[[Sequence[Key]], Sequence[T]], keys: Sequence[Key]) -> list[T]:
    """Return what `look` finds under `keys`. Under one that the target refuses (a zero date in PostgreSQL) it has no row.

    `look` raises RefusedError for all keys that it was asked for with such a one.
    """
    try:
        return list(look(keys))
    except RefusedError:
        if len(keys) == 1:
            return []
    half = len(keys) // 2  # the refused key is alone in the end, and hides no other
    return find_under_keys(look, keys[:half]) + find_under_keys(look, keys[half:])
