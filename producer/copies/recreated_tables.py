"""Judges whether a table that was dropped and created again is copied automatically. Pure.

If it is not, its stop remains; `rowlock copy` ends it.
"""

from __future__ import annotations

from msgspec.structs import replace

from producer.copies.book import MAX_COPY_RESTARTS, CopyBook, KnownTable
from producer.copies.states import DAY_MS, is_open
from schemas.findings import format_copy_remedy
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyRequest, CopyState


def judge_recreated_table(book: CopyBook, request: CopyRequest, seen: KnownTable, now: int) -> str:
    """Record that a table exists again.

    Return why it is not copied automatically, "…seen…: remedy"; "": it is.

    `request.limits` None: no pipeline asks for it. A waiting copy continues with the new table. A copy
    that was given up because the table was dropped in its middle begins again, but no more often than
    any other copy.
    """
    name = format_table_text(request.db, request.table)
    before = book.states.all.get(name)
    if before is not None and is_open(before) and before.where is None:
        return ""
    restarts = _count_abandoned_restarts(before, now)
    book.accept_request(request, seen._replace(refusal=_explain_repair_refusal(request, restarts)), now)
    state = book.states.all[name]
    if restarts and before is not None:
        began = before.began_ms if state.phase == "refused" else state.began_ms
        book.states.put_state(replace(state, restarts=restarts, began_ms=began))
    return state.reason if state.phase == "refused" else ""


def _count_abandoned_restarts(state: CopyState | None, now: int) -> int:
    """Return how often the table's last copy began again, if it was given up within a day after it had
    begun; otherwise 0.
    """
    if state is None or state.phase != "refused" or state.began_ms is None:
        return 0
    return state.restarts if now - (state.ended_ms or 0) < DAY_MS else 0


def _explain_repair_refusal(request: CopyRequest, restarts: int) -> str:
    """Return why the table is not copied, whatever the limits of pipelines are; "": it may be."""
    table, by_hand = (
        format_table_text(request.db, request.table),
        format_copy_remedy(request.db, request.table),
    )
    if request.limits is None:
        return (
            f"{table} was created again, and `repair: stop` of its pipelines prevents an automatic "
            f"copy: {by_hand}"
        )
    if restarts >= MAX_COPY_RESTARTS:
        return (
            f"{table} was dropped during {restarts} copies in a row: {by_hand}, once it is no longer dropped"
        )
    return ""
