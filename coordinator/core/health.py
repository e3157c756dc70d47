"""Judges whether an agent as a whole can prepare units, apart from failures of single units. Pure.

An agent on which every preparation fails has little to do, so balancing by load would send it unit after
unit. Instead it backs off: after preparations or starts of `failures` different units have failed there
in a row, it is given no units for a while, longer each time, and then one unit on trial. The first unit
that works there clears the agent, and so does a restart of the agent.

A unit that has just failed elsewhere does not count against the agent, because its trouble is its own.
Times are seconds of the leader's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.backoff import pause_after


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """The conditions under which an agent backs off, and for how long."""

    failures: int = 3
    """The number of different units that have to fail in a row."""
    retry_first: float = 10.0
    """Seconds of the first back-off; each further one is twice as long."""
    retry_most: float = 600.0
    """The longest back-off in seconds."""
    trust_after: float = 10.0
    """A unit that has worked for this many seconds counts as successfully prepared."""


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """An agent's failed preparations."""

    suspects: frozenset[str] = frozenset()
    """Units that have failed on the agent since a unit last worked there."""
    failures: int = 0
    """The number of failures on the agent since a unit last worked there."""
    rounds: int = 0
    """The number of times that the agent has backed off."""
    failed_at: float = float("-inf")
    """When the last failure happened."""
    due_at: float = float("-inf")
    """When the agent may be given a unit again."""

    @property
    def trusted(self) -> bool:
        """True if the agent may be given units like any other."""
        return self.rounds == 0

    def compute_room(self, now: float, preparing: int) -> int | None:
        """Return how many more units the agent may be given while `preparing` units are being prepared
        there. None: no limit.
        """
        if self.trusted:
            return None
        return 0 if now < self.due_at else max(0, 1 - preparing)

    def backs_off(self, now: float) -> float | None:
        """Return for how many more seconds the agent is given no units, or None if it is trusted."""
        return None if self.trusted else max(0.0, self.due_at - now)


WELL = AgentHealth()


def record_agent_failure(health: AgentHealth, unit: str, now: float, config: HealthConfig) -> AgentHealth:
    """Count a failed preparation or start of the unit on the agent, and return the new health.

    A preparation that had begun before the agent backed off does not lengthen the back-off.
    """
    after = replace(health, suspects=health.suspects | {unit}, failures=health.failures + 1, failed_at=now)
    if now < health.due_at or (after.trusted and len(after.suspects) < config.failures):
        return after
    rounds = health.rounds + 1
    return replace(
        after, rounds=rounds, due_at=now + pause_after(rounds, config.retry_first, config.retry_most)
    )
