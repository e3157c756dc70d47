"""Folded bytes of (index, value): what an index holds equal folds equal (design.md §6 Dispatch, finding 10)."""

from __future__ import annotations

from collections.abc import Callable

from schemas.table import Row, Table, UniqueIndex

FOLD_VERSION = 1
Fold = Callable[[Row], bytes | None]
"""Row of the target table → folded value of the index; None: NULL rules say it collides with nothing."""


def index_fold(table: Table, index: UniqueIndex, source: Table | None = None) -> Fold:
    """Return the fold of a unique index of the target table `table`; rows are in the order of `table.columns`."""
    raise NotImplementedError
