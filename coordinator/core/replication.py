"""The replicas of one unit and how the unit moves between them: a pure state machine with the tables of
`replication_table`.

A replica is one placement of a unit: (agent, incarnation, assignment). It is made durable
(`PersistReplicas`, then `ReplicaPersisted`) before its agent is instructed. Instructions are derived
from the state again at every report, so none needs a retry timer. Reports for an assignment that is not
in the set come from orphans, which are instructed to stop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.core.replication_table import (
    CELLS,
    IMPOSSIBLE,
    SETTLE,
    Cell,
    Composition,
    Primary,
    ReplicaAction,
    ReplicaPhase,
    Role,
    Secondary,
    SetState,
)
from schemas.units import UnitOperation, UnitPhase


@dataclass(frozen=True, slots=True)
class Replica:
    """One placement of a unit."""

    agent: str
    agent_epoch: int
    assignment: int
    role: Role = Role.UNDETERMINED
    durable: bool = True
    seen: ReplicaPhase | None = None
    """The last reported phase; None: not reported yet in this term."""

    def is_same_placement(self, other: Replica) -> bool:
        """Return whether both are the same unit's placement with the same incarnation of an agent."""
        mine, others = (self.assignment, self.agent), (other.assignment, other.agent)
        return mine == others and self.agent_epoch == other.agent_epoch


@dataclass(frozen=True, slots=True)
class ReplicationSet:
    """The replicas of one unit, in the order of their assignments, and the state of the whole."""

    unit: str
    state: SetState = SetState.ABSENT
    replicas: tuple[Replica, ...] = ()

    @property
    def primary(self) -> Replica | None:
        return next((r for r in self.replicas if r.role is Role.PRIMARY), None)

    @property
    def secondary(self) -> Replica | None:
        return next((r for r in self.replicas if r.role is Role.SECONDARY), None)

    @property
    def secondary_ready(self) -> Replica | None:
        """The secondary for which the primary has been instructed to stop."""
        return self.secondary if self.state is SetState.COMMIT else None

    @property
    def leaving(self) -> tuple[Replica, ...]:
        return tuple(r for r in self.replicas if r.role is Role.UNDETERMINED)


@dataclass(frozen=True, slots=True)
class Assign:
    """Place the unit (in Absent) or move it (in Replicating) to this incarnation of an agent, under a
    new assignment.
    """

    agent: str
    agent_epoch: int
    assignment: int


@dataclass(frozen=True, slots=True)
class ReplicaPersisted:
    """The record with the replica of this assignment is durable."""

    assignment: int


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """Incarnation `agent_epoch` of the agent holds the unit at `assignment` in `state`; assignment 0 and
    Absent: not at all.
    """

    agent: str
    agent_epoch: int
    assignment: int
    state: UnitPhase


@dataclass(frozen=True, slots=True)
class AgentLost:
    """Every incarnation of the agent up to `agent_epoch` is lost: its lease has run out, or a later one
    has registered.
    """

    agent: str
    agent_epoch: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop every replica."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give up the preparation of the secondary (only in Prepare)."""


SetInput = Assign | ReplicaPersisted | ReplicaReport | AgentLost | Remove | Cancel


@dataclass(frozen=True, slots=True)
class Instruct:
    op: UnitOperation
    agent: str
    agent_epoch: int
    assignment: int


@dataclass(frozen=True, slots=True)
class PersistReplicas:
    """Store `replicas` as the unit's record, then report ReplicaPersisted(assignment)."""

    assignment: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class ImpossibleReport:
    """A report that a correct agent cannot send. The replica is instructed to stop."""

    cell: Cell
    agent: str
    assignment: int


SetOutput = Instruct | PersistReplicas | ImpossibleReport


class SetRefusedError(Exception):
    """The command does not fit the set's state. Nothing was changed."""


def restore_set(unit: str, replicas: tuple[Replica, ...]) -> ReplicationSet:
    """Return the set of a new leader from the unit's durable record; no replica has reported yet."""
    unknown = tuple(
        Replica(r.agent, r.agent_epoch, r.assignment) for r in sorted(replicas, key=lambda r: r.assignment)
    )
    return ReplicationSet(unit, SetState.RECOVERING if unknown else SetState.ABSENT, unknown)


def step_set(current: ReplicationSet, event: SetInput) -> tuple[ReplicationSet, tuple[SetOutput, ...]]:
    """Return the set after `event`, and what has to be done, in order. Raises SetRefusedError if a
    command does not fit the state.
    """
    out: list[SetOutput] = []
    match event:
        case ReplicaReport():
            after = _apply_report(current, event, out)
        case AgentLost(agent, agent_epoch):
            after = _remove_agent(current, agent, agent_epoch, out)
        case ReplicaPersisted(assignment):
            after = _mark_persisted(current, assignment, out)
        case Assign():
            after = _assign_replica(current, event, out)
        case Remove():
            after = _remove_replicas(current, out)
        case Cancel():
            after = _cancel_secondary(current, out)
    return after, tuple(out)


