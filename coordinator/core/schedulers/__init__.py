"""Schedulers decide which unit is placed on or moved to which agent: pure functions from a view to
tasks. `planning` has their order.
"""

from __future__ import annotations

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
from coordinator.core.schedulers.moves import MoveRequest
from coordinator.core.schedulers.planning import RequestedMoves, SchedulePlan, plan_tasks

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
