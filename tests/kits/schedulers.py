"""Views of units and agents as the schedulers get them."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import (
    AgentView,
    InventoryUnit,
    MoveLimits,
    RequestedMoves,
    SchedulerView,
    UnitKind,
    UnitView,
)

MANY = MoveLimits(burst=10_000, agent_burst=10_000, concurrent=10_000, per_agent=10_000)


BALANCE = RequestedMoves(balance=True)


def unit(name: str, agent: str | None = None, **more: object) -> UnitView:
    """Replicating on `agent`, or absent."""
    spec_fields = {"kind": UnitKind.APPLY, "source": "s", "apart": None}
    spec = InventoryUnit(name, **{key: more.pop(key, value) for key, value in spec_fields.items()})  # type: ignore[arg-type]
    state = SetState.ABSENT if agent is None else SetState.REPLICATING
    holders = () if agent is None else (agent,)
    return replace(UnitView(spec, state, agent, holders), **more)  # type: ignore[arg-type]


def view(agents: str | list[AgentView], *units: UnitView) -> SchedulerView:
    made = [AgentView(name) for name in agents] if isinstance(agents, str) else agents
    return SchedulerView(tuple(made), tuple(sorted(units, key=lambda u: u.spec.unit)))
