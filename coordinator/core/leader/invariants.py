"""The invariants of every unit of a leader, and what the leader does where one is violated. Pure.

The invariants (C1 to C3 of docs/explanation/coordination.md):

- the composition of its replication set fits the set's state (`set_invariants`);
- each of its assignments was given to it alone: an assignment that appears in a step is above all that were
  given before the step, and not above the counter;
- its replicas are on different agents, each of them a known agent whose incarnation has been registered;
- the index by agent holds it exactly where it has a replica;
- a unit of the inventory has a set.

**When they are checked.** When a term begins, for every unit that the control topic has a record of. After
each step, for the units whose sets the step has changed; by induction they hold for the others.

**A stored record that violates them** would be replayed by every later term as well, so ending the term
would help nobody. The term leads on, and *restricts* the unit at once. A record that cannot be decoded, or
has the key of another record, counts as a violation, too: of its unit, or of each unit with a replica on its
agent.

**A step that violates them** ends the term, before any of the step's effects is carried out: the next term
begins with what is durable. Two kinds of terms restrict the unit instead. One that follows a term of this
coordinator with a restricted unit: a coordinator gives up one term for a violation, and not one after the
other. And one that is younger than a lease: only after that time has every agent a lease of this term,
which lasts until the next leader grants one. Without these limits leases would expire between the terms,
and a check that is too strict would stop every pipeline.

**A restricted unit** is left as it is. No agent is instructed about it, nothing is stored or fenced for it,
and no plan contains it. An agent that reports that it writes for the unit is granted its lease with every
heartbeat, whatever the record states; the fencing token in the target, and the generation in Kafka, refuse
all but one of several writers. All other units are scheduled as always. `rowlock units pause` ends the
restriction: the leader forgets the unit's replicas, so that each is instructed to stop as soon as it is
reported, fences the target under a new assignment, and replaces the record. `rowlock units resume` then
places the unit anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from coordinator.core.leader.state import (
    Alarm,
    Fence,
    LeaderDecision,
    LeaderState,
    Persist,
    SendMessage,
    StepDown,
)
from coordinator.core.messages import Dispatch
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.set_invariants import find_set_violation, fits_single_replica

VIOLATION_ALARM = "invariant violated"
_Index = Mapping[str, Collection[str]]
"""By agent: units."""


# a restored state


def restrict_restored_units(
    state: LeaderState, unusable: Mapping[str, str], out: list[LeaderDecision]
) -> None:
    """Restrict the units whose stored records violate an invariant, and those with `unusable` records, for
    the reason given there.
    """
    users: dict[int, list[str]] = defaultdict(list)
    for unit, current in state.sets.by_unit.items():
        for replica in current.replicas:
            users[replica.assignment].append(unit)
    for unit, current in state.sets.by_unit.items():
        why = unusable.get(unit) or _find_restored_violation(state, current, users)
        if why is not None:
            _restrict_unit(state, unit, f"a stored record is wrong: {why}", current, out)


def _find_restored_violation(
    state: LeaderState, current: ReplicationSet, users: Mapping[int, list[str]]
) -> str | None:
    for replica in current.replicas:
        others = [unit for unit in users[replica.assignment] if unit != current.unit]
        if others:
            return f"assignment {replica.assignment} is also that of unit {others[0]}"
        if replica.assignment <= 0:
            return f"assignment {replica.assignment} is not positive"
        member = state.members.by_name.get(replica.agent)
        if member is not None and replica.agent_epoch > member.agent_epoch:
            return _describe_unregistered(replica)
    return find_set_violation(current)


# a step


def judge_step(
    state: LeaderState, counter: int, now: float, out: list[LeaderDecision]
) -> list[LeaderDecision]:
    """Return what is to be carried out of a step's decisions. `counter`: as it was before the step."""
    touched = state.sets.take_touched()
    broken = find_step_violations(state, counter, touched)
    if not broken:
        return out
    alarms: list[LeaderDecision] = []
    for unit, why in broken.items():
        _restrict_unit(state, unit, why, touched[unit], alarms)
    if state.claim.may_end_for_violation(now, state.config.lease):
        state.claim.step_down()
        return [*alarms, StepDown(f"{VIOLATION_ALARM}: {', '.join(broken)}")]
    for unit in broken:
        state.sets.put_back(unit, touched[unit])
    kept = (_leave_out_units(effect, broken) for effect in out)
    return [*(effect for effect in kept if effect is not None), *alarms]


