"""What is known of a unit while it is applied, and how long to wait after trouble. Pure.

Times are seconds of one monotonic clock. Backoff doubles while trouble follows trouble, and starts again after a quiet
minute, so that a target that is down costs a line every half minute and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after trouble. `next_at`: not before; `pause`: of the last trouble; `since`: its time."""

    next_at: float = 0.0
    pause: float = 0.0
    since: float = float("-inf")

    def after_trouble(self, now: float) -> Backoff:
        """Return the backoff after trouble seen at `now`."""
        quiet = now - self.since > QUIET_S
        pause = FIRST_PAUSE_S if quiet or not self.pause else min(self.pause * 2, LONGEST_PAUSE_S)
        return Backoff(next_at=now + pause, pause=pause, since=now)

    def due(self, now: float) -> bool:
        return now >= self.next_at


@dataclass(frozen=True, slots=True)
class Watched:
    """A unit as the apply process sees it. `offset`: lowest lane by the last report; `state`: see reports.Report."""

    offset: int
    state: str = "ok"
    message: str = ""
    commit_ts_ms: int = 0
    applied: int = 0
    dropped: int = 0
    held: int = 0
    displaced: int = 0


FIGURES = ("state", "offset", "applied", "dropped", "held", "displaced", "commit_ts_ms", "message")
"""What `reported` takes of a report."""


def reported(
    unit: Watched,
    *,
    state: str,
    offset: int,
    applied: int,
    dropped: int,
    held: int,
    displaced: int,
    commit_ts_ms: int,
    message: str,
) -> Watched:
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


def drift(topic: str, displaced: int) -> tuple[str, str]:
    """Return (what, why) of the problem that `displaced` rows of other keys had to make room."""
    return f"unit {topic} displaced rows", (
        f"{displaced} rows of the target held unique values that events needed: somebody else writes to the table. "
        f"They are in rowlock_displaced, whole; the log of the apply workers names table and event"
    )
