"""Plans the next placements and moves: `basic` places, then one of the other schedulers moves.

`basic` always runs, so a unit without an agent never waits. Of the others (drain, move, rebalance,
balance) the first that has work makes the moves, within the limit on concurrent moves. No scheduler
waits until all agents or units are well: each uses those that are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.schedulers.balance import balance_loads
from coordinator.core.schedulers.basic import plan_basic_tasks
from coordinator.core.schedulers.model import AgentLoads, MoveLimits, MoveTask, SchedulerView, ScheduleTask
from coordinator.core.schedulers.moves import MoveRequest, plan_drain_moves, plan_requested_moves


@dataclass(frozen=True, slots=True)
class RequestedMoves:
    """The moves that may be planned besides the placements: requested moves, a requested rebalance,
    regular balancing.
    """

    moves: tuple[MoveRequest, ...] = ()
    rebalance: bool = False
    balance: bool = False


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """The tasks of one plan."""

    tasks: tuple[ScheduleTask, ...]
    by: str = ""
    """The scheduler that planned the moves; "": none."""
    full: bool = False
    """Whether the limit on concurrent moves is reached."""


def plan_tasks(view: SchedulerView, requested: RequestedMoves, limits: MoveLimits) -> SchedulePlan:
    """Return the next tasks, at most one per unit."""
    loads = AgentLoads(view, limits)
    tasks = plan_basic_tasks(view, loads)
    most = limits.concurrent
    movers: tuple[tuple[str, Callable[[], list[MoveTask]]], ...] = (
        ("drain", lambda: plan_drain_moves(view, loads)),
        ("move", lambda: plan_requested_moves(view, loads, requested.moves)),
        ("rebalance", lambda: balance_loads(view, loads, most, "rebalance") if requested.rebalance else []),
        ("balance", lambda: balance_loads(view, loads, most, "balance") if requested.balance else []),
    )
    for name, mover in movers:
        if loads.moving < limits.concurrent and (moves := mover()):
            return SchedulePlan((*tasks, *moves), name, loads.moving >= most)
    return SchedulePlan(tuple(tasks), "", loads.moving >= most)
