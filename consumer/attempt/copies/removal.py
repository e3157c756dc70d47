"""Removes rows that the source no longer has from the target, or keeps them (`partitions: keep`,
docs/adr/0042-kept-rows.md).

A row that a statement without row events removed (DROP PARTITION) is known only as a row that the source
does not have, as every stale row. So while the unit has a debt of such a statement, every row that a sweep
would delete is recorded in `rowlock_kept` and stays. Without such a debt a sweep deletes all rows but those
that are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from consumer.attempt.copies.quarantined_keys import format_entry_table
from consumer.attempt.effects import FindKeptKeys, FindKeptRows, Machine, ask_driver
from consumer.attempt.operations import Operation, RecordKeptRows, WriteChanges
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.ordering.model import KeptRows, NetChange, TargetTable, format_entry_key
from consumer.ordering.netchange import sort_keys
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import ResolvedRoute
from consumer.tables.stored import StoredDefinition
from schemas.table.model import Key


def remove_rows(
    progress: AttemptProgress, active: ActiveDefinition, table: TargetTable, keys: Sequence[Key]
) -> Machine[int]:
    """Delete the rows of `keys`, which the source does not have, or record them as kept, in one transaction
    that guards the unit's progress and moves no lane; return how many were deleted.
    """
    if not active.routed.keeps_removed_rows:
        yield from _delete_rows(progress, table, keys)
        return len(keys)
    texts, name = {format_entry_key(key): key for key in keys}, format_entry_table(active)
    kept = yield from retry_transient(lambda: ask_driver(FindKeptKeys(name, list(texts))))
    for text in kept:
        del texts[text]
    debt = active.stored.removed if active.stored.has_kept_rows else None
    if texts and debt is not None:
        rows = KeptRows(name, list(texts), debt.offset, debt.ddl)
        yield from progress.commit_guarded([RecordKeptRows(rows)])
    elif texts:
        yield from _delete_rows(progress, table, list(texts.values()))
    return len(texts) if debt is None else 0


def _delete_rows(progress: AttemptProgress, table: TargetTable, keys: Sequence[Key]) -> Machine[None]:
    operations: list[Operation] = [WriteChanges(NetChange(table, deletes=sort_keys(keys)))]
    yield from progress.commit_guarded(operations)


def must_forget_kept_rows(active: ActiveDefinition) -> bool:
    """Return whether the end of a copy or key sweep forgets the unit's kept rows: the route no longer keeps
    them, so they are deleted.
    """
    return active.stored.has_kept_rows and not active.routed.keeps_removed_rows


def keeps_any_row(routed: ResolvedRoute, stored: StoredDefinition | None) -> Machine[bool]:
    """Return whether the target has, or may have, rows of the unit that the source removed and that the route
    keeps.

    `stored`: the unit's stored definition; None: it has none, or not any more.
    """
    if not routed.keeps_removed_rows or (stored is not None and not stored.has_kept_rows):
        return False
    if stored is not None and stored.removed is not None:
        return True  # the key sweep that records them has not ended
    return (yield from retry_transient(lambda: ask_driver(FindKeptRows())))