def list_cells(current: ReplicationSet, event: SetInput) -> list[Cell]:
    """Return the table cells that `event` passes through (for the coverage count)."""
    if isinstance(event, AgentLost):
        return [
            (current.state, r.role, ReplicaPhase.LOST)
            for r in current.replicas
            if r.agent == event.agent and r.agent_epoch <= event.agent_epoch
        ]
    if isinstance(event, ReplicaReport):
        return [(current.state, r.role, seen) for r, seen in _match_report(current, event)]
    return []


def _match_report(current: ReplicationSet, event: ReplicaReport) -> list[tuple[Replica, ReplicaPhase]]:
    """Return what a report means for each replica of the set.

    An agent holds one replica of a unit: if it reports another assignment, it does not hold this one. An
    older incarnation of the agent is lost.
    """
    found: list[tuple[Replica, ReplicaPhase]] = []
    for replica in current.replicas:
        if replica.agent != event.agent or replica.agent_epoch > event.agent_epoch:
            continue
        if replica.agent_epoch < event.agent_epoch:
            found.append((replica, ReplicaPhase.LOST))
        elif replica.assignment == event.assignment:
            found.append((replica, ReplicaPhase(event.state.value)))
        else:
            found.append((replica, ReplicaPhase.ABSENT))
    return found


def _apply_report(current: ReplicationSet, event: ReplicaReport, out: list[SetOutput]) -> ReplicationSet:
    about = _match_report(current, event)
    known = any(r.agent_epoch == event.agent_epoch and r.assignment == event.assignment for r, _ in about)
    if not known and event.state is not UnitPhase.ABSENT:
        op = UnitOperation.FORGET if event.state is UnitPhase.STOPPED else UnitOperation.REMOVE
        out.append(Instruct(op, event.agent, event.agent_epoch, event.assignment))
    for replica, seen in about:
        current = _apply_cell(current, replica, seen, out)
    return _settle_set(current, out) if about else current


def _remove_agent(
    current: ReplicationSet, agent: str, agent_epoch: int, out: list[SetOutput]
) -> ReplicationSet:
    about = [r for r in current.replicas if r.agent == agent and r.agent_epoch <= agent_epoch]
    for replica in about:
        current = _apply_cell(current, replica, ReplicaPhase.LOST, out)
    return _settle_set(current, out) if about else current


def _apply_cell(
    current: ReplicationSet, old: Replica, seen: ReplicaPhase, out: list[SetOutput]
) -> ReplicationSet:
    """Apply the actions of the table cell to one replica."""
    cell = (current.state, old.role, seen)
    replica: Replica | None = replace(old, seen=seen)
    acts = CELLS[cell]
    if ReplicaAction.UNSTARTED in acts and old.seen is ReplicaPhase.REPLICATING:
        acts = IMPOSSIBLE
    for act in acts:
        match act:
            case ReplicaAction.PREPARE if old.seen not in {None, ReplicaPhase.ABSENT}:
                replica = None
            case ReplicaAction.PREPARE:
                _instruct_replica(old, UnitOperation.PREPARE, out)
            case ReplicaAction.STOP:
                _instruct_replica(old, UnitOperation.REMOVE, out)
            case ReplicaAction.FORGET:
                _instruct_replica(old, UnitOperation.FORGET, out)
            case ReplicaAction.LEAVE:
                replica = replace(old, seen=seen, role=Role.UNDETERMINED)
            case ReplicaAction.DROP:
                replica = None
            case ReplicaAction.ALARM:
                out.append(ImpossibleReport(cell, old.agent, old.assignment))
    return _replace_replica(current, old, replica)


def _replace_replica(current: ReplicationSet, old: Replica, new: Replica | None) -> ReplicationSet:
    changed = tuple(new if r is old else r for r in current.replicas)
    return replace(current, replicas=tuple(r for r in changed if r is not None))


def _instruct_replica(replica: Replica, op: UnitOperation, out: list[SetOutput]) -> None:
    if replica.durable:
        out.append(Instruct(op, replica.agent, replica.agent_epoch, replica.assignment))


