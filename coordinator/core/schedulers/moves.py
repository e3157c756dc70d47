"""Requested moves: away from a draining agent, and single units to a named agent."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.schedulers.model import AgentLoads, MoveTask, SchedulerView, list_movable_units


@dataclass(frozen=True, slots=True)
class MoveRequest:
    unit: str
    agent: str


def plan_drain_moves(view: SchedulerView, loads: AgentLoads) -> list[MoveTask]:
    """Return the moves away from draining agents, each to the best agent for the unit."""
    draining = {agent.name for agent in view.agents if agent.draining}
    tasks: list[MoveTask] = []
    for unit in list_movable_units(view.units) if draining else []:
        if unit.primary not in draining or not unit.due:
            continue
        agent = loads.find_best_agent(unit)
        if agent is not None and loads.has_room(agent) and loads.is_trusted(agent):
            loads.move_unit(unit, agent)
            tasks.append(MoveTask(unit.spec.unit, agent, "drain"))
    return tasks


def plan_requested_moves(
    view: SchedulerView, loads: AgentLoads, requests: tuple[MoveRequest, ...]
) -> list[MoveTask]:
    """Return the requested moves that can start now; the others stay with the caller."""
    by_name = {unit.spec.unit: unit for unit in list_movable_units(view.units)} if requests else {}
    tasks: list[MoveTask] = []
    for request in requests:
        unit = by_name.get(request.unit)
        if (
            unit is not None
            and loads.can_take(unit, request.agent, asked=True)
            and loads.has_room(request.agent)
        ):
            loads.move_unit(unit, request.agent)
            tasks.append(MoveTask(request.unit, request.agent, "move"))
    return tasks
