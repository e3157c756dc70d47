"""The fencing tokens of takeovers (docs/adr/0005-epochs-from-the-clock.md,
docs/adr/0006-epochs-within-an-assignment.md).

Without a coordinator, a token is greater than the row's and at least the clock's milliseconds. With one,
an assignment E (a number that the coordinator gives once) owns the tokens E·2^16 … E·2^16 + 65535. Its
holder raises the token with every restart of its own work, and can neither reach a later assignment's
tokens nor be reached by an earlier one's. Without I/O.
"""

from __future__ import annotations

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit

BITS = 16
"""Bits for restarts within one assignment: 65,536 of them. At one a second they last 18 hours; then the
unit must be assigned again."""


def compute_next_epoch(
    unit: ApplyUnit, highest: int, *, assigned: int | None, above: int, now_ms: int
) -> int:
    """Return the fencing token of a takeover that finds `highest` in the rows.

    `above`: the highest token that the caller ever had under this assignment. A target restored from a
    backup must not make it reuse a token that a paused worker of its own still has. Raises FencedError
    if the rows belong to a later assignment, or if this assignment's tokens are used up.
    """
    if assigned is None:
        return max(highest + 1, above + 1, now_ms)
    first, beyond = assigned << BITS, (assigned + 1) << BITS
    if highest >= beyond:
        raise FencedError(
            f"{unit.topic} of pipeline {unit.pipeline} was assigned to another process: this assignment is "
            f"{assigned}, the target has {highest >> BITS}"
        )
    epoch = max(highest + 1, above + 1, first)
    if epoch >= beyond:
        raise FencedError(
            f"{unit.topic} of pipeline {unit.pipeline} was started {1 << BITS} times under assignment "
            f"{assigned}, the most that one assignment allows",
            "move the unit to another agent, or restart the agent",
        )
    return epoch
