"""What an owner makes of the messages of agents."""

from __future__ import annotations

from coordinator.core import members
from coordinator.core.members import Member, MemberState, Verdict
from coordinator.core.messages import (
    VERSION,
    Announce,
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Rejected,
    Reported,
    Superseded,
    Sync,
    UnitStatus,
    Up,
)
from coordinator.core.owner_feed import failed, feed, fresh_epoch, header, persist
from coordinator.core.owner_state import AgentRecord, Effect, OwnerState, Send, StepDown
from coordinator.core.progress import forward
from coordinator.core.replication import AgentGone, Replica, Report
from coordinator.core.replication_table import Role, Seen, SetState


def receive(state: OwnerState, message: Up, now: float, out: list[Effect]) -> None:
    """Take in one message; what is of another term, incarnation or order is dropped and counted."""
    head = message.header
    if head.version > VERSION:
        state.dropped["version"] += 1
    elif head.owner_rev > state.rev or (isinstance(message, Rejected) and message.known_rev > state.rev):
        step_down(state, f"agent {message.agent} obeys a later owner", out)
    elif isinstance(message, Hello):
        _hello(state, message, now, out)
    elif (member := state.members.get(message.agent)) is None or not member.durable:
        state.dropped["unknown agent"] += 1
        if member is None:
            superseded = Superseded(header(state, head.agent_epoch))
            out.append(Send(message.agent, superseded))
    elif head.owner_rev < state.rev:
        _of_an_earlier_term(state, member, message, out)
    elif not isinstance(message, Rejected):
        _of_this_term(state, member, message, now, out)


def step_down(state: OwnerState, why: str, out: list[Effect]) -> None:
    state.stepped_down = True
    out.append(StepDown(why))


def announce(state: OwnerState, member: Member, out: list[Effect]) -> None:
    head = header(state, member.agent_epoch)
    config = state.config
    hello = Announce(head, state.owner, member.incarnation, config.interval, config.lease)
    out.append(Send(member.name, hello))


def _hello(state: OwnerState, message: Hello, now: float, out: list[Effect]) -> None:
    """A known incarnation is announced to; a new one is registered first."""
    known = state.members.get(message.agent)
    if known is not None and known.incarnation == message.incarnation:
        if known.durable:
            announce(state, known, out)
        return
    epoch = fresh_epoch(state)
    state.members[message.agent] = Member(message.agent, message.incarnation, epoch, now, durable=False)
    record = AgentRecord(message.agent, message.incarnation, epoch)
    persist(state, [record], now, out, agent=(message.agent, epoch))


def registered(state: OwnerState, agent: str, agent_epoch: int, now: float, out: list[Effect]) -> None:
    """The registration is durable: earlier incarnations are gone, this one is announced to."""
    member = state.members.get(agent)
    if member is None or member.agent_epoch != agent_epoch:
        return
    member = state.members[agent] = Member(
        agent, member.incarnation, agent_epoch, now, draining=member.draining
    )
    gone(state, agent, agent_epoch - 1, now, out)
    announce(state, member, out)


def gone(state: OwnerState, agent: str, agent_epoch: int, now: float, out: list[Effect]) -> None:
    """No incarnation of the agent up to this one counts any more."""
    for unit in sorted(state.by_agent.get(agent, {})):
        feed(state, unit, AgentGone(agent, agent_epoch), now, out)


def _of_an_earlier_term(state: OwnerState, member: Member, message: Up, out: list[Effect]) -> None:
    if message.header.agent_epoch == member.agent_epoch:
        announce(state, member, out)
    else:
        _other_incarnation(state, member, message, out)


def _other_incarnation(state: OwnerState, member: Member, message: Up, out: list[Effect]) -> None:
    state.dropped["other incarnation"] += 1
    if message.header.agent_epoch < member.agent_epoch:
        out.append(Send(member.name, Superseded(header(state, message.header.agent_epoch))))


def _of_this_term(state: OwnerState, member: Member, message: Up, now: float, out: list[Effect]) -> None:
    head = message.header
    member, verdict = members.hear(
        member, head.agent_epoch, head.op_seq, now, is_sync=isinstance(message, Sync)
    )
    if verdict is Verdict.OTHER:
        _other_incarnation(state, member, message, out)
        return
    if verdict is Verdict.LATE:
        state.dropped["late"] += 1
        return
    if isinstance(message, Sync | Heartbeat):
        member = members.told(member, message.sent, message.liveness)
    if member != (before := state.members[member.name]) and member.accepts is not before.accepts:
        state.work = True
    state.members[member.name] = member
    if verdict is Verdict.UNSYNCED:
        announce(state, member, out)
        return
    match message:
        case Sync() | Heartbeat():
            _whole(state, member, message.statuses, now, out)
            out.append(Send(member.name, _grant(state, member)))
        case DispatchResponse():
            _answered(state, member, message, now, out)
        case Checkpoint(marks=marks):
            for unit, epoch, mark in marks:
                if _replica(state, member, unit, epoch) is not None:
                    memo = state.memos[unit]
                    memo.mark = forward(memo.mark, mark)


