"""Keeps the figures of a unit while it is applied, and the delays after errors."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from consumer.attempt.reports import NO_FIGURES, LaneFigures, Report
from schemas.backoff import Backoff

TROUBLE_BACKOFF = Backoff(first=0.5, longest=20.0, quiet=60.0)
"""The delays of a unit: an unreachable target is logged every 20 seconds at
most."""


class WatchedUnit(msgspec.Struct, frozen=True):
    """The state and the figures of a unit in the apply process."""

    offset: int = msgspec.field(name="offset")
    """The offset of the slowest lane by the last report."""
    state: str = msgspec.field(name="state", default="ok")
    """See reports.Report."""
    message: str = msgspec.field(name="message", default="")
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms", default=0)
    applied: int = msgspec.field(name="applied", default=0)
    dropped: int = msgspec.field(name="dropped", default=0)
    held: int = msgspec.field(name="held", default=0)
    displaced: int = msgspec.field(name="displaced", default=0)
    lanes: LaneFigures = msgspec.field(name="lanes", default=NO_FIGURES)
    left: int | None = msgspec.field(name="left", default=None)
    """Records of the topic that are not applied, about; None: not known."""


def apply_report(unit: WatchedUnit, report: Report) -> WatchedUnit:
    """Return the unit after a report: counts are added; `stopped` and `fenced` stay until the next
    takeover.
    """
    sticky = unit.state in ("stopped", "fenced")
    return replace(
        unit,
        offset=max(report.offset, unit.offset),
        state=unit.state if sticky else report.state,
        message=unit.message if sticky else report.message,
        commit_ts_ms=max(report.commit_ts_ms, unit.commit_ts_ms),
        applied=unit.applied + report.applied,
        dropped=unit.dropped + report.dropped,
        held=unit.held + report.held,
        displaced=unit.displaced + report.displaced,
        lanes=unit.lanes.merge(report.lanes),
        left=unit.left if report.left is None else report.left,
    )


def describe_drift(topic: str, displaced: int) -> tuple[str, str]:
    """Return the title and the text of the problem that `displaced` rows of other keys had to make room."""
    return f"unit {topic} displaced rows", (
        f"{displaced} rows of the target held unique values that events needed: another client "
        "writes to the table. The displaced rows are kept in rowlock_displaced; the log of the "
        "apply workers names table and event"
    )
