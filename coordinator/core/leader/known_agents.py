"""The agents that a leader knows, with their health as a whole. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core import health as agent_health
from coordinator.core.health import WELL, AgentHealth, HealthConfig
from coordinator.core.members import Member, list_oldest_agents
from schemas.units import OldestAgents


@dataclass(slots=True)
class Members:
    """The agents of a term. Times are the leader's seconds."""

    by_name: dict[str, Member] = field(default_factory=dict)
    health: dict[str, AgentHealth] = field(default_factory=dict)
    """The health of the agents on which units failed."""
    backing: dict[str, None] = field(default_factory=dict)
    """Agents that back off because units failed on them."""
    next_health: float = 0.0
    """When it is next looked for agents that have recovered."""
    alarmed: dict[tuple[str, str], float] = field(default_factory=dict)
    """By agent and kind of alarm: when it was last raised."""
    _oldest: tuple[OldestAgents | None] | None = None
    """What `find_oldest` has found; None: not computed since a member has changed."""

    def put_member(self, member: Member) -> Member:
        """Take the member in the place of an earlier one of its name, and return it."""
        before = self.by_name.get(member.name)
        if before is None or (before.state, before.version) != (member.state, member.version):
            self._oldest = None
        self.by_name[member.name] = member
        return member

    def find_oldest(self) -> OldestAgents | None:
        """Return the agents of the lowest version; None: not every agent has reported its version."""
        if self._oldest is None:
            self._oldest = (list_oldest_agents(self.by_name.values()),)
        return self._oldest[0]

    def forget_member(self, agent: str) -> None:
        del self.by_name[agent]
        self._oldest = None

    def record_failure(self, agent: str, unit: str, now: float, config: HealthConfig) -> AgentHealth | None:
        """Note that a unit has failed on the agent before it got to work. Returns the agent's health if the
        agent backs off from now on, or for longer than before.
        """
        known = self.health.get(agent, WELL)
        after = self.health[agent] = agent_health.record_agent_failure(known, unit, now, config)
        if after.rounds == known.rounds:
            return None
        self.backing[agent] = None
        return after

    def clear_health(self, agent: str) -> bool:
        """Forget the failures on the agent, and return whether it had backed off."""
        self.backing.pop(agent, None)
        return self.health.pop(agent, WELL).rounds > 0

    def wake_backed_off(self, now: float) -> bool:
        """Return whether an agent has backed off for long enough to be given a unit on trial."""
        due = [agent for agent in self.backing if self.health.get(agent, WELL).due_at <= now]
        for agent in due:
            del self.backing[agent]
        return bool(due)

    def begin_health_check(self, now: float, interval: float) -> bool:
        """Return whether to look for agents that have recovered, at most once an interval."""
        if not self.health or now < self.next_health:
            return False
        self.next_health = now + interval
        return True

    def begin_alarm(self, agent: str, what: str, now: float, every: float) -> bool:
        """Return whether to raise an alarm about an agent, at most one of a kind in `every` seconds."""
        if now < self.alarmed.get((agent, what), float("-inf")) + every:
            return False
        self.alarmed[agent, what] = now
        return True
