"""Every wanted unit gets an agent, every unwanted one is removed."""

from __future__ import annotations

from coordinator.core.replication_table import SetState
from coordinator.core.schedulers.model import AddTask, Loads, RemoveTask, SchedulerView, Task

_DONE = frozenset({SetState.ABSENT, SetState.REMOVING})


def basic(view: SchedulerView, loads: Loads) -> list[Task]:
    """Return removals (all) and additions (`MoveLimits.burst` at most); a unit that no agent can take is left out."""
    tasks: list[Task] = [
        RemoveTask(unit.spec.unit) for unit in view.units if not unit.wanted and unit.state not in _DONE
    ]
    left = loads.limits.burst
    for unit in view.units:
        if left == 0:
            break
        if not (unit.wanted and unit.due and unit.state is SetState.ABSENT):
            continue
        agent = loads.best(unit)
        if agent is not None:
            loads.add(unit, agent)
            tasks.append(AddTask(unit.spec.unit, agent))
            left -= 1
    return tasks
