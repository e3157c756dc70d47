"""Refusals of copies: incomplete conditions, copies that a stop does not allow, and limits of copies
that no person requested. Pure.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from producer.copies.states import DAY_MS, CopyStates, is_open, select_recent_ends
from producer.statements.tokens import tokenize_sql
from schemas.findings import format_copy_remedy
from schemas.problems import Problem
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyOutcome, CopyRequest, CopyState, RepairLimits

HOUR_MS, MINUTE_MS = 3600 * 1000, 60 * 1000
#: Tables of one source that may be copied at once for units.
MAX_CONCURRENT_COPIES = 3
SWEPT_ROWS = 10
"""A key sweep may read this many keys for each row that a copy may read (`max_rows`)."""

_NOT_WHOLE = frozenset([";", "'", '"', "`"])
"""Tokens that a condition must not contain: the end of a statement, and unterminated quotes."""


class CopyRefusal(NamedTuple):
    """A refusal of a copy, or its postponement until `retry_ms`; None: it waits for a person."""

    problem: Problem
    retry_ms: int | None = None


def explain_unbalanced_condition(where: str) -> Problem | None:
    """Return why a text is not a complete condition; None: it may be one.

    The source judges its meaning. It gets the text in parentheses, which an unterminated comment would
    leave open.
    """
    texts, depth = [token.upper for token in tokenize_sql(where)], 0
    for text in texts:
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth < 0:
            break
    if texts and depth == 0 and not _NOT_WHOLE & set(texts):
        return None
    return Problem(
        f"the condition {where[:200]!r} is incomplete",
        "give one complete SQL condition with balanced parentheses",
    )


def is_copy_satisfied(state: CopyOutcome, request: CopyRequest) -> bool:
    """Return whether the request is fulfilled or will be: a copy of the whole table begins after the
    offset `after`.
    """
    if request.after is None or state.where is not None:
        return False
    if state.phase == "waiting":
        return True
    return state.phase in ("running", "done") and state.offset is not None and state.offset > request.after


def format_ended_cause(state: CopyState) -> str:
    """Return the cause of a copy that has ended, for `is_repeated_cause`.

    What stopped only a unit, for example its route that was changed, is a cause of its pipeline.
    """
    only_unit = state.by.startswith("pipeline ") and not state.ended_stop
    return f"{state.cause} of {state.by}" if only_unit else state.cause


def is_repeated_cause(ended: str, request: CopyRequest, stopped: str) -> bool:
    """Return whether a copy has ended for the cause of this request.

    The same change of a route may reach the next pipeline after the copy for the first one has begun. Its
    request is no repetition.
    """
    cause, _, by = ended.partition(" of ")
    return cause == request.cause and (bool(stopped) or by in ("", request.by))


def explain_sweep_refusal(
    name: tuple[str, str], limits: RepairLimits | None, estimate: int | None
) -> Problem | None:
    """Return why a key sweep is not made; None: it is made.

    `limits`: those of `repair`; None: no pipeline copies by itself. A key sweep reads keys only, and each
    statement leads to one at most, so it is not counted by the hour and the day.
    """
    table = format_table_text(*name)
    remedy = f"{format_copy_remedy(*name)}, which removes them"
    left = f"{table}: the source removed rows by a statement, and targets still have them"
    if limits is None:
        return Problem(f"{left}: `repair: stop` of its pipelines prevents an automatic key sweep", remedy)
    most = limits.max_rows * SWEPT_ROWS
    if estimate is not None and estimate > most:
        return Problem(
            f"{left}: the table has about {estimate} rows, and `repair` reads the keys of up to {most} "
            f"(`max_rows` x {SWEPT_ROWS})",
            f"{remedy}, or raise `repair: {{max_rows}}`",
        )
    return None


def find_copy_refusal(
    request: CopyRequest, stopped: str, states: CopyStates, estimate: int | None, now: int
) -> CopyRefusal | None:
    """Return why a copy is not made; None: it is made.

    `stopped`: the cause of the table's stop, "": it has none.
    """
    table = format_table_text(request.db, request.table)
    if request.where is not None and stopped:
        return CopyRefusal(
            Problem(
                f"{table} is stopped ({stopped}), and a copy of a part of its rows does not end the stop",
                format_copy_remedy(request.db, request.table),
            )
        )
    return find_exceeded_limit(request, stopped, states, estimate, now)


def find_exceeded_limit(
    request: CopyRequest, stopped: str, states: CopyStates, estimate: int | None, now: int
) -> CopyRefusal | None:
    """Return which limit a copy exceeds that no person requested; None: it is made.

    Statements that only remove rows come more often than once an hour, and each needs a copy for a target
    that has no keys to compare. Only the limit of the day counts for them.
    """
    limits = request.limits
    if limits is None:
        return None
    table = format_table_text(request.db, request.table)
    state = states.all.get(table)
    ended = select_recent_ends(state.ended if state else (), now)
    only_removed = request.cause == "rows-replaced" and not stopped  # capture follows the table
    about = "" if estimate is None else f" (about {estimate} rows)"
    by_hand = f"{format_copy_remedy(request.db, request.table)}{about}"
    if estimate is not None and estimate > limits.max_rows:
        return CopyRefusal(
            Problem(
                f"{table} has about {estimate} rows, and `repair` copies up to {limits.max_rows} by itself",
                by_hand,
            )
        )
    if len(ended) >= limits.max_per_day:
        return _postpone_copy(
            f"{table} was copied {len(ended)} times within a day, and `repair` allows {limits.max_per_day}",
            by_hand,
            ended[-limits.max_per_day][0] + DAY_MS,
        )
    last = max((at for at, cause in ended if is_repeated_cause(cause, request, stopped)), default=None)
    if last is not None and now - last < HOUR_MS and not only_removed:
        return _postpone_copy(
            f"{table} needs a copy for the same cause ({request.cause}) within an hour after one",
            by_hand,
            last + HOUR_MS,
        )
    if len(_list_copies_at_once(request, states)) >= MAX_CONCURRENT_COPIES:
        return _postpone_copy(
            f"more than {MAX_CONCURRENT_COPIES} tables of the source need a copy at the same time, among "
            f"them {table}",
            by_hand,
            now + MINUTE_MS,
        )
    return None


def _list_copies_at_once(request: CopyRequest, states: CopyStates) -> list[CopyState]:
    """Return the open copies of other tables that were requested for units at about the same time."""
    return [
        other
        for other in states.all.values()
        if is_open(other)
        and not other.keys
        and other.by != "operator"
        and (other.db, other.table) != (request.db, request.table)
        and abs(request.requested_ms - other.requested_ms) < MINUTE_MS
    ]


def _postpone_copy(seen: str, by_hand: str, retry_ms: int) -> CopyRefusal:
    """Return the refusal of a copy that begins by itself at `retry_ms`, if no limit is exceeded then."""
    minute = -(-retry_ms // MINUTE_MS) * MINUTE_MS // 1000
    moment = datetime.datetime.fromtimestamp(minute, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    problem = Problem(
        f"{seen}: the copy is postponed until {moment}",
        f"nothing to do; to begin it earlier: {by_hand}",
    )
    return CopyRefusal(problem, retry_ms)
