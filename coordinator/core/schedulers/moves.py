"""Moves that somebody asked for: off a draining agent, and single units to a named one."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.schedulers.model import Loads, MoveTask, SchedulerView, movable


@dataclass(frozen=True, slots=True)
class MoveRequest:
    unit: str
    agent: str


def drain(view: SchedulerView, loads: Loads) -> list[MoveTask]:
    """Return moves off agents that drain, each to the agent that suits it best."""
    draining = {agent.name for agent in view.agents if agent.draining}
    tasks: list[MoveTask] = []
    for unit in movable(view.units) if draining else []:
        if unit.primary not in draining or not unit.due:
            continue
        agent = loads.best(unit)
        if agent is not None and loads.room(agent) and loads.trusts(agent):
            loads.move(unit, agent)
            tasks.append(MoveTask(unit.spec.unit, agent, "drain"))
    return tasks


def requested(view: SchedulerView, loads: Loads, requests: tuple[MoveRequest, ...]) -> list[MoveTask]:
    """Return the requests that can start now; the others stay with the caller."""
    by_name = {unit.spec.unit: unit for unit in movable(view.units)} if requests else {}
    tasks: list[MoveTask] = []
    for request in requests:
        unit = by_name.get(request.unit)
        if unit is not None and loads.can_take(unit, request.agent, asked=True) and loads.room(request.agent):
            loads.move(unit, request.agent)
            tasks.append(MoveTask(request.unit, request.agent, "move"))
    return tasks
