"""Records failures of units: the unit waits, another agent is preferred, and the failure counts against
its agent (`health`).
"""

from __future__ import annotations

from coordinator.core.health import AgentHealth
from coordinator.core.leader.state import LeaderState
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import Role, SetState

_AT_WORK = frozenset({SetState.PREPARE, SetState.COMMIT})


def record_unit_failure(state: LeaderState, unit: str, agent: str, now: float, *, unready: bool) -> None:
    """Note that the unit failed on an agent; the unit then waits, longer after each failure. `unready`:
    the unit never got to work there.
    """
    memo, config = state.sets.memos[unit], state.config
    if now - memo.since >= config.stable_after:
        memo.forget_failures()
    if unready and not _has_failed_elsewhere(state, memo, agent, now):
        after = state.members.record_failure(agent, unit, now, config.health)
        if after is not None:
            state.history.record_agent_backoff(agent, after)
    memo.record_failure(agent, now, config.retry_first, config.retry_most)
    state.sets.retrying[unit] = None


def _has_failed_elsewhere(state: LeaderState, memo: UnitMemo, agent: str, now: float) -> bool:
    return find_avoided_agent(state, memo, now) not in {None, agent}


def find_avoided_agent(state: LeaderState, memo: UnitMemo, now: float) -> str | None:
    """Return the agent on which the unit failed recently."""
    return memo.avoid if memo.failures and now < memo.failed_at + state.config.stable_after else None


def was_never_ready(state: LeaderState, current: ReplicationSet, replica: Replica, now: float) -> bool:
    """Return whether a failed replica never got to work: it was preparing, or had only just started."""
    if current.state is SetState.REPLICATING and replica.role is Role.PRIMARY:
        return now < state.sets.memos[current.unit].since + state.config.health.trust_after
    return current.state in _AT_WORK and replica == current.replicas[-1]


def clear_recovered_agents(state: LeaderState, now: float) -> None:
    """Clear the agents on which a unit works that was placed after the last failure. Runs once an
    interval.
    """
    if not state.members.begin_health_check(now, state.config.interval):
        return
    for agent, known in list(state.members.health.items()):
        if any(_has_recovered(state, unit, agent, known, now) for unit in state.sets.by_agent.get(agent, ())):
            clear_agent_health(state, agent)


def _has_recovered(state: LeaderState, unit: str, agent: str, known: AgentHealth, now: float) -> bool:
    current, since = state.sets.by_unit[unit], state.sets.memos[unit].since
    if not known.failed_at < since <= now - state.config.health.trust_after:
        return False
    primary = current.primary
    return current.state is SetState.REPLICATING and primary is not None and primary.agent == agent


def clear_agent_health(state: LeaderState, agent: str) -> None:
    """Trust the agent like any other again."""
    if state.members.clear_health(agent):
        state.plan.note_change()
        state.history.record_agent_recovery(agent)


def compute_agent_room(state: LeaderState, agent: str, now: float) -> int | None:
    """Return how many more units the agent may be given; None: no limit."""
    known = state.members.health.get(agent)
    if known is None or known.trusted:
        return None
    units = [state.sets.by_unit[unit] for unit in state.sets.unsettled]
    preparing = [u for u in units if u.state in _AT_WORK and u.replicas[-1].agent == agent]
    return known.compute_room(now, len(preparing))
