"""Look-ups of rows by keys that the target may be unable to store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from consumer.errors import RefusedError
from schemas.table.model import Key

T = TypeVar("T")


def find_under_keys(look: Callable[[Sequence[Key]], Sequence[T]], keys: Sequence[Key]) -> list[T]:
    """Return what `look` finds under `keys`; a key that the target refuses (a zero date in PostgreSQL)
    has no row.

    `look` raises RefusedError for all keys of a call that includes such a one.
    """
    try:
        return list(look(keys))
    except RefusedError:
        if len(keys) == 1:
            return []
    half = len(keys) // 2  # halving isolates the refused key, so that it hides no other
    return find_under_keys(look, keys[:half]) + find_under_keys(look, keys[half:])
