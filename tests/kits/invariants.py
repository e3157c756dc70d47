"""The leader's invariants, checked by tests for everything at once: linear in the number of units."""

from __future__ import annotations

from collections import defaultdict

from coordinator.core.leader.invariants import find_step_violations
from coordinator.core.leader.state import LeaderState
from coordinator.core.replication import ReplicationSet
from coordinator.core.set_invariants import find_set_violation


def require_invariant(holds: bool, what: str) -> None:
    """Raise AssertionError(what) unless `holds`."""
    if not holds:
        raise AssertionError(what)


def check_leader_invariants(state: LeaderState) -> None:
    """Raise AssertionError unless the invariants hold for every unit that is not restricted."""
    everything = {**dict.fromkeys(state.plan.inventory or ()), **state.sets.by_unit}
    broken = find_step_violations(state, state.numbers.counter, everything)
    users: dict[int, str] = {}
    held: dict[str, set[str]] = defaultdict(set)
    for unit, current in state.sets.by_unit.items():
        for replica in current.replicas:
            held[replica.agent].add(unit)
            if unit not in state.sets.restricted and users.setdefault(replica.assignment, unit) != unit:
                broken[unit] = f"assignment {replica.assignment} is also that of {users[replica.assignment]}"
    if {agent: set(units) for agent, units in state.sets.by_agent.items() if units} != held:
        broken[""] = "the index by agent is not what the sets hold"
    if broken:
        raise AssertionError(f"invariants violated: {broken}")


def check_set_invariants(current: ReplicationSet) -> None:
    """Raise AssertionError unless the invariants of one set hold."""
    why = find_set_violation(current)
    require_invariant(why is None, why or "")
