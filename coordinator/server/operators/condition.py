"""The condition of a unit as REST, `units list` and `status` show it: its health in a word, the reason, and the remedy. Pure.

| condition | when |
|---|---|
| `running` | it replicates, or does so while it moves |
| `starting` | it is being placed for the first time, or again after a command |
| `restarting` | it stopped by itself, and is tried again without anybody's doing |
| `stopped` | it waits for a person: to mend what the reason says, or to resume it |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.findings import TRIES_AGAIN, split_remedy


class ConditionFacts(Protocol):
    """The fields of `api.UnitRow` that a condition is judged by."""

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


@dataclass(frozen=True, slots=True)
class UnitCondition:
    """`reason`: why it does not run; None where it does. `remedy`: what to do about it; None: nothing, or not known."""

    health: str
    reason: str | None = None
    remedy: str | None = None


def judge_condition(row: ConditionFacts) -> UnitCondition:
    """Judge a unit."""
    if row.paused:
        before = f"; before that it stopped by itself: {row.error}" if row.error else ""
        return UnitCondition("stopped", f"it is paused{before}", "rowlock units resume")
    if row.state == "replicating":
        return _judge_replicating(row.error)
    if row.moving_to is not None or row.state == "recovering":
        return UnitCondition("running")
    if row.error is not None:
        return UnitCondition("restarting", row.error)
    where = f"it is being placed on {row.agent}" if row.agent else "no agent has it yet"
    return UnitCondition("starting", where)


def _judge_replicating(error: str | None) -> UnitCondition:
    """An error of a unit that is held says why its worker does not go on."""
    if error is None:
        return UnitCondition("running")
    if error.startswith(TRIES_AGAIN):
        return UnitCondition("restarting", error.removeprefix(TRIES_AGAIN))
    reason, remedy = split_remedy(error)
    return UnitCondition("stopped", reason, remedy or None)
