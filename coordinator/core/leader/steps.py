"""The pure core of a term's leader: members, replication sets, schedulers and progress wired together.

`begin_leader_term` builds the state from the durable records. `step_leader` takes an event and the
leader's monotonic time, and returns effects. Sets are recovered one by one, each as soon as the agents
that can hold it have synced or expired. For speed (100 thousand units) `step_leader` changes the state
that it is given.

`Persist` effects are to be committed in their order by the producer that made the claim; the first that
fails because the producer is fenced ends the term. A `SendMessage` may be lost at any time: what is
still true is repeated at the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from coordinator.core import handlers, replication
from coordinator.core.leader import agents as leader_members
from coordinator.core.leader import commands as leader_commands
from coordinator.core.leader import configuration, failures, inventory, periodic
from coordinator.core.leader.invariants import judge_step, restrict_restored_units
from coordinator.core.leader.plan import Plan
from coordinator.core.leader.sets import apply_event_to_set, confirm_fenced, fence_stored
from coordinator.core.leader.state import (
    Alarm,
    Confirmed,
    Fenced,
    Inventory,
    LeaderConfig,
    LeaderDecision,
    LeaderEvent,
    LeaderState,
    Persisted,
    Received,
    SendMessage,
    Tick,
)
from coordinator.core.leader.term_state import TermClaim, TermNumbers
from coordinator.core.members import Member
from coordinator.core.records import (
    AgentRecord,
    ConfigRecord,
    CounterRecord,
    DurableRecord,
    MoveRecord,
    PausedRecord,
    PipelineRecord,
    UnitRecord,
    UnreadableRecord,
    build_record_key,
)
from coordinator.core.replication import AgentLost
from coordinator.core.schedulers import MoveRequest


def begin_leader_term(
    owner: str,
    rev: int,
    records: Mapping[str, DurableRecord],
    config: LeaderConfig,
    now: float,
    *,
    floor: int = 0,
    claimed_at: float | None = None,
    after_violation: bool = False,
) -> tuple[LeaderState, list[LeaderDecision]]:
    """Return the state of a new term.

    `rev`: offset of the claim; `records`: the control topic folded up to that offset; `floor`: the time
    of day (ms) at the claim. Every new assignment is above `floor`, in case the records have been lost
    (docs/adr/0005-epochs-from-the-clock.md).

    `claimed_at`: when the write of the claim began (default: `now`). The claim counts as confirmed from
    then on, not from the answer: if the answer was late, another coordinator may have claimed since.

    `after_violation`: the last term of this coordinator has seen a violated invariant (`invariants`).

    Every lease that an earlier leader can have granted ends before `now` + leader_lease + silence. Until
    then an agent that sends nothing counts as alive.
    """
    state = LeaderState(
        owner,
        rev,
        config,
        TermClaim(
            now if claimed_at is None else claimed_at, now, floor, ends_on_violation=not after_violation
        ),
        numbers=TermNumbers(counter=floor),
        plan=Plan(next_balance=now + config.balance_every),
    )
    state.claim.update_silence(now, config.leader_lease)
    out: list[LeaderDecision] = []
    unusable: dict[str, str] = {}
    for key, record in sorted(records.items()):
        problem = _find_record_problem(key, record)
        if problem is None:
            _restore_record(state, record, now)
            continue
        out.append(Alarm("record not usable", f"{key}: {problem}"))
        unusable |= dict.fromkeys(_list_named_keys(key, record, records), problem)
    restrict_restored_units(state, _restore_unusable_records(state, unusable, now), out)
    for unit in sorted(state.sets.by_unit):
        for replica in state.sets.by_unit[unit].replicas:
            member = state.members.by_name.get(replica.agent)
            if member is None or member.agent_epoch > replica.agent_epoch:
                apply_event_to_set(state, unit, AgentLost(replica.agent, replica.agent_epoch), now, out)
    return state, judge_step(state, state.numbers.counter, now, out)


def _find_record_problem(key: str, record: DurableRecord) -> str | None:
    """Return why a record cannot be used, or None."""
    if isinstance(record, UnreadableRecord):
        return record.why
    named = build_record_key(record)
    return None if named == key else f"it is the record {named}"


def _list_named_keys(key: str, record: DurableRecord, known: Collection[str]) -> Iterator[str]:
    """Yield the keys of the objects that an unusable record is about: its own, and that of the object which
    it names if that has no record of its own (`known`: all keys).
    """
    yield key
    if (named := build_record_key(record)) not in known:
        yield named


def _restore_unusable_records(state: LeaderState, unusable: Mapping[str, str], now: float) -> dict[str, str]:
    """Take each record that cannot be used as what stops or moves least, and return the units that are to be
    restricted, with the reason. `unusable`: by key, why.

    A unit counts as paused, because it may be. A unit with a replica on an agent without a usable record is
    restricted: the agent would count as lost although it may still write.
    """
    found: dict[str, str] = {}
    for key, why in unusable.items():
        kind, _, name = key.partition("/")
        if kind == "unit":
            state.sets.add_unit(name, "", now)
            found[name] = why
        elif kind == "paused":
            state.sets.paused[name] = None
        elif kind == "agent":
            for unit in state.sets.by_agent.get(name, ()):
                found.setdefault(unit, f"that of its agent {name}: {why}")
    return found


def _restore_record(state: LeaderState, record: DurableRecord, now: float) -> None:
    match record:
        case CounterRecord(assignment):
            state.numbers.skip_to(assignment)
        case AgentRecord(agent, incarnation, agent_epoch, draining):
            state.numbers.skip_to(agent_epoch)
            heard_at = now + state.config.leader_lease
            state.members.put_member(Member(agent, incarnation, agent_epoch, heard_at, draining=draining))
        case UnitRecord(unit, uid, holders):
            state.sets.restore(unit, uid, holders, now)
            state.numbers.skip_to(max((assignment for _, _, assignment in holders), default=0))
        case PausedRecord(unit):
            state.sets.paused[unit] = None
        case MoveRecord(unit, agent):
            state.plan.request_move(MoveRequest(unit, agent))
        case PipelineRecord(pipeline, progress):
            state.pipelines.restore(pipeline, progress)
        case ConfigRecord():
            configuration.restore_configuration(state, record)


def step_leader(
    state: LeaderState, event: LeaderEvent, now: float
) -> tuple[LeaderState, list[LeaderDecision]]:
    """Return the leader's state after `event` at `now` (its monotonic seconds), and what has to be done,
    in order.
    """
    out: list[LeaderDecision] = []
    if state.claim.stepped_down:
        return state, out
    counter = state.numbers.counter
    match event:
        case Received(message):
            handlers.receive_agent_message(state, message, now, out)
        case Persisted(token):
            _handle_persisted(state, token, now, out)
        case Confirmed(at):
            state.claim.confirm(at)
        case Fenced(unit, assignment):
            confirm_fenced(state, unit, assignment, now, out)
        case Inventory():
            inventory.receive_inventory(state, event, now, out)
        case Tick():
            _handle_tick(state, now, out)
        case _:
            leader_commands.execute_leader_command(state, event, now, out)
    if state.sets.touched:
        out = judge_step(state, counter, now, out)
    if state.claim.update_silence(now, state.config.leader_lease):
        state.history.count_dropped("unconfirmed", len(out))
        out = [effect for effect in out if not isinstance(effect, SendMessage)]
    return state, out


def _handle_tick(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    leader_members.expire_silent_agents(state, now, out)
    periodic.abandon_stuck_preparations(state, now, out)
    periodic.retry_fences(state, now, out)
    failures.clear_recovered_agents(state, now)
    configuration.continue_reload(state, now, out)
    if not state.claim.silent:
        periodic.schedule_units(state, now, out)
    periodic.advance_pipelines(state, now, out)
    leader_members.forget_expired_agents(state, now, out)


def _handle_persisted(state: LeaderState, token: int, now: float, out: list[LeaderDecision]) -> None:
    stored = state.numbers.end_persist(token)
    state.claim.confirm(stored.asked)
    state.pipelines.confirm_stored(token)
    if stored.unit is not None:
        apply_event_to_set(state, stored.unit[0], replication.ReplicaPersisted(stored.unit[1]), now, out)
    if stored.agent is not None:
        leader_members.confirm_registration(state, *stored.agent, now, out)
    if stored.fence is not None:
        fence_stored(state, *stored.fence, now, out)
