"""The slots of agents in Spark, as the leader knows them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from schemas.slots import SlotReport


class AgentSlotReport(msgspec.Struct, frozen=True):
    """The slots in Spark of one agent."""

    agent: str = msgspec.field(name="agent")
    slots: SlotReport = msgspec.field(name="slots")


def read_agent_slots(agents: Iterable[Mapping[str, Any]]) -> tuple[AgentSlotReport, ...]:
    """Return what is known of the slots of agents, by their rows of REST. A leader before 0.3.0 knows none.
    An agent that the leader does not hear is left out, because its slots may have changed.
    """
    return tuple(
        AgentSlotReport(str(row["name"]), msgspec.convert(found, SlotReport))
        for row in agents
        if (found := row.get("slots")) is not None and row["state"] == "synced"
    )
