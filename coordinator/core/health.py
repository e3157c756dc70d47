"""Tell whether an agent can get units ready at all: each agent is judged as a whole, beside the units that fail. Pure.

An agent on which every preparation fails has little to do, so the balance of loads would send it unit after unit. It backs
off: after `failures` different units in a row whose preparation (or start) failed there it is given none for a while, longer
each time, then one unit on trial. The first unit that works there clears it, and so does a restart of the agent.

A unit that failed elsewhere just before is no witness: the trouble is its own then. Times are the owner's monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.backoff import pause_after


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """`failures`: units in a row before an agent backs off. Seconds: `retry_first`, `retry_most`: how long it does, doubled each
    time. `trust_after`: a unit that has worked for so long has been got ready well."""

    failures: int = 3
    retry_first: float = 10.0
    retry_most: float = 600.0
    trust_after: float = 10.0


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """`suspects`: units that failed there since one last worked; `failures`: how often; `rounds`: times it has backed off."""

    suspects: frozenset[str] = frozenset()
    failures: int = 0
    rounds: int = 0
    failed_at: float = float("-inf")
    due_at: float = float("-inf")

    @property
    def trusted(self) -> bool:
        """Tell whether it may be given units like any other."""
        return self.rounds == 0

    def compute_room(self, now: float, preparing: int) -> int | None:
        """Return how many more units it may be given. `preparing`: that get ready there. None: there is no such limit."""
        if self.trusted:
            return None
        return 0 if now < self.due_at else max(0, 1 - preparing)

    def backs_off(self, now: float) -> float | None:
        """Return for how many more seconds it is given nothing; None where it is trusted."""
        return None if self.trusted else max(0.0, self.due_at - now)


WELL = AgentHealth()


def record_agent_failure(health: AgentHealth, unit: str, now: float, config: HealthConfig) -> AgentHealth:
    """Return the agent's health after a preparation or a start of the unit has failed there.

    One that had begun before the agent backed off says nothing new.
    """
    after = replace(health, suspects=health.suspects | {unit}, failures=health.failures + 1, failed_at=now)
    if now < health.due_at or (after.trusted and len(after.suspects) < config.failures):
        return after
    rounds = health.rounds + 1
    return replace(
        after, rounds=rounds, due_at=now + pause_after(rounds, config.retry_first, config.retry_most)
    )