def find_step_violations(
    state: LeaderState, counter: int, touched: Mapping[str, ReplicationSet | None]
) -> dict[str, str]:
    """Return the units among `touched` that violate an invariant, each with the first that it violates."""
    found: dict[str, str] = {}
    given: dict[int, str] = {}
    by_unit, by_agent = state.sets.by_unit, state.sets.by_agent
    for unit, before in touched.items():
        current = by_unit.get(unit)
        if before is not None and current is not None and _has_kept_one_replica(before, current, by_agent):
            continue
        why = (
            _find_leftover(state, unit, before, current)
            if current is None or not current.replicas
            else _find_replica_violation(state, counter, given, before, current)
        )
        if why is not None and unit not in state.sets.restricted:
            found[unit] = why
    return found


def _has_kept_one_replica(before: ReplicationSet, current: ReplicationSet, by_agent: _Index) -> bool:
    """Return whether a set has the one replica that it had before the step, in a role that fits its state.
    This is the case for most steps, and shortens the check.
    """
    if len(current.replicas) != 1 or len(before.replicas) != 1:
        return False
    one, was = current.replicas[0], before.replicas[0]
    if one.assignment != was.assignment or one.agent != was.agent or one.agent_epoch != was.agent_epoch:
        return False
    return fits_single_replica(current.state, one) and current.unit in by_agent.get(one.agent, ())


def _find_leftover(
    state: LeaderState, unit: str, before: ReplicationSet | None, current: ReplicationSet | None
) -> str | None:
    """Return what a change violates after which a unit has no replica."""
    for replica in before.replicas if before is not None else ():
        if unit in state.sets.by_agent.get(replica.agent, ()):
            return _describe_leftover(replica)
    if current is None:
        is_configured = state.plan.find_unit(unit) is not None
        return "it is in the inventory and has no replication set" if is_configured else None
    return find_set_violation(current)


def _find_replica_violation(
    state: LeaderState,
    counter: int,
    given: dict[int, str],
    before: ReplicationSet | None,
    current: ReplicationSet,
) -> str | None:
    """Return what the change of a set violates that has replicas now. `given`: the assignments of this step
    so far, with their units.
    """
    unit, by_agent = current.unit, state.sets.by_agent
    known = before.replicas if before is not None else ()
    for replica in known:
        if unit in by_agent.get(replica.agent, ()) and all(
            replica.agent != one.agent for one in current.replicas
        ):
            return _describe_leftover(replica)
    for replica in current.replicas:
        if unit not in by_agent.get(replica.agent, ()):
            return f"the index by agent lacks it at agent {replica.agent}"
        member = state.members.by_name.get(replica.agent)
        if member is None or replica.agent_epoch > member.agent_epoch:
            return _describe_unregistered(replica)
        if replica.assignment > counter:
            if (
                replica.assignment > state.numbers.counter
                or given.setdefault(replica.assignment, unit) != unit
            ):
                return f"assignment {replica.assignment} was not given to it"
        elif not any(replica.is_same_placement(one) for one in known):
            return f"assignment {replica.assignment} had been given before"
    return find_set_violation(current)


def _describe_leftover(replica: Replica) -> str:
    return f"the index by agent still has it at agent {replica.agent}"


def _describe_unregistered(replica: Replica) -> str:
    return f"incarnation {replica.agent_epoch} of agent {replica.agent} has not been registered"


# restricted units


def explain_restriction(why: str) -> str:
    """Return for operators what a restriction means, and why there is one."""
    left = "the coordinator neither moves nor restarts it"
    return f"{left}, because what it knows of its placement is inconsistent: {why}"


def _restrict_unit(
    state: LeaderState, unit: str, why: str, before: ReplicationSet | None, out: list[LeaderDecision]
) -> None:
    """Restrict a unit with an alarm, which contains its state. `before`: its set before the step."""
    state.sets.restrict_unit(unit, why)
    seen = f"record {state.sets.memos[unit].recorded}" if unit in state.sets.memos else "no record"
    now = state.sets.by_unit.get(unit)
    about = f"unit {unit}: {why} ({seen}; before: {before}; now: {now}; counter: {state.numbers.counter})"
    out.append(Alarm(VIOLATION_ALARM, about))


def _leave_out_units(effect: LeaderDecision, units: Collection[str]) -> LeaderDecision | None:
    """Return a step's decision without what it does for `units`; None: nothing is left of it."""
    match effect:
        case SendMessage(_, Dispatch(unit=unit)) if unit in units:
            return None
        case Fence(unit) if unit in units:
            return None
        case Persist(token, records):
            kept = tuple(one for one in records if one[0].removeprefix("unit/") not in units)
            return Persist(token, kept)
    return effect
