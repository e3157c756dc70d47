"""Limits the time that a leader waits for a preparation; a busy host is not a failure.

A preparation that is given up begins again, which is additional work for a busy host. So the time does
not count from the beginning but from the worker's last reported step, and each preparation of a unit
that is given up doubles the time for the next one, up to eight times. A preparation that makes progress
ends after `prepare_most` as well.
"""

from __future__ import annotations

from coordinator.core.leader.state import LeaderState
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.messages import UnitStatus

MOST_DOUBLINGS = 3


def record_preparation_progress(state: LeaderState, agent: str, status: UnitStatus, now: float) -> None:
    """Note progress of a preparation, if the report is from the replica that is being prepared."""
    memo, current = state.sets.memos[status.unit], state.sets.by_unit.get(status.unit)
    secondary = current.secondary if current is not None else None
    if secondary is None or (secondary.agent, secondary.assignment) != (agent, status.assignment):
        return
    memo.take_steps(status.steps, now)


def compute_prepare_timeout(state: LeaderState, memo: UnitMemo) -> float:
    """Return after how many seconds without progress a preparation of the unit is given up."""
    return state.config.prepare_timeout * 2.0 ** min(memo.given_up, MOST_DOUBLINGS)


def has_prepare_timed_out(state: LeaderState, memo: UnitMemo, now: float) -> bool:
    """Return whether the unit's preparation or start has taken too long."""
    most = max(state.config.prepare_most, compute_prepare_timeout(state, memo))
    return (
        now >= max(memo.since, memo.prepare_progressed_at) + compute_prepare_timeout(state, memo)
        or now >= memo.since + most
    )
