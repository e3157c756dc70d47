"""The coordinator's pure core for one term: members, replication sets, schedulers and progress wired together.

`begin` builds the state from the durable records; `step` takes an event and the owner's monotonic time, and returns
effects. Sets are recovered one by one, each as soon as the agents that can hold it have synced or are gone. For speed
(100 thousand units) `step` changes the state that it is given.

Effects `Persist` are to be committed in their order by the producer that made the claim; the first that fails for being
fenced ends the term. `Send` may be lost at any time: whatever is still true is said again at the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coordinator.core import handlers, owner_members, owner_ticks, replication
from coordinator.core.members import Member
from coordinator.core.owner_feed import feed, fence_stored, fence_unless_wanted, fenced, persist
from coordinator.core.owner_state import (
    AgentRecord,
    Catalogue,
    Command,
    Confirmed,
    CounterRecord,
    Drain,
    Effect,
    Event,
    Fenced,
    Move,
    OwnerConfig,
    OwnerState,
    Pause,
    PausedRecord,
    Persisted,
    PipelineRecord,
    Rebalance,
    Received,
    Record,
    Refused,
    Resign,
    Resume,
    Send,
    Tick,
    UnitMemo,
    UnitRecord,
    Waiting,
)
from coordinator.core.replication import AgentGone, Replica, ReplicationSet
from coordinator.core.schedulers import MoveRequest


def begin(
    owner: str, rev: int, records: Mapping[str, Record], config: OwnerConfig, now: float, *, floor: int = 0
) -> tuple[OwnerState, list[Effect]]:
    """Return the state of a new term. `rev`: offset of the claim; `records`: the control topic folded up to it;
    `floor`: the wall clock's ms at the claim: every fresh epoch is above it, should the records have been lost (docs/adr/0005).

    Every lease that an earlier owner can have granted ends before `now` + owner_lease + silence: so long an agent that
    says nothing is taken for alive.
    """
    state = OwnerState(
        owner, rev, config, confirmed_at=now, counter=floor, next_balance=now + config.balance_every
    )
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
        case CounterRecord(epoch):
            state.counter = max(state.counter, epoch)
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
            for agent, _, epoch in holders:
                state.counter = max(state.counter, epoch)
                state.by_agent.setdefault(agent, {})[unit] = None
        case PausedRecord(unit):
            state.paused[unit] = None
        case PipelineRecord(pipeline, progress):
            state.pipelines[pipeline] = state.recorded_pipelines[pipeline] = progress


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
        case Fenced(unit, epoch):
            fenced(state, unit, epoch, now, out)
        case Catalogue():
            _catalogue(state, event, now, out)
        case Tick():
            _tick(state, now, out)
        case _:
            _command(state, event, now, out)
    state.silent = now >= state.confirmed_at + state.config.owner_lease
    if state.silent:
        state.dropped["unconfirmed"] += len(out)
        out = [effect for effect in out if not isinstance(effect, Send)]
    return state, out


def _tick(state: OwnerState, now: float, out: list[Effect]) -> None:
    owner_members.expire(state, now, out)
    owner_ticks.give_up(state, now, out)
    owner_ticks.fence_again(state, now, out)
    if not state.silent:
        owner_ticks.schedule(state, now, out)
    owner_ticks.progress(state, now, out)
    owner_members.retire(state, now, out)


def _persisted(state: OwnerState, token: int, now: float, out: list[Effect]) -> None:
    stored = state.waiting.pop(token, Waiting(float("-inf")))
    state.confirmed_at = max(state.confirmed_at, stored.asked)
    owner_ticks.recorded(state, token)
    if stored.unit is not None:
        feed(state, stored.unit[0], replication.Persisted(stored.unit[1]), now, out)
    if stored.agent is not None:
        owner_members.registered(state, *stored.agent, now, out)
    if stored.fence is not None:
        fence_stored(state, *stored.fence, now, out)


def _catalogue(state: OwnerState, event: Catalogue, now: float, out: list[Effect]) -> None:
    state.catalogue = {spec.unit: spec for spec in sorted(event.units, key=lambda spec: spec.unit)}
    state.sources = dict(event.sources)
    state.pipeline_units = owner_ticks.pipeline_units(state)
    owner_ticks.forget_pipelines(state, now, out)
    state.next_progress = now
    state.work = True
    for unit, spec in state.catalogue.items():
        if unit not in state.sets:
            state.sets[unit] = ReplicationSet(unit)
            state.memos[unit] = UnitMemo(spec.uid, now)
    for unit in sorted(state.sets):
        fence_unless_wanted(state, unit, now, out)


def _command(state: OwnerState, command: Command, now: float, out: list[Effect]) -> None:
    why = _refusal(state, command)
    if why is not None:
        out.append(Refused(command, why))
        return
    state.work = True
    match command:
        case Move(unit, agent):
            state.moves = (*(m for m in state.moves if m.unit != unit), MoveRequest(unit, agent))
        case Drain(agent):
            member = state.members[agent] = replace(state.members[agent], draining=True)
            record = AgentRecord(agent, member.incarnation, member.agent_epoch, draining=True)
            persist(state, [record], now, out)
        case Rebalance():
            state.rebalance = True
        case Pause(unit):
            state.paused[unit] = None
            fence_unless_wanted(state, unit, now, out)
            persist(state, [PausedRecord(unit)], now, out)
        case Resume(unit):
            state.paused.pop(unit, None)
            persist(state, [], now, out, delete=[f"paused/{unit}"])
        case Resign():
            owner_members.step_down(state, "asked to resign", out)


def _refusal(state: OwnerState, command: Command) -> str | None:
    """Return why a command cannot be carried out."""
    match command:
        case Move(unit, agent):
            if unit not in state.sets:
                return f"there is no unit {unit}"
            if agent not in state.members or not state.members[agent].accepts:
                return f"agent {agent} is unknown, away or draining"
            primary = state.sets[unit].primary
            return f"unit {unit} is on agent {agent} already" if primary and primary.agent == agent else None
        case Drain(agent):
            if agent not in state.members:
                return f"there is no agent {agent}"
            others = any(m.accepts for name, m in state.members.items() if name != agent)
            return None if others else "no other agent could take its units"
        case Pause(unit) | Resume(unit):
            return None if unit in state.sets else f"there is no unit {unit}"
    return None


def check(state: OwnerState) -> None:
    """Raise AssertionError unless the owner's invariants hold (for tests: linear in the number of units)."""
    epochs: dict[int, str] = {}
    held: dict[str, set[str]] = {}
    for unit, current in state.sets.items():
        replication.check(current)
        for replica in current.replicas:
            other = epochs.setdefault(replica.epoch, unit)
            replication.require(other == unit, f"epoch {replica.epoch} of {unit} and of {other}")
            replication.require(replica.epoch <= state.counter, f"epoch {replica.epoch} above the counter")
            held.setdefault(replica.agent, set()).add(unit)
    index = {agent: set(units) for agent, units in state.by_agent.items() if units}
    replication.require(index == held, "the index by agent is not what the sets hold")
    missing = set(state.catalogue or ()) - set(state.sets)
    replication.require(not missing, f"units {sorted(missing)} of the catalogue have no set")
