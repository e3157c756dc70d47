"""Schedulers decide which unit moves to which agent: pure functions from a view to tasks, in a fixed order of priority.

`basic` always runs: a unit without an agent waits for nobody. Of the others (drain, move, rebalance, balance) the first
that has something to do has the plan, within the limit on moves under way. No scheduler waits for all agents or all
units to be well: it looks at those that are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.schedulers.balance import balance_loads
from coordinator.core.schedulers.basic import plan_basic_tasks
from coordinator.core.schedulers.model import (
    AddTask,
    AgentLoads,
    AgentView,
    InventoryUnit,
    MoveLimits,
    MoveTask,
    RemoveTask,
    SchedulerView,
    ScheduleTask,
    UnitKind,
    UnitView,
)
from coordinator.core.schedulers.moves import MoveRequest, plan_drain_moves, plan_requested_moves

__all__ = [
    "AddTask",
    "AgentLoads",
    "AgentView",
    "InventoryUnit",
    "MoveLimits",
    "MoveRequest",
    "MoveTask",
    "RemoveTask",
    "RequestedMoves",
    "SchedulePlan",
    "ScheduleTask",
    "SchedulerView",
    "UnitKind",
    "UnitView",
    "plan_tasks",
]


@dataclass(frozen=True, slots=True)
class RequestedMoves:
    """Moves that are due beside the basic duty: requested moves, a rebalance that somebody asked for, the regular balance."""

    moves: tuple[MoveRequest, ...] = ()
    rebalance: bool = False
    balance: bool = False


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """`by`: which of the movers has the plan ("" if none). `full`: the limit on moves left no room for more."""

    tasks: tuple[ScheduleTask, ...]
    by: str = ""
    full: bool = False


def plan_tasks(view: SchedulerView, wishes: RequestedMoves, limits: MoveLimits) -> SchedulePlan:
    """Return what to do next; at most one task a unit."""
    loads = AgentLoads(view, limits)
    tasks = plan_basic_tasks(view, loads)
    most = limits.concurrent
    movers: tuple[tuple[str, Callable[[], list[MoveTask]]], ...] = (
        ("drain", lambda: plan_drain_moves(view, loads)),
        ("move", lambda: plan_requested_moves(view, loads, wishes.moves)),
        ("rebalance", lambda: balance_loads(view, loads, most, "rebalance") if wishes.rebalance else []),
        ("balance", lambda: balance_loads(view, loads, most, "balance") if wishes.balance else []),
    )
    for name, mover in movers:
        if loads.moving < limits.concurrent and (moves := mover()):
            return SchedulePlan((*tasks, *moves), name, loads.moving >= most)
    return SchedulePlan(tuple(tasks), "", loads.moving >= most)
