"""The handlers that renew leases: the agent's, because it was heard, and its units', which may go on
writing.
"""

from __future__ import annotations

from coordinator.core import members
from coordinator.core.handlers.context import Context
from coordinator.core.leader import configuration
from coordinator.core.leader.agents import announce_leader, drop_other_incarnation
from coordinator.core.leader.sets import build_leader_header, compute_heartbeat_interval
from coordinator.core.leader.state import LeaderState, SendMessage
from coordinator.core.members import Member, MemberState, MessageVerdict
from coordinator.core.messages import Heartbeat, HeartbeatResponse, Sync
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from schemas.units import UnitPhase


def renew_agent_lease(context: Context) -> bool:
    """Note that the agent is alive. Its state counts only after its Sync, and only in the order in
    which it was sent.
    """
    state, message, head = context.state, context.message, context.message.header
    is_sync = isinstance(message, Sync)
    member, verdict = members.judge_message(
        context.member, head.agent_epoch, head.op_seq, context.now, is_sync=is_sync
    )
    if verdict is MessageVerdict.OTHER:
        drop_other_incarnation(state, member, head.agent_epoch, context.out)
        return False
    if verdict is MessageVerdict.LATE:
        state.history.count_dropped("late")
        return False
    if isinstance(message, Sync | Heartbeat):
        member = members.update_from_heartbeat(member, message)
    if member.accepts is not context.member.accepts or member.config != context.member.config:
        state.plan.note_change()
    if member.liveness is not context.member.liveness:
        state.history.record_agent_stopping(member, state.sets.by_agent.get(member.name, ()))
    if context.member.state is MemberState.EXPIRED and member.state is not MemberState.EXPIRED:
        state.history.record_agent_return(member)
    context.identify_sender(state.members.put_member(member))
    if verdict is MessageVerdict.UNSYNCED:
        announce_leader(state, member, context.out)
    return verdict is MessageVerdict.APPLY


def grant_leases(context: Context) -> bool:
    """Renew the leases of the agent's primaries, and of the replicas that a recovering set has seen
    writing.

    A replica that has been instructed to stop is not renewed: if the instruction is lost, the lease ends
    it.
    """
    if isinstance(context.message, Sync | Heartbeat):
        state, member = context.state, context.member
        config = state.config
        granted = (*_list_granted(state, member), *_list_restricted(state, context.message))
        head = build_leader_header(state, member.agent_epoch)
        response = HeartbeatResponse(
            head,
            member.echo,
            config.lease,
            compute_heartbeat_interval(state),
            granted,
            member.draining,
            configuration.get_active_version(state),
            configuration.get_open_question(state, member),
            state.members.find_oldest(),
        )
        context.out.append(SendMessage(member.name, response))
    return True


def _list_granted(state: LeaderState, member: Member) -> list[tuple[str, int]]:
    granted: list[tuple[str, int]] = []
    me = (member.name, member.agent_epoch)
    for unit in state.sets.by_agent.get(member.name, {}):
        current = state.sets.by_unit[unit]
        if unit in state.sets.restricted:
            continue
        if current.state is SetState.REPLICATING and len(current.replicas) == 1:  # nearly always
            one = current.replicas[0]
            if one.agent == member.name and one.agent_epoch == member.agent_epoch:
                granted.append((unit, one.assignment))
            continue
        for replica in current.replicas:
            recovering = current.state is SetState.RECOVERING and replica.seen is ReplicaPhase.REPLICATING
            stays = replica.role is Role.PRIMARY and current.secondary_ready is None
            if (replica.agent, replica.agent_epoch) == me and (stays or recovering):
                granted.append((unit, replica.assignment))
    return granted


def _list_restricted(state: LeaderState, message: Sync | Heartbeat) -> list[tuple[str, int]]:
    """Return the restricted units that the agent writes, whatever the leader has recorded of them.

    Otherwise a wrong record, or a check that is too strict, would stop the unit with the lease. The fencing
    token in the target refuses all but one of several writers.
    """
    if not state.sets.restricted:
        return []
    return [
        (status.unit, status.assignment)
        for status in message.statuses
        if status.unit in state.sets.restricted
        and status.state is UnitPhase.REPLICATING
        and 0 < status.assignment <= state.numbers.counter
    ]
