"""What a gathered stretch of row changes comes to (design.md §6 Lane, findings 10, 18, 19). By exact key, never folded."""

from __future__ import annotations

from collections.abc import Iterable

from consumer.model import NetChange, RowChange, TargetTable


def net_change(table: TargetTable, changes: Iterable[RowChange]) -> NetChange:
    """Reduce `changes` of one table (in event order) to their net effect; lists sorted by key."""
    raise NotImplementedError
