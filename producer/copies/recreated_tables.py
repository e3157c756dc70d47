"""Judges whether a table that was dropped and created again is copied automatically, and within which
limits, by the configuration of its pipelines. Pure.

If it is not, its stop remains; `rowlock copy` ends it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from producer.copies.book import MAX_COPY_RESTARTS, CopyBook, KnownTable
from producer.copies.states import DAY_MS, is_open
from producer.tables import TableName
from schemas.config.model import Config, RepairConfig
from schemas.findings import format_copy_remedy
from schemas.problems import Problem, decode_problem
from schemas.table.names import format_table_text
from schemas.table.patterns import is_pattern_match
from schemas.wire.copies import CopyRequest, CopyState, RepairLimits, select_copy

Repair = Callable[[TableName], RepairLimits | None]
"""Table → limits of a copy that no person requested; None: no such copy is made."""


def make_repair_limits(config: Config, source: str) -> Repair:
    """Return the limits that `repair` of the pipelines sets for the tables of a source.

    Each pipeline could request a copy, so the widest limits of those with `repair: copy` apply. A table
    that no pipeline selects has a topic for other readers; it gets the default limits.
    """
    pipelines = [each for each in config.pipelines.values() if source in each.sources]

    def limits(table: TableName) -> RepairLimits | None:
        taking = [
            each.repair
            for each in pipelines
            if any(is_pattern_match(route.from_, *table) for route in each.routes)
        ]
        return _select_widest_limits(taking or [RepairConfig()])

    return limits


def _select_widest_limits(repairs: list[RepairConfig]) -> RepairLimits | None:
    """Return the widest limits of those that copy; None: none does."""
    copying = [each for each in repairs if each.mode == "copy"]
    if not copying:
        return None
    return RepairLimits(
        max_rows=max(each.max_rows for each in copying),
        max_per_day=max(each.max_per_day for each in copying),
    )


def get_default_limits(_table: TableName) -> RepairLimits | None:
    """Return the limits for tables without a configuration."""
    return _select_widest_limits([RepairConfig()])


def judge_recreated_table(book: CopyBook, request: CopyRequest, seen: KnownTable, now: int) -> Problem | None:
    """Record that a table exists again.

    Return why it is not copied automatically; None: it is.

    `request.limits` None: no pipeline asks for it. A waiting copy continues with the new table. A copy
    that was given up because the table was dropped in its middle begins again, but no more often than
    any other copy.
    """
    name = format_table_text(request.db, request.table)
    before = book.states.all.get(name)
    if before is not None and is_open(before) and before.where is None and not before.keys:
        return None
    restarts = _count_abandoned_restarts(before, now)
    book.accept_request(request, seen._replace(refusal=_explain_repair_refusal(request, restarts)), now)
    state = book.states.all[name]
    if restarts and before is not None:
        began = before.began_ms if state.phase == "refused" else state.began_ms
        book.states.put_state(replace(state, restarts=restarts, began_ms=began))
    judged = select_copy(state) or state
    return decode_problem(judged.reason) if judged.phase == "refused" else None


def _count_abandoned_restarts(state: CopyState | None, now: int) -> int:
    """Return how often the table's last copy began again, if it was given up within a day after it had
    begun; otherwise 0.
    """
    if state is None or state.phase != "refused" or state.began_ms is None:
        return 0
    return state.restarts if now - (state.ended_ms or 0) < DAY_MS else 0


def _explain_repair_refusal(request: CopyRequest, restarts: int) -> Problem | None:
    """Return why the table is not copied, whatever the limits of pipelines are; None: it may be."""
    table, by_hand = (
        format_table_text(request.db, request.table),
        format_copy_remedy(request.db, request.table),
    )
    if request.limits is None:
        return Problem(
            f"{table} was created again, and `repair: stop` of its pipelines prevents an automatic copy",
            by_hand,
        )
    if restarts >= MAX_COPY_RESTARTS:
        return Problem(
            f"{table} was dropped during {restarts} copies in a row",
            f"{by_hand}, once it is no longer dropped",
        )
    return None
