"""Places every unit that is to run, and removes every unit that is not."""

from __future__ import annotations

from coordinator.core.replication_table import SetState
from coordinator.core.schedulers.model import AddTask, AgentLoads, RemoveTask, SchedulerView, ScheduleTask

_DONE = frozenset({SetState.ABSENT, SetState.REMOVING})


def plan_basic_tasks(view: SchedulerView, loads: AgentLoads) -> list[ScheduleTask]:
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
