"""The number that a take-over writes into the progress rows (docs/adr/0005, 0006). Pure.

Without a coordinator: above the row's, and at least the clock's milliseconds. With one, an assignment E (a number that
the coordinator gives once) owns the numbers E·2^16 … E·2^16 + 65535: its holder raises the epoch as often as it starts
its own work anew, and can still never reach into a later assignment, or be reached by an earlier one.
"""

from __future__ import annotations

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit

BITS = 16
"""Own restarts within one assignment: 65,536; one a second would last 18 hours, then the unit must be assigned anew."""


def compute_next_epoch(
    unit: ApplyUnit, highest: int, *, assigned: int | None, above: int, now_ms: int
) -> int:
    """Return the epoch of a take-over that finds `highest` in the rows.

    `above`: the highest one the caller ever had under this assignment: a target restored from a backup must not make
    it give out an epoch again that a paused worker of its own still holds. Raises FencedError when the rows are of a
    later assignment, or when this one is used up.
    """
    if assigned is None:
        return max(highest + 1, above + 1, now_ms)
    first, beyond = assigned << BITS, (assigned + 1) << BITS
    if highest >= beyond:
        raise FencedError(
            f"{unit.topic} of pipeline {unit.pipeline} is assigned to somebody else now: this assignment is {assigned}, "
            f"the target has {highest >> BITS}"
        )
    epoch = max(highest + 1, above + 1, first)
    if epoch >= beyond:
        raise FencedError(
            f"{unit.topic} of pipeline {unit.pipeline} was started {1 << BITS} times under the assignment {assigned}: "
            f"it must be assigned anew (move it, or restart the agent)"
        )
    return epoch
