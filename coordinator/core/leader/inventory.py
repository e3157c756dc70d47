"""Takes in a new inventory: adds and removes units."""

from __future__ import annotations

from coordinator.core.leader import configuration, periodic
from coordinator.core.leader.inventory_shrinks import find_suspicious_shrink, parse_pipeline_name
from coordinator.core.leader.sets import fence_unless_desired, persist_records
from coordinator.core.leader.state import (
    Alarm,
    Inventory,
    LeaderDecision,
    LeaderState,
)
from schemas.config.changes.parts import format_pipeline_part


def receive_inventory(state: LeaderState, event: Inventory, now: float, out: list[LeaderDecision]) -> None:
    """Adopt an inventory, unless it is a suspicious shrink. An unchanged inventory is the same object as
    the last one.
    """
    if not configuration.accept_inventory_config(state, event, now, out):
        state.history.count_dropped("catalogue of another configuration")
        return
    plan = state.plan
    if event is plan.last_inventory and plan.suspicious is None:
        return
    before = plan.read_inventory(event)
    missing = find_suspicious_shrink(
        _map_known_units(state), [spec.unit for spec in event.units], _list_unchanged_pipelines(before, event)
    )
    if not missing:
        _adopt_inventory(state, event, now, out)
        return
    if plan.suspicious is None:
        counts = ", ".join(f"{count} of pipeline {pipeline}" for pipeline, count in missing.items())
        wait = f"they are stopped if this lasts for {state.config.doubt:g} s"
        out.append(Alarm("topics are missing", f"Kafka does not list the topics of units: {counts}; {wait}"))
    if plan.note_suspicious_inventory(now, state.config.doubt):
        out.append(Alarm("topics are gone", f"units are stopped: {', '.join(sorted(missing))}"))
        _adopt_inventory(state, event, now, out)


def _list_unchanged_pipelines(before: Inventory | None, now: Inventory) -> list[str]:
    """Return the pipelines with an unchanged configuration: only there are missing units suspicious."""
    parts = {} if before is None else before.parts
    return [
        name
        for name in now.sources
        if (part := format_pipeline_part(name)) not in parts or parts[part] == now.parts.get(part)
    ]


def _map_known_units(state: LeaderState) -> dict[str, str]:
    """Return the known apply units with their pipelines; before the first inventory, those that may be
    running.
    """
    if state.plan.inventory is not None:
        specs = state.plan.inventory.values()
        return {spec.unit: spec.pipeline for spec in specs if spec.pipeline is not None}
    running = [unit for unit, current in state.sets.by_unit.items() if current.replicas]
    return {unit: pipeline for unit in running if (pipeline := parse_pipeline_name(unit)) is not None}


def _adopt_inventory(state: LeaderState, event: Inventory, now: float, out: list[LeaderDecision]) -> None:
    units = state.plan.adopt_inventory(event)
    removed = state.pipelines.set_units(periodic.collect_pipeline_units(state, event.sources), now)
    if removed:
        persist_records(state, [], now, out, delete=[f"pipeline/{pipeline}" for pipeline in removed])
    for unit, spec in units.items():
        state.sets.add_unit(unit, spec.uid, now)
    for unit in sorted(state.sets.by_unit):
        fence_unless_desired(state, unit, now, out)
