"""Evens out loads: regularly (`balance`), or at once on request (`rebalance`).

Each step moves the unit that narrows the gap between two agents most, from the most to the least loaded,
as long as that is worth a move. Before that, units with the same `apart` label are separated where
possible. A unit that waits after a failure is left where it is, and a unit is not moved for a while to
the agent on which it failed: it would come back and be moved there again.
"""

from __future__ import annotations

from collections import defaultdict

from coordinator.core.schedulers.model import (
    UNIT_COST,
    AgentLoads,
    MoveTask,
    SchedulerView,
    UnitKind,
    UnitView,
    list_movable_units,
)

#: A gap below the mean load divided by this is left alone, because measured rates always vary.
TOLERANCE_DIVISOR = 10


def balance_loads(view: SchedulerView, loads: AgentLoads, most: int, why: str = "balance") -> list[MoveTask]:
    """Return at most `most` moves; none if the loads are even enough."""
    tasks: list[MoveTask] = []
    for kind in UnitKind:
        at: dict[str, list[UnitView]] = {
            agent.name: [] for agent in view.agents if agent.accepts and kind in agent.kinds
        }
        for unit in list_movable_units(view.units):
            if unit.spec.kind is kind and unit.primary in at and unit.due:
                at[unit.primary].append(unit)
        _take_apart(at, loads, tasks, most, why)
        while len(tasks) < most and (found := _find_narrowing_move(at, kind, loads)) is not None:
            tasks.append(_place_moved_unit(*found, at, loads, why))
    return tasks


def _take_apart(
    at: dict[str, list[UnitView]], loads: AgentLoads, tasks: list[MoveTask], most: int, why: str
) -> None:
    for agent in sorted(at):
        crowded: dict[str, int] = defaultdict(int)
        for unit in list(at[agent]):
            if unit.spec.apart is None or len(tasks) >= most:
                continue
            crowded[unit.spec.apart] += 1
            best = loads.find_best_agent(unit)
            if crowded[unit.spec.apart] == 1 or best is None or not _may_go(unit, best, loads):
                continue
            if loads.count_apart_units(unit, best) < loads.count_apart_units(unit, agent):
                tasks.append(_place_moved_unit(unit, best, at, loads, why))


def _find_narrowing_move(
    at: dict[str, list[UnitView]], kind: UnitKind, loads: AgentLoads
) -> tuple[UnitView, str] | None:
    """Return the unit and the agent that narrow the widest gap that can be narrowed."""
    order = sorted(at, key=lambda name: (loads.get_load(name, kind), name))
    mean = sum(loads.get_load(name, kind) for name in order) // max(1, len(order))
    for target in order:
        if not loads.has_room(target):
            continue
        for origin in reversed(order):
            gap = loads.get_load(origin, kind) - loads.get_load(target, kind)
            if gap < max(2 * UNIT_COST, mean // TOLERANCE_DIVISOR):
                break
            unit = _find_best_unit(at[origin], target, gap, loads)
            if unit is not None:
                return unit, target
    return None


def _may_go(unit: UnitView, agent: str, loads: AgentLoads) -> bool:
    return agent != unit.avoid and loads.is_trusted(agent) and loads.has_room(agent)


def _find_best_unit(units: list[UnitView], target: str, gap: int, loads: AgentLoads) -> UnitView | None:
    """Return the unit that leaves the smallest gap, if the gap becomes smaller by at least the cost of a
    unit.
    """
    able = [
        unit
        for unit in units
        if loads.can_take(unit, target)
        and _may_go(unit, target, loads)
        and loads.count_apart_units(unit, target) <= loads.count_apart_units(unit, unit.primary or "")
        and abs(gap - 2 * loads.compute_cost(unit)) <= gap - UNIT_COST
    ]
    return min(able, key=lambda unit: (abs(gap - 2 * loads.compute_cost(unit)), unit.spec.unit), default=None)


def _place_moved_unit(
    unit: UnitView, agent: str, at: dict[str, list[UnitView]], loads: AgentLoads, why: str
) -> MoveTask:
    at[unit.primary or ""].remove(unit)
    loads.move_unit(unit, agent)
    return MoveTask(unit.spec.unit, agent, why)
