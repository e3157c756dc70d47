"""The time that an owner waits for a preparation: a busy machine is not a failure.

What is given up is begun anew, and on a machine with too much to do that is still more to do. So the time is not counted from
the beginning but from when the worker last got on (its agent reports that), and each preparation of a unit that is given up
doubles it for the next, up to eight times. What gets on for ever has an end, too: `prepare_most`.
"""

from __future__ import annotations

from coordinator.core.messages import UnitStatus
from coordinator.core.owner.state import OwnerState, UnitMemo

MOST_DOUBLINGS = 3


def record_preparation_progress(state: OwnerState, agent: str, status: UnitStatus, now: float) -> None:
    """An agent reports a unit that it prepares. Only the word of the replica that gets ready counts."""
    memo, current = state.memos[status.unit], state.sets.get(status.unit)
    secondary = current.secondary if current is not None else None
    if secondary is None or (secondary.agent, secondary.assignment) != (agent, status.assignment):
        return
    if status.steps > memo.steps:
        memo.steps, memo.prepare_progressed_at = status.steps, now


def compute_prepare_timeout(state: OwnerState, memo: UnitMemo) -> float:
    """Return the seconds without getting on after which a preparation of the unit is given up."""
    return state.config.prepare_timeout * 2.0 ** min(memo.given_up, MOST_DOUBLINGS)


def has_prepare_timed_out(state: OwnerState, memo: UnitMemo, now: float) -> bool:
    """Tell whether a unit has been on its way for too long."""
    most = max(state.config.prepare_most, compute_prepare_timeout(state, memo))
    return (
        now >= max(memo.since, memo.prepare_progressed_at) + compute_prepare_timeout(state, memo)
        or now >= memo.since + most
    )
