"""Writes the history of units and agents, in sentences for the people who run the system. Pure.

The core does not report its transitions. These functions add the transitions that operators follow to
`OwnerState.new_history`, which the shell empties after each step (`server/operators/journal.py`). The
reason for a change is set where it is decided (`set_reason`), before the replication set changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.core.health import AgentHealth
from coordinator.core.members import Member
from coordinator.core.messages import Liveness
from coordinator.core.owner.state import OwnerState, UnitHistory
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState

_SETTLED = frozenset({SetState.ABSENT, SetState.REPLICATING})
_MOVERS: Mapping[str, str] = {
    "drain": "the agent gives up its units",
    "move": "asked for",
    "rebalance": "the load is evened out, as asked for",
    "balance": "the load is evened out",
}


def set_reason(state: OwnerState, unit: str, why: str) -> None:
    """Set the reason for the unit's next change."""
    _get_unit_history(state, unit).why = why


def record_move(state: OwnerState, unit: str, mover: str) -> None:
    """Set the scheduler's reason to move the unit."""
    set_reason(state, unit, _MOVERS.get(mover, mover))


def set_removal_reason(state: OwnerState, unit: str) -> None:
    """Set the reason to remove the unit."""
    if unit in state.sets.paused:
        set_reason(state, unit, "paused")
    elif (spec := (state.inventory or {}).get(unit)) is not None:
        anew = state.sets.memos[unit].uid != spec.uid
        set_reason(state, unit, "its topic was created again" if anew else "its configuration has changed")
    else:
        set_reason(state, unit, "it is no longer configured, or its topic no longer exists")


def record_unit_change(state: OwnerState, before: ReplicationSet, after: ReplicationSet, now: float) -> None:
    """Record that a unit was placed, moved or stopped. What a recovering leader finds in place is not
    recorded.
    """
    place = _get_unit_history(state, after.unit)
    if before.state in _SETTLED and after.state is not before.state:
        place.begun = now
    primary = after.primary
    if after.state is SetState.REPLICATING and primary is not None:
        _record_running(state, place, before, primary.agent, now)
    elif after.state is SetState.ABSENT and place.agent is not None:
        place.agent, stopped = None, place.agent
        details = {"unit": after.unit, "from": stopped, "why": place.why}
        state.new_history.append(
            ("unit stopped", {**details, "took_s": _measure_duration(place, before, now)})
        )


def _record_running(
    state: OwnerState, place: UnitHistory, before: ReplicationSet, agent: str, now: float
) -> None:
    came_from, last, place.agent, place.last = place.agent, place.last, agent, agent
    if before.state is SetState.RECOVERING or came_from == agent:
        return
    fields: dict[str, object] = {"unit": before.unit, "to": agent, "why": place.why}
    fields["took_s"] = _measure_duration(place, before, now)
    if last is not None:
        fields["from"] = last
    state.new_history.append(("unit placed" if came_from is None else "unit moved", fields))
    place.why = UnitHistory().why


def _measure_duration(place: UnitHistory, before: ReplicationSet, now: float) -> float:
    return 0.0 if before.state in _SETTLED else round(now - place.begun, 3)


def record_registration(state: OwnerState, member: Member) -> None:
    """Record that an agent's registration is durable."""
    fields = {"agent": member.name, "incarnation": member.incarnation, "agent_epoch": member.agent_epoch}
    state.new_history.append(("agent joined", fields))


def record_agent_return(state: OwnerState, member: Member) -> None:
    """Record that an expired agent is back."""
    state.new_history.append(("agent is back", {"agent": member.name}))


def record_agent_stopping(state: OwnerState, member: Member) -> None:
    """Record that an agent has reported that it stops."""
    units = len(state.sets.by_agent.get(member.name, {}))
    state.new_history.append(("agent stops", {"agent": member.name, "units": units}))


def record_agent_expiry(state: OwnerState, member: Member, now: float) -> None:
    """Record that an agent has expired, and why. Must be called before its units change."""
    silent = round(now - member.heard_at, 1)
    if member.liveness is Liveness.STOPPING:
        why = "it stopped, as it had announced"
    elif not member.seq:
        why = f"it sent no message in this term: its lease has expired after {silent} s"
    else:
        why = f"it sent no message for {silent} s: its lease has expired"
    units = sorted(state.sets.by_agent.get(member.name, {}))
    state.new_history.append(("agent gone", {"agent": member.name, "why": why, "units": len(units)}))
    for unit in units:
        set_reason(state, unit, f"agent {member.name} was lost")


def set_restart_reason(state: OwnerState, agent: str) -> None:
    """Set the reason for the changes of the units of an agent's earlier incarnation."""
    for unit in state.sets.by_agent.get(agent, {}):
        set_reason(state, unit, f"agent {agent} was started again")


def record_agent_backoff(state: OwnerState, agent: str, known: AgentHealth) -> None:
    """Record that an agent is given no units for a while, because preparations there fail."""
    for_ = round(known.due_at - known.failed_at, 1)
    why = f"{known.failures} preparations failed there since one last succeeded"
    state.new_history.append(("agent backs off", {"agent": agent, "why": why, "for_s": for_}))


def record_agent_recovery(state: OwnerState, agent: str) -> None:
    """Record that the agent is given units like any other again."""
    state.new_history.append(("agent is trusted again", {"agent": agent}))


def _get_unit_history(state: OwnerState, unit: str) -> UnitHistory:
    found = state.whereabouts.get(unit)
    if found is None:
        found = state.whereabouts[unit] = UnitHistory()
    return found
