"""Lines about agents with fewer slots in Spark than they should have. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.commands.tables import format_duration
from rowlock.inspect.observed.slots import AgentSlotReport
from schemas.slots import SlotReport


def format_slot_lines(agents: Iterable[AgentSlotReport]) -> list[str]:
    """Return a line for each agent with fewer open slots than it should have."""
    return [explain_shortage(each.agent, each.slots) for each in agents if each.slots.is_short]


def explain_shortage(agent: str, slots: SlotReport) -> str:
    """Return that slots are missing, since when, why, and what applies the units meanwhile."""
    seen = f"slots: {slots.open} of {slots.configured} on agent {agent} for {format_duration(slots.short_s)}"
    reasons = [f"{host}: {error}" if host else error for host, error in slots.failures.items()]
    if slots.cores is not None and slots.cores < slots.configured:
        reasons.insert(0, f"Spark grants {slots.cores} {'core' if slots.cores == 1 else 'cores'}")
    why = "; ".join(reasons).rstrip(".") or "Spark names no reason"
    rest = "the slots that are open apply its units" if slots.open else "its own slot applies its units"
    return f"{seen}: {why}. Until they open, {rest}."
