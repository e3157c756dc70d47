"""The coordinator's pure core for one term: members, replication sets, schedulers and progress wired together.

`begin` builds the state from the durable records; `step` takes an event and the owner's monotonic time, and returns
effects. Sets are recovered one by one, each as soon as the agents that can hold it have synced or are gone. For speed
(100 thousand units) `step` changes the state that it is given.

Effects `Persist` are to be committed in their order by the producer that made the claim; the first that fails for being
fenced ends the term. `Send` may be lost at any time: whatever is still true is said again at the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.core import handlers, replication
from coordinator.core.members import Member
from coordinator.core.owner import agents as owner_members
from coordinator.core.owner import catalogue, configuration, failures, periodic
from coordinator.core.owner import commands as owner_commands
from coordinator.core.owner.sets import feed, fence_stored, fenced
from coordinator.core.owner.state import (
    Catalogue,
    Confirmed,
    Effect,
    Event,
    Fenced,
    OwnerConfig,
    OwnerState,
    Persisted,
    Received,
    Send,
    Tick,
    UnitMemo,
    Waiting,
)
from coordinator.core.records import (
    AgentRecord,
    ConfigRecord,
    CounterRecord,
    MoveRecord,
    PausedRecord,
    PipelineRecord,
    Record,
    UnitRecord,
)
from coordinator.core.replication import AgentGone, Replica
from coordinator.core.schedulers import MoveRequest


def begin(
    owner: str,
    rev: int,
    records: Mapping[str, Record],
    config: OwnerConfig,
    now: float,
    *,
    floor: int = 0,
    claimed_at: float | None = None,
) -> tuple[OwnerState, list[Effect]]:
    """Return the state of a new term. `rev`: offset of the claim; `records`: the control topic folded up to it;
    `floor`: the wall clock's ms at the claim: every fresh assignment is above it, should the records have been lost (docs/adr/0005).

    `claimed_at`: when the writing of the claim began (default: `now`). From then on it counts as confirmed, not from the answer:
    where that was late, another may have claimed since.

    Every lease that an earlier owner can have granted ends before `now` + owner_lease + silence: so long an agent that
    says nothing is taken for alive.
    """
    state = OwnerState(
        owner,
        rev,
        config,
        confirmed_at=now if claimed_at is None else claimed_at,
        counter=floor,
        next_balance=now + config.balance_every,
    )
    state.floor, state.began = floor, now
    state.silent = now >= state.confirmed_at + config.owner_lease
    out: list[Effect] = []
    for _, record in sorted(records.items()):
        _restore(state, record, now)
    for unit in sorted(state.sets):
        for replica in state.sets[unit].replicas:
            member = state.members.get(replica.agent)
            if member is None or member.agent_epoch > replica.agent_epoch:
                feed(state, unit, AgentGone(replica.agent, replica.agent_epoch), now, out)
    return state, out


def _restore(state: OwnerState, record: Record, now: float) -> None:
    match record:
        case CounterRecord(assignment):
            state.counter = max(state.counter, assignment)
        case AgentRecord(agent, incarnation, agent_epoch, draining):
            state.counter = max(state.counter, agent_epoch)
            heard_at = now + state.config.owner_lease
            state.members[agent] = Member(agent, incarnation, agent_epoch, heard_at, draining=draining)
        case UnitRecord(unit, uid, holders):
            replicas = tuple(Replica(*holder) for holder in holders)
            state.sets[unit] = replication.restore(unit, replicas)
            state.memos[unit] = UnitMemo(uid, now, recorded=holders)
            if replicas:
                state.unsettled[unit] = None
            for agent, _, assignment in holders:
                state.counter = max(state.counter, assignment)
                state.by_agent.setdefault(agent, {})[unit] = None
        case PausedRecord(unit):
            state.paused[unit] = None
        case MoveRecord(unit, agent):
            state.moves = (*state.moves, MoveRequest(unit, agent))
        case PipelineRecord(pipeline, progress):
            state.pipelines[pipeline] = state.recorded_pipelines[pipeline] = progress
        case ConfigRecord():
            configuration.restore(state, record)


def step(state: OwnerState, event: Event, now: float) -> tuple[OwnerState, list[Effect]]:
    """Return the owner after `event` at `now` (its monotonic seconds) and what is to be done, in order."""
    out: list[Effect] = []
    if state.stepped_down:
        return state, out
    match event:
        case Received(message):
            handlers.receive(state, message, now, out)
        case Persisted(token):
            _persisted(state, token, now, out)
        case Confirmed(at):
            state.confirmed_at = max(state.confirmed_at, at)
        case Fenced(unit, assignment):
            fenced(state, unit, assignment, now, out)
        case Catalogue():
            catalogue.read(state, event, now, out)
        case Tick():
            _tick(state, now, out)
        case _:
            owner_commands.carry_out(state, event, now, out)
    state.silent = now >= state.confirmed_at + state.config.owner_lease
    if state.silent:
        state.dropped["unconfirmed"] += len(out)
        out = [effect for effect in out if not isinstance(effect, Send)]
    return state, out


def _tick(state: OwnerState, now: float, out: list[Effect]) -> None:
    owner_members.expire(state, now, out)
    periodic.give_up(state, now, out)
    periodic.fence_again(state, now, out)
    failures.recover(state, now)
    configuration.go_on(state, now, out)
    if not state.silent:
        periodic.schedule(state, now, out)
    periodic.progress(state, now, out)
    owner_members.retire(state, now, out)


def _persisted(state: OwnerState, token: int, now: float, out: list[Effect]) -> None:
    stored = state.waiting.pop(token, Waiting(float("-inf")))
    state.confirmed_at = max(state.confirmed_at, stored.asked)
    periodic.recorded(state, token)
    if stored.unit is not None:
        feed(state, stored.unit[0], replication.ReplicaPersisted(stored.unit[1]), now, out)
    if stored.agent is not None:
        owner_members.registered(state, *stored.agent, now, out)
    if stored.fence is not None:
        fence_stored(state, *stored.fence, now, out)


def check(state: OwnerState) -> None:
    """Raise AssertionError unless the owner's invariants hold (for tests: linear in the number of units)."""
    assignments: dict[int, str] = {}
    held: dict[str, set[str]] = {}
    for unit, current in state.sets.items():
        replication.check(current)
        for replica in current.replicas:
            other = assignments.setdefault(replica.assignment, unit)
            replication.require(other == unit, f"assignment {replica.assignment} of {unit} and of {other}")
            replication.require(
                replica.assignment <= state.counter, f"assignment {replica.assignment} above the counter"
            )
            held.setdefault(replica.agent, set()).add(unit)
    index = {agent: set(units) for agent, units in state.by_agent.items() if units}
    replication.require(index == held, "the index by agent is not what the sets hold")
    missing = set(state.catalogue or ()) - set(state.sets)
    replication.require(not missing, f"units {sorted(missing)} of the catalogue have no set")
