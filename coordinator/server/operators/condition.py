"""The condition of a unit as REST, `units list` and `status` show it: its health in one word, the
reason, and the remedy.

| condition | when |
|---|---|
| `running` | it replicates, or does so while it moves; the reason is what its transaction waits for |
| `starting` | it is being placed for the first time, or again after a command |
| `restarting` | it stopped by itself, and is retried automatically |
| `stopped` | it waits for a person: to repair what the reason states, or to resume it |

A restricted unit (`core.leader.invariants`) is `stopped` as well, although its worker may go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator.core.leader.invariants import explain_restriction
from schemas.findings import TRIES_AGAIN, WAITS_FOR_LOCK
from schemas.problems import decode_problem

HEALTHS = ("running", "starting", "restarting", "stopped")
"""All values of `UnitCondition.health`."""
RESTRICTION_REMEDY = "`rowlock units pause` and then `rowlock units resume` place it anew"


class ConditionFacts(Protocol):
    """The fields of `api.UnitRow` that determine a condition."""

    @property
    def state(self) -> str: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def moving_to(self) -> str | None: ...
    @property
    def paused(self) -> bool: ...
    @property
    def error(self) -> str | None: ...
    @property
    def restricted(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class UnitCondition:
    """The condition of a unit."""

    health: str
    """One of `HEALTHS`."""
    reason: str | None = None
    """Why it does not run, or what it waits for while it runs; None: it runs."""
    remedy: str | None = None
    """What to do about it; None: no action is needed, or none is known."""


def judge_condition(row: ConditionFacts) -> UnitCondition:
    """Return the condition of a unit."""
    if row.restricted is not None:
        return UnitCondition("stopped", explain_restriction(row.restricted), RESTRICTION_REMEDY)
    if row.paused:
        before = f"; before that it failed: {decode_problem(row.error)}" if row.error else ""
        return UnitCondition("stopped", f"it is paused{before}", "rowlock units resume")
    if row.state == "replicating":
        return _judge_replicating(row.error)
    if row.moving_to is not None or row.state == "recovering":
        return UnitCondition("running")
    if row.error is not None:
        return UnitCondition("restarting", str(decode_problem(row.error)))
    where = f"it is being placed on {row.agent}" if row.agent else "no agent has it yet"
    return UnitCondition("starting", where)


def _judge_replicating(error: str | None) -> UnitCondition:
    """Return the condition of a replicating unit. Its error: why its worker does not go on now."""
    if error is None:
        return UnitCondition("running")
    if error.startswith(WAITS_FOR_LOCK):
        awaited = decode_problem(error.removeprefix(WAITS_FOR_LOCK))
        return UnitCondition("running", awaited.what, awaited.action or None)
    if error.startswith(TRIES_AGAIN):
        return UnitCondition("restarting", str(decode_problem(error.removeprefix(TRIES_AGAIN))))
    problem = decode_problem(error)
    return UnitCondition("stopped", problem.what, problem.action or None)
