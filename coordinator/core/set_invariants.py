"""The invariants of one replication set. Pure."""

from __future__ import annotations

from itertools import pairwise

from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import ReplicaPhase, Role, SetState

_ABSENT, _RECOVERING, _PREPARE = SetState.ABSENT, SetState.RECOVERING, SetState.PREPARE
_COMMIT, _REPLICATING, _REMOVING = SetState.COMMIT, SetState.REPLICATING, SetState.REMOVING
_WRITING, _READY = ReplicaPhase.REPLICATING, ReplicaPhase.PREPARED
_PRIMARY, _SECONDARY = Role.PRIMARY, Role.SECONDARY


def fits_single_replica(state: SetState, one: Replica) -> bool:
    """Return whether a set in this state may have this replica alone."""
    role = one.role
    if role is _PRIMARY:
        is_ready = one.seen is _WRITING or one.seen is _READY
        return is_ready and one.durable and (state is _REPLICATING or state is _COMMIT)
    if role is _SECONDARY:
        return state is _PREPARE or state is _COMMIT
    return state is _RECOVERING or state is _REMOVING


def find_set_violation(current: ReplicationSet) -> str | None:
    """Return which invariant of one set does not hold, or None: which replicas each state may contain, and
    their order.
    """
    replicas = current.replicas
    if len(replicas) == 1 and fits_single_replica(current.state, replicas[0]):
        return None  # nearly always
    if not replicas and current.state is _ABSENT:
        return None
    roles = [r.role for r in replicas]
    primaries, secondaries = roles.count(_PRIMARY), roles.count(_SECONDARY)
    leaving = len(roles) - primaries - secondaries
    if not _fits_state(current.state, primaries, secondaries, leaving):
        return (
            f"{current.state.value} with {primaries} primaries, {secondaries} secondaries, {leaving} leaving"
        )
    assignments = [r.assignment for r in replicas]
    if any(later <= earlier for earlier, later in pairwise(assignments)):
        return f"assignments {assignments} not distinct and in order"
    if len({r.agent for r in replicas}) < len(replicas):
        return f"two replicas on one agent: {[r.agent for r in replicas]}"
    if secondaries and replicas[-1].role is not _SECONDARY:
        return "the secondary has not the highest assignment"
    primary = current.primary if primaries else None
    if primary is not None and not (primary.durable and primary.seen in {_WRITING, _READY}):
        return f"primary {primary} was never ready"
    if primary is not None and secondaries and primary.seen is not _WRITING:
        return "moved from one not writing"
    return None


def _fits_state(state: SetState, primaries: int, secondaries: int, leaving: int) -> bool:
    """Return whether a set in this state may contain so many replicas of each role."""
    match state:
        case SetState.ABSENT:
            return not primaries + secondaries + leaving
        case SetState.RECOVERING | SetState.REMOVING:
            return leaving > 0 == primaries + secondaries
        case SetState.PREPARE:
            return secondaries == 1 and primaries <= 1
        case SetState.COMMIT:
            return primaries + secondaries in {1, 2} and max(primaries, secondaries) == 1
        case SetState.REPLICATING:
            return (primaries, secondaries) == (1, 0)
