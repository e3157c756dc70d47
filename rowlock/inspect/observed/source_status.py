"""The status of a source, by its last watermark and by the coordinator's knowledge of its capture unit.
Pure.

Missing reports never look like health: a source without recent reports is never "running", whatever its
last watermark was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from coordinator.server.operators.copies import CopyRow
from rowlock.inspect.placement import SEE_CHECK, START_AGAIN, Placement, PlacementRow
from rowlock.views.copy_desk import copy_rows, explain_remedy
from rowlock.views.headroom import NeededLog
from schemas.problems import decode_problem
from schemas.table.patterns import build_loose_selection
from schemas.wire.position import Position
from schemas.wire.records import SNAPSHOT_COMPLETE, TableStop, Watermark

SILENT_S = 10.0
"""Capture writes a watermark a second. A source without one for this many seconds is silent."""
NOT_RUNNING_TEXT = "no process runs it"
LEFT_OUT = "it was not started"


@dataclass(frozen=True, slots=True)
class StateReason:
    """The state of a unit, and the reason if it does not run."""

    state: str
    reason: str | None = None
    remedy: str | None = None
    since_ms: int | None = None
    """Since when, in ms since 1970; None: not known."""


class TableStatus(msgspec.Struct, frozen=True):
    """A table without published events."""

    table: str = msgspec.field(name="table")
    state: str = msgspec.field(name="state")
    """"stopped" or "left out" (it was never captured)."""
    reason: str = msgspec.field(name="reason")
    remedy: str = msgspec.field(name="remedy")
    cause: str | None = msgspec.field(name="cause", default=None)
    at: str | None = msgspec.field(name="at", default=None)
    """"file:pos" of the cause in the source's log."""
    since_ms: int | None = msgspec.field(name="since_ms", default=None)
    """When that was."""


class PreparedXaStatus(msgspec.Struct, frozen=True):
    """An XA transaction that is prepared in the log and has not ended there."""

    xid: str = msgspec.field(name="xid")
    at: str = msgspec.field(name="at")
    """"file:pos" of its beginning in the source's log."""
    since_ms: int = msgspec.field(name="since_ms")
    """Time of XA PREPARE."""


class SourceStatus(msgspec.Struct, frozen=True):
    """The status of a source."""

    name: str = msgspec.field(name="name")
    state: str = msgspec.field(name="state")
    """running | restarting | stopped | silent | new (never captured) | finished (its snapshot was all it
    had to do) | external (Debezium captures it: nothing else is known).
    """
    position: str | None = msgspec.field(name="position", default=None)
    captured_to_ms: int | None = msgspec.field(name="captured_to_ms", default=None)
    lag_seconds: float | None = msgspec.field(name="lag_seconds", default=None)
    watermark_age_seconds: float | None = msgspec.field(name="watermark_age_seconds", default=None)
    snapshot_pending: tuple[str, ...] = msgspec.field(name="snapshot_pending", default=())
    events: int = msgspec.field(name="events", default=0)
    error: str | None = msgspec.field(name="error", default=None)
    idle: bool = msgspec.field(name="idle", default=False)
    """Whether the log holds nothing after the position."""
    reason: str | None = msgspec.field(name="reason", default=None)
    remedy: str | None = msgspec.field(name="remedy", default=None)
    tables: tuple[TableStatus, ...] = msgspec.field(name="tables", default=())
    headroom_seconds: float | None = msgspec.field(name="headroom_seconds", default=None)
    copies: tuple[CopyRow, ...] = msgspec.field(name="copies", default=())
    """The copies of its tables that are not complete."""
    prepared: tuple[PreparedXaStatus, ...] = msgspec.field(name="prepared", default=())
    """XA transactions that have not ended, the oldest of them: capture still needs the log from there on."""

    def find_needed_log(self, now_ms: int) -> NeededLog:
        """Return the oldest part of the source's log that capture needs."""
        read = NeededLog(self.lag_seconds or 0.0, self.position, "capture has not read")
        if not self.prepared:
            return read
        oldest = self.prepared[0]
        age_s = max(0.0, (now_ms - oldest.since_ms) / 1000)
        return NeededLog(max(read.age_s, age_s), oldest.at, f"XA transaction {oldest.xid} needs")