def _answered(
    state: OwnerState, member: Member, message: DispatchResponse, now: float, out: list[Effect]
) -> None:
    """An answer never makes the owner say the same again: that would go back and forth as fast as the network allows
    while, say, an older replica is still stopping. The next heartbeat brings it again."""
    said: list[Effect] = []
    _status(state, member, message.status, now, said)
    for effect in said:
        sent = effect.message if isinstance(effect, Send) and effect.agent == member.name else None
        if not (isinstance(sent, Dispatch) and sent.op is message.op):
            out.append(effect)


def _whole(
    state: OwnerState, member: Member, statuses: tuple[UnitStatus, ...], now: float, out: list[Effect]
) -> None:
    """Everything the agent holds; what it does not mention it does not hold."""
    missing = dict(state.by_agent.get(member.name, {}))
    for status in statuses:
        missing.pop(status.unit, None)
        _status(state, member, status, now, out)
    for unit in missing:
        feed(state, unit, Report(member.name, member.agent_epoch, 0, Reported.ABSENT), now, out)


def _replica(state: OwnerState, member: Member, unit: str, epoch: int) -> Replica | None:
    """Return the replica that may speak for the unit: one that writes, or stops having written. A final mark counts
    although its epoch is superseded, as long as the set still waits for it."""
    current = state.sets.get(unit)
    for replica in current.replicas if current else ():
        same = (replica.agent, replica.agent_epoch, replica.epoch)
        if same == (member.name, member.agent_epoch, epoch) and replica.role is not Role.SECONDARY:
            return replica
    return None


def _status(state: OwnerState, member: Member, status: UnitStatus, now: float, out: list[Effect]) -> None:
    unit = status.unit
    if _nothing_new(state, member, status):
        return
    state.counter = max(state.counter, status.epoch)  # should the control topic have been lost
    if _replica(state, member, unit, status.epoch) is not None:
        memo = state.memos[unit]
        memo.mark, memo.rows_per_s = forward(memo.mark, status.mark), status.rows_per_s
    if status.error is not None and status.state is Reported.STOPPED and unit in state.sets:
        known = any(r.agent == member.name and r.epoch == status.epoch for r in state.sets[unit].replicas)
        if known:
            failed(state, unit, member.name, now)
    feed(state, unit, Report(member.name, member.agent_epoch, status.epoch, status.state), now, out)


_STEADY = (SetState.REPLICATING, Role.PRIMARY, Seen.REPLICATING)


def _nothing_new(state: OwnerState, member: Member, status: UnitStatus) -> bool:
    """Take the mark of a unit that replicates as it did: nearly every report is that. Same outcome as the long way."""
    current = state.sets.get(status.unit)
    if current is None or current.state is not SetState.REPLICATING or len(current.replicas) != 1:
        return False
    one = current.replicas[0]
    steady = status.state is Reported.REPLICATING and one.seen is Seen.REPLICATING and status.error is None
    if not steady or one.epoch != status.epoch or one.agent_epoch != member.agent_epoch:
        return False
    if one.agent != member.name:
        return False
    memo = state.memos[status.unit]
    if memo.mark != status.mark:
        memo.mark = forward(memo.mark, status.mark)
    memo.rows_per_s = status.rows_per_s
    state.cells[_STEADY] += 1
    return True


def _grant(state: OwnerState, member: Member) -> HeartbeatResponse:
    """Renew the leases of the primaries there, and of what a recovering set has seen to write."""
    granted: list[tuple[str, int]] = []
    for unit in state.by_agent.get(member.name, {}):
        current = state.sets[unit]
        for replica in current.replicas:
            recovering = current.state is SetState.RECOVERING and replica.seen is Seen.REPLICATING
            if (replica.agent, replica.agent_epoch) == (member.name, member.agent_epoch) and (
                replica.role is Role.PRIMARY or recovering
            ):
                granted.append((unit, replica.epoch))
    config = state.config
    head = header(state, member.agent_epoch)
    return HeartbeatResponse(
        head, member.echo, config.lease, config.interval, tuple(granted), member.draining
    )


def expire(state: OwnerState, now: float, out: list[Effect]) -> None:
    """Agents that have been silent for longer than any lease of theirs are gone."""
    for name in list(state.members):
        member = state.members[name]
        expired = members.expire(member, now, state.config.silence) if member.durable else None
        if expired is not None:
            state.members[name] = expired
            state.work = True
            gone(state, name, member.agent_epoch, now, out)


def retire(state: OwnerState, now: float, out: list[Effect]) -> None:
    """Forget agents that have been gone for long and hold nothing, so that records stay bounded."""
    for name, member in list(state.members.items()):
        long_gone = member.state is MemberState.EXPIRED and now >= member.heard_at + state.config.retire_after
        if long_gone and not state.by_agent.get(name):
            del state.members[name]
            state.by_agent.pop(name, None)
            persist(state, [], now, out, delete=[f"agent/{name}"])
