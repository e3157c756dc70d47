"""The copies that `status` shows: those about which something is left to do, or to wait for. Pure."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.server.operators.copies import CopyRow
from rowlock.views.copy_desk import REQUESTED_BY_OPERATOR


def select_unsettled_copies(copies: Collection[CopyRow], stopped: Collection[str]) -> tuple[CopyRow, ...]:
    """Return the copies that `status` shows. `stopped`: "db.table" of the source's stopped tables."""
    return tuple(each for each in copies if not _is_settled(each, has_stop=each.table in stopped))


def _is_settled(copy: CopyRow, *, has_stop: bool) -> bool:
    """Return whether nothing is left to do about a copy that was cancelled or refused.

    A person who asked for the copy sees the refusal in `rowlock copy`. It has changed nothing if the table
    runs and no row was copied.
    """
    if copy.phase not in ("cancelled", "refused") or copy.debt is not None or copy.retry_ms is not None:
        return False
    if copy.phase == "cancelled":
        return True
    return copy.by == REQUESTED_BY_OPERATOR and not copy.rows and not has_stop