def judge_source(
    name: str,
    seen: Watermark | None,
    now_ms: int,
    placement: Placement | None = None,
    row: PlacementRow | None = None,
    *,
    patterns: Sequence[str] = ("*.*",),
) -> SourceStatus:
    """Return the status of a source. `patterns`: its `tables:`.

    `row`: its capture unit as REST returns it; None: the coordinator has none. `placement` None: not
    read.
    """
    placed = explain_placement(placement, row)
    if seen is None:
        ill = (
            placed
            if placed is not None and placed.state in ("stopped", "restarting") and row is not None
            else StateReason("new")
        )
        return SourceStatus(name, ill.state, reason=ill.reason, remedy=ill.remedy)
    age = max(0.0, (now_ms - seen.ts_ms) / 1000)
    why = _judge_watermark(seen, age, placed)
    return SourceStatus(
        name=name,
        state=why.state,
        position=f"{seen.file}:{seen.position[2]}",
        captured_to_ms=seen.commit_ts_ms,
        # The watermark of an idle source describes the moment when it was written; later changes are at
        # most as old as it is.
        lag_seconds=round(max(0.0, age if seen.idle else (now_ms - seen.commit_ts_ms) / 1000), 3),
        watermark_age_seconds=round(age, 3),
        snapshot_pending=seen.snapshot_pending,
        events=seen.events,
        error=seen.error,
        idle=seen.idle,
        reason=why.reason,
        remedy=why.remedy,
        tables=list_uncaptured_tables(seen),
        copies=_list_copies(name, seen, patterns),
        prepared=tuple(
            PreparedXaStatus(xid, f"{place.file}:{place.pos}", place.ts_ms)
            for xid, place in seen.prepared.items()
        ),
    )


def _list_copies(name: str, seen: Watermark, patterns: Sequence[str]) -> tuple[CopyRow, ...]:
    """Return the copies that are not complete, but none that was refused or cancelled of an excluded table:
    nothing is left to do about it.
    """
    is_selected = build_loose_selection(tuple(patterns))
    shown = {
        table: state
        for table, state in seen.copies.items()
        if state.phase not in ("refused", "cancelled") or is_selected(state.db, state.table)
    }
    rows = copy_rows({name: replace(seen, copies=shown)})
    return tuple(row for row in rows if row.phase != "done")


def explain_placement(placement: Placement | None, row: PlacementRow | None) -> StateReason | None:
    """Return a unit's state as the coordinator knows it; None: it is not known, or nothing is known
    without a leader.
    """
    if row is not None:
        return StateReason(str(row["health"]), row["reason"], row["remedy"])
    if placement is None or not placement.known:
        return None
    if placement.problem:
        return StateReason("stopped", NOT_RUNNING_TEXT, START_AGAIN)
    return StateReason("stopped", LEFT_OUT, SEE_CHECK)


def _judge_watermark(seen: Watermark, age: float, placed: StateReason | None) -> StateReason:
    if seen.ended == SNAPSHOT_COMPLETE:
        return StateReason("finished", seen.ended)
    if placed is not None and placed.state in ("stopped", "restarting"):
        return _explain_not_running(seen, age, placed)
    if placed is not None and placed.state == "starting":
        return StateReason("restarting", placed.reason)
    if seen.ended is not None:
        problem = decode_problem(seen.ended)
        if seen.restarts:
            return StateReason("restarting", str(problem))
        return (
            StateReason("restarting", "it starts again")
            if placed is not None
            else StateReason("stopped", problem.what, problem.action or None)
        )
    if age > SILENT_S:
        unheard = f"its capture has written no watermark for {age:.0f} s"
        return StateReason(
            "silent",
            unheard,
            "see the log of the agent: the source or Kafka may not answer, or the machine is overloaded",
        )
    return StateReason("running")


def _explain_not_running(seen: Watermark, age: float, placed: StateReason) -> StateReason:
    if placed.reason != NOT_RUNNING_TEXT:
        return placed
    if seen.ended is None and age <= SILENT_S:
        return StateReason("running")  # started by hand, without a coordinator
    problem = decode_problem(seen.ended or NOT_RUNNING_TEXT)
    return StateReason("stopped", problem.what, problem.action or placed.remedy)


def list_uncaptured_tables(seen: Watermark) -> tuple[TableStatus, ...]:
    """Return the tables that capture has stopped or left out, by name."""
    stopped = [
        _build_table_status(table, stop, explain_remedy(stop.remedy, seen.copies.get(table)))
        for table, stop in seen.stops.items()
    ]
    left = [
        TableStatus(table, "left out", problem.what, problem.action)
        for table, problem in ((table, decode_problem(why)) for table, why in seen.left_out.items())
        if table not in seen.stops
    ]
    return tuple(sorted((*stopped, *left), key=lambda each: each.table))


def _build_table_status(table: str, stop: TableStop, remedy: str) -> TableStatus:
    at = f"{stop.file}:{stop.pos}"
    return TableStatus(table, "stopped", stop.reason, remedy, stop.cause, at, stop.since_ms)


def format_log_position(position: Position, file: str | None) -> str:
    """Return "file:pos" of a position in a log with the present file `file`. Without `file` only the
    number of the file is known.
    """
    stem, _, number = (file or "").rpartition(".")
    name = f"{stem}.{position[1]:0{len(number)}d}" if stem else str(position[1])
    return f"{name}:{position[2]}"
