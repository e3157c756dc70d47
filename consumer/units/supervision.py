"""Supervision of a unit while it is applied, and how long to wait after trouble. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from schemas.backoff import Backoff

TROUBLE_BACKOFF = Backoff(first=0.5, longest=20.0, quiet=60.0)
"""Of a unit, and of a pipeline's queries: a target that is down costs a line every 20 seconds and no more."""


class WatchedUnit(msgspec.Struct, frozen=True):
    """A unit as the apply process sees it. `offset`: lowest lane by the last report; `state`: see reports.Report."""

    offset: int = msgspec.field(name="offset")
    state: str = msgspec.field(name="state", default="ok")
    message: str = msgspec.field(name="message", default="")
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms", default=0)
    applied: int = msgspec.field(name="applied", default=0)
    dropped: int = msgspec.field(name="dropped", default=0)
    held: int = msgspec.field(name="held", default=0)
    displaced: int = msgspec.field(name="displaced", default=0)


FIGURES = ("state", "offset", "applied", "dropped", "held", "displaced", "commit_ts_ms", "message")
"""What `reported` takes of a report."""


def apply_report(
    unit: WatchedUnit,
    *,
    state: str,
    offset: int,
    applied: int,
    dropped: int,
    held: int,
    displaced: int,
    commit_ts_ms: int,
    message: str,
) -> WatchedUnit:
    """Return the unit after a report; figures add up, a state other than ok stays until the next start."""
    sticky = unit.state in ("stopped", "fenced")
    return replace(
        unit,
        offset=max(offset, unit.offset),
        state=unit.state if sticky else state,
        message=unit.message if sticky else message,
        commit_ts_ms=max(commit_ts_ms, unit.commit_ts_ms),
        applied=unit.applied + applied,
        dropped=unit.dropped + dropped,
        held=unit.held + held,
        displaced=unit.displaced + displaced,
    )


def describe_drift(topic: str, displaced: int) -> tuple[str, str]:
    """Return (what, why) of the problem that `displaced` rows of other keys had to make room."""
    return f"unit {topic} displaced rows", (
        f"{displaced} rows of the target held unique values that events needed: somebody else writes to the table. "
        f"They are in rowlock_displaced, whole; the log of the apply workers names table and event"
    )
