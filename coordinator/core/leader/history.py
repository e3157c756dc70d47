"""The history of units and agents, in sentences for the people who run the system. Pure.

The core does not report its transitions. The leader adds those that operators follow to `History.entries`,
which the shell empties after each step (`server/operators/journal.py`). The reason for a change is set where
it is decided (`set_reason`), before the replication set changes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from coordinator.core.health import AgentHealth
from coordinator.core.members import Member
from coordinator.core.messages import Liveness
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState

#: The most entries that are kept while no caller empties them.
MAX_HISTORY_ENTRIES = 10_000
DEFAULT_REASON = "no agent ran it"
OTHER = "other"
MOVE_CAUSES = ("drain", "move", "rebalance", "balance", "agent_lost", "agent_restarted", "failure", OTHER)
"""Why a unit runs on another agent, in one stable word each."""

_SETTLED = frozenset({SetState.ABSENT, SetState.REPLICATING})
_MOVERS: Mapping[str, str] = {
    "drain": "the agent gives up its units",
    "move": "asked for",
    "rebalance": "the load is evened out, as asked for",
    "balance": "the load is evened out",
}

HistoryEntry = tuple[str, dict[str, object]]
"""A short constant phrase and its details."""


@dataclass(slots=True)
class UnitHistory:
    """The history of one unit, for operators."""

    agent: str | None = None
    """The agent that runs it."""
    last: str | None = None
    """The agent that ran it last."""
    begun: float = 0.0
    """When its last change began, in the leader's seconds."""
    why: str = DEFAULT_REASON
    """The reason for its last change."""
    cause: str = OTHER
    """One of MOVE_CAUSES."""

    def set_reason(self, why: str, cause: str = OTHER) -> None:
        self.why, self.cause = why, cause

    def begin_change(self, now: float) -> None:
        self.begun = now

    def stop_unit(self) -> str | None:
        """Note that no agent runs it, and return the one that did."""
        stopped, self.agent = self.agent, None
        return stopped

    def place_unit(self, agent: str) -> tuple[str | None, str | None]:
        """Note that an agent runs it, and return which one did so before, and which one did so last."""
        before = self.agent, self.last
        self.agent = self.last = agent
        return before


@dataclass(slots=True)
class History:
    """The changes of the units and agents of a term, and the number of messages that did not count."""

    units: dict[str, UnitHistory] = field(default_factory=dict)
    entries: deque[HistoryEntry] = field(default_factory=lambda: deque(maxlen=MAX_HISTORY_ENTRIES))
    """The history since the caller last emptied it."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The number of messages and decisions that did not count, by reason."""

    def count_dropped(self, why: str, number: int = 1) -> None:
        self.dropped[why] += number

    def set_reason(self, unit: str, why: str, cause: str = OTHER) -> None:
        """Set the reason for the unit's next change. `cause`: one of MOVE_CAUSES."""
        self._get_unit(unit).set_reason(why, cause)

    def record_move(self, unit: str, mover: str) -> None:
        """Set the scheduler's reason to move the unit."""
        self.set_reason(unit, _MOVERS.get(mover, mover), mover)

    def forget_unit(self, unit: str) -> None:
        self.units.pop(unit, None)

    def record_unit_change(self, before: ReplicationSet, after: ReplicationSet, now: float) -> None:
        """Record that a unit was placed, moved or stopped. What a recovering leader finds in place is not
        recorded.
        """
        place = self._get_unit(after.unit)
        if before.state in _SETTLED and after.state is not before.state:
            place.begin_change(now)
        primary = after.primary
        if after.state is SetState.REPLICATING and primary is not None:
            self._record_running(place, before, primary.agent, now)
        elif after.state is SetState.ABSENT and place.agent is not None:
            details = {"unit": after.unit, "from": place.stop_unit(), "why": place.why}
            self.entries.append(
                ("unit stopped", {**details, "took_s": _measure_duration(place, before, now)})
            )

    def _record_running(self, place: UnitHistory, before: ReplicationSet, agent: str, now: float) -> None:
        came_from, last = place.place_unit(agent)
        if before.state is SetState.RECOVERING or came_from == agent:
            return
        fields: dict[str, object] = {"unit": before.unit, "to": agent, "why": place.why}
        fields["took_s"] = _measure_duration(place, before, now)
        if last is not None:
            fields["from"] = last
        if last not in (None, agent):
            fields["cause"] = place.cause
        self.entries.append(("unit placed" if came_from is None else "unit moved", fields))
        place.set_reason(DEFAULT_REASON)

    def record_registration(self, member: Member, units: Collection[str]) -> None:
        """Record that an agent's registration is durable. `units`: those of its earlier incarnation, which
        change for that reason.
        """
        fields = {"agent": member.name, "incarnation": member.incarnation, "agent_epoch": member.agent_epoch}
        self.entries.append(("agent joined", fields))
        for unit in units:
            self.set_reason(unit, f"agent {member.name} was started again", "agent_restarted")

    def record_agent_return(self, member: Member) -> None:
        """Record that an expired agent is back."""
        self.entries.append(("agent is back", {"agent": member.name}))

    def record_agent_stopping(self, member: Member, units: Collection[str]) -> None:
        """Record that an agent with these units has reported that it stops."""
        self.entries.append(("agent stops", {"agent": member.name, "units": len(units)}))

    def record_agent_expiry(self, member: Member, units: Collection[str], now: float) -> None:
        """Record that an agent with these units has expired, and why. Must be called before its units
        change.
        """
        silent = round(now - member.heard_at, 1)
        if member.liveness is Liveness.STOPPING:
            why = "it stopped, as it had announced"
        elif not member.seq:
            why = f"it sent no message in this term: its lease has expired after {silent} s"
        else:
            why = f"it sent no message for {silent} s: its lease has expired"
        self.entries.append(("agent gone", {"agent": member.name, "why": why, "units": len(units)}))
        for unit in sorted(units):
            self.set_reason(unit, f"agent {member.name} was lost", "agent_lost")

    def record_agent_backoff(self, agent: str, known: AgentHealth) -> None:
        """Record that an agent is given no units for a while, because preparations there fail."""
        for_ = round(known.due_at - known.failed_at, 1)
        why = f"{known.failures} preparations failed there since one last succeeded"
        self.entries.append(("agent backs off", {"agent": agent, "why": why, "for_s": for_}))

    def record_agent_recovery(self, agent: str) -> None:
        """Record that the agent is given units like any other again."""
        self.entries.append(("agent is trusted again", {"agent": agent}))

    def record_config_change(self, digest: str, was: str, changed: Collection[str]) -> None:
        """Record that another configuration is active."""
        details: dict[str, object] = {"digest": digest, "was": was, "changed": sorted(changed)}
        self.entries.append(("configuration in force", details))

    def _get_unit(self, unit: str) -> UnitHistory:
        found = self.units.get(unit)
        if found is None:
            found = self.units[unit] = UnitHistory()
        return found


def _measure_duration(place: UnitHistory, before: ReplicationSet, now: float) -> float:
    return 0.0 if before.state in _SETTLED else round(now - place.begun, 3)
