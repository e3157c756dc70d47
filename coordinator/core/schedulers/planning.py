"""Plans the next placements and moves of units.

Placements are always planned, so a unit without an agent never waits. Of the others (drain, move,
rebalance, balance) the first that has work makes the moves, within the limit on concurrent moves. No
scheduler waits until all agents or units are well: each uses those that are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.replication_table import SetState
from coordinator.core.schedulers.balance import balance_loads
from coordinator.core.schedulers.model import (
    AddTask,
    AgentLoads,
    MoveLimits,
    MoveTask,
    RemoveTask,
    SchedulerView,
    ScheduleTask,
)
from coordinator.core.schedulers.moves import MoveRequest, plan_drain_moves, plan_requested_moves

_DONE = frozenset({SetState.ABSENT, SetState.REMOVING})


def plan_placements(view: SchedulerView, loads: AgentLoads) -> list[ScheduleTask]:
    """Return all removals, and at most `MoveLimits.burst` additions. A unit that no agent can take is
    left out.
    """
    tasks: list[ScheduleTask] = [
        RemoveTask(unit.spec.unit) for unit in view.units if not unit.desired and unit.state not in _DONE
    ]
    left = loads.limits.burst
    for unit in view.units:
        if left == 0:
            break
        if not (unit.desired and unit.due and unit.state is SetState.ABSENT):
            continue
        agent = loads.find_best_agent(unit)
        if agent is not None:
            loads.place_new_unit(unit, agent)
            tasks.append(AddTask(unit.spec.unit, agent))
            left -= 1
    return tasks


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
    tasks = plan_placements(view, loads)
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