def summarize_composition(current: ReplicationSet) -> Composition:
    """Return the composition that the settle rules examine."""
    primary, secondary = current.primary, current.secondary
    first, second = Primary.NONE, Secondary.NONE
    if primary is not None:
        first = Primary.WRITING if primary.seen is ReplicaPhase.REPLICATING else Primary.READY
    if secondary is not None:
        second = Secondary.READY if secondary.seen is ReplicaPhase.PREPARED else Secondary.PENDING
    return current.state, first, second, bool(current.leaving)


def _settle_set(current: ReplicationSet, out: list[SetOutput]) -> ReplicationSet:
    """Apply the settle rules until one keeps the state and changes no role."""
    while True:
        rule = SETTLE[summarize_composition(current)]
        before, current = current, replace(current, state=rule.next)
        if rule.act is ReplicaAction.CLASSIFY:
            current = _classify_replicas(current)
        elif rule.act is ReplicaAction.PROMOTE:
            current = _promote_secondary(current)
        elif rule.act is ReplicaAction.START and current.primary is not None:
            _instruct_replica(current.primary, UnitOperation.START, out)
        elif rule.act is ReplicaAction.STOP_PRIMARY and current.primary is not None:
            _instruct_replica(current.primary, UnitOperation.REMOVE, out)
        if current == before:
            return current


def _promote_secondary(current: ReplicationSet) -> ReplicationSet:
    return replace(
        current,
        replicas=tuple(
            replace(r, role=Role.PRIMARY) if r.role is Role.SECONDARY else r for r in current.replicas
        ),
    )


def _classify_replicas(current: ReplicationSet) -> ReplicationSet:
    """Give each replica of a recovering set its role, once all have reported.

    The highest assignment that writes is the primary: lower ones are fenced at the target. The highest
    assignment that prepares, if it is above the primary's, is the secondary. All others have to stop.
    """
    replicas = current.replicas
    if not replicas:
        return replace(current, state=SetState.ABSENT)
    if any(r.seen is None for r in replicas):
        return current
    writing = max((r.assignment for r in replicas if r.seen is ReplicaPhase.REPLICATING), default=0)
    ready = (ReplicaPhase.PREPARING, ReplicaPhase.PREPARED)
    preparing = max((r.assignment for r in replicas if r.seen in ready and r.assignment > writing), default=0)
    roles = {writing: Role.PRIMARY, preparing: Role.SECONDARY}
    state = SetState.PREPARE if preparing else SetState.REPLICATING if writing else SetState.REMOVING
    given = tuple(replace(r, role=roles.get(r.assignment, Role.UNDETERMINED)) for r in replicas)
    return replace(current, state=state, replicas=given)


def _mark_persisted(current: ReplicationSet, assignment: int, out: list[SetOutput]) -> ReplicationSet:
    for replica in current.replicas:
        if replica.assignment == assignment and not replica.durable:
            durable = replace(replica, durable=True)
            _instruct_replica(durable, UnitOperation.PREPARE, out)
            return _replace_replica(current, replica, durable)
    return current


def _assign_replica(current: ReplicationSet, event: Assign, out: list[SetOutput]) -> ReplicationSet:
    if current.state not in {SetState.ABSENT, SetState.REPLICATING}:
        raise SetRefusedError(f"unit {current.unit} is {current.state.value}, not absent or replicating")
    if any(r.agent == event.agent for r in current.replicas):
        raise SetRefusedError(f"unit {current.unit} is on agent {event.agent} already")
    if any(r.assignment >= event.assignment for r in current.replicas):
        raise AssertionError(f"unit {current.unit}: assignment {event.assignment} is not new")
    replica = Replica(event.agent, event.agent_epoch, event.assignment, Role.SECONDARY, durable=False)
    after = replace(current, state=SetState.PREPARE, replicas=(*current.replicas, replica))
    out.append(PersistReplicas(event.assignment, after.replicas))
    return after


def _remove_replicas(current: ReplicationSet, out: list[SetOutput]) -> ReplicationSet:
    removed = tuple(replace(r, role=Role.UNDETERMINED) for r in current.replicas if r.durable)
    for replica in removed:
        _instruct_replica(replica, UnitOperation.REMOVE, out)
    return replace(current, state=SetState.REMOVING if removed else SetState.ABSENT, replicas=removed)


def _cancel_secondary(current: ReplicationSet, out: list[SetOutput]) -> ReplicationSet:
    secondary = current.secondary
    if current.state is not SetState.PREPARE or secondary is None:
        raise SetRefusedError(f"unit {current.unit} is {current.state.value}, not prepare")
    _instruct_replica(secondary, UnitOperation.REMOVE, out)
    left = replace(secondary, role=Role.UNDETERMINED) if secondary.durable else None
    return _settle_set(_replace_replica(current, secondary, left), out)
