"""Schedulers decide which unit moves to which agent: pure functions from a view to tasks, in a fixed order of priority.

`basic` always runs: a unit without an agent waits for nobody. Of the others (drain, move, rebalance, balance) the first
that has something to do has the plan, within the limit on moves under way. No scheduler waits for all agents or all
units to be well: it looks at those that are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.schedulers.balance import balance
from coordinator.core.schedulers.basic import basic
from coordinator.core.schedulers.model import (
    AddTask,
    AgentView,
    CatalogueUnit,
    Loads,
    MoveLimits,
    MoveTask,
    RemoveTask,
    SchedulerView,
    Task,
    UnitKind,
    UnitView,
)
from coordinator.core.schedulers.moves import MoveRequest, drain, requested

__all__ = [
    "AddTask",
    "AgentView",
    "CatalogueUnit",
    "Loads",
    "MoveLimits",
    "MoveRequest",
    "MoveTask",
    "Plan",
    "RemoveTask",
    "SchedulerView",
    "Task",
    "UnitKind",
    "UnitView",
    "Wishes",
    "plan",
]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Moves that are due beside the basic duty: requested moves, a rebalance that somebody asked for, the regular balance."""

    moves: tuple[MoveRequest, ...] = ()
    rebalance: bool = False
    balance: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`by`: which of the movers has the plan ("" if none). `full`: the limit on moves left no room for more."""

    tasks: tuple[Task, ...]
    by: str = ""
    full: bool = False


def plan(view: SchedulerView, wishes: Wishes, limits: MoveLimits) -> Plan:
    """Return what to do next; at most one task a unit."""
    loads = Loads(view, limits)
    tasks = basic(view, loads)
    most = limits.concurrent
    movers: tuple[tuple[str, Callable[[], list[MoveTask]]], ...] = (
        ("drain", lambda: drain(view, loads)),
        ("move", lambda: requested(view, loads, wishes.moves)),
        ("rebalance", lambda: balance(view, loads, most, "rebalance") if wishes.rebalance else []),
        ("balance", lambda: balance(view, loads, most, "balance") if wishes.balance else []),
    )
    for name, mover in movers:
        if loads.moving < limits.concurrent and (moves := mover()):
            return Plan((*tasks, *moves), name, loads.moving >= most)
    return Plan(tuple(tasks), "", loads.moving >= most)
