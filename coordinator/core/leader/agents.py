"""The leader's steps for agents: announce, register, expire, forget."""

from __future__ import annotations

from coordinator.core import members
from coordinator.core.leader.failures import clear_agent_health
from coordinator.core.leader.sets import (
    apply_event_to_set,
    build_leader_header,
    compute_heartbeat_interval,
    persist_records,
)
from coordinator.core.leader.state import LeaderDecision, LeaderState, SendMessage, StepDown
from coordinator.core.members import Member, MemberState
from coordinator.core.messages import Announce, Superseded
from coordinator.core.replication import AgentLost


def step_down_leader(state: LeaderState, why: str, out: list[LeaderDecision]) -> None:
    state.claim.step_down()
    out.append(StepDown(why))


def announce_leader(state: LeaderState, member: Member, out: list[LeaderDecision]) -> None:
    head = build_leader_header(state, member.agent_epoch)
    config = state.config
    hello = Announce(head, state.owner, member.incarnation, compute_heartbeat_interval(state), config.lease)
    out.append(SendMessage(member.name, hello))


def drop_other_incarnation(
    state: LeaderState, member: Member, agent_epoch: int, out: list[LeaderDecision]
) -> None:
    """Drop a message of another incarnation, and end an earlier incarnation with `Superseded`."""
    state.history.count_dropped("other incarnation")
    if agent_epoch < member.agent_epoch:
        out.append(SendMessage(member.name, Superseded(build_leader_header(state, agent_epoch))))


def confirm_registration(
    state: LeaderState, agent: str, agent_epoch: int, now: float, out: list[LeaderDecision]
) -> None:
    """Note that the registration is durable: drop earlier incarnations, and announce the leader to this
    one.
    """
    member = state.members.by_name.get(agent)
    if member is None or member.agent_epoch != agent_epoch:
        return
    member = state.members.put_member(
        Member(agent, member.incarnation, agent_epoch, now, draining=member.draining)
    )
    clear_agent_health(state, agent)
    state.history.record_registration(member, state.sets.by_agent.get(agent, ()))
    remove_incarnations(state, agent, agent_epoch - 1, now, out)
    announce_leader(state, member, out)


def remove_incarnations(
    state: LeaderState, agent: str, agent_epoch: int, now: float, out: list[LeaderDecision]
) -> None:
    """Report the agent's incarnations up to `agent_epoch` as lost to all replication sets that contain
    them.
    """
    for unit in sorted(state.sets.by_agent.get(agent, {})):
        apply_event_to_set(state, unit, AgentLost(agent, agent_epoch), now, out)


def expire_silent_agents(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Expire the agents that have been silent for longer than any of their leases."""
    for name in list(state.members.by_name):
        member = state.members.by_name[name]
        expired = members.expire_member(member, now, state.config.silence) if member.durable else None
        if expired is not None:
            state.members.put_member(expired)
            state.plan.note_change()
            state.history.record_agent_expiry(member, state.sets.by_agent.get(name, ()), now)
            remove_incarnations(state, name, member.agent_epoch, now, out)


def forget_expired_agents(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Forget agents that expired long ago and hold no units, so that the number of records stays bounded."""
    for name, member in list(state.members.by_name.items()):
        is_forgettable = (
            member.state is MemberState.EXPIRED and now >= member.heard_at + state.config.retire_after
        )
        if is_forgettable and not state.sets.by_agent.get(name):
            state.members.forget_member(name)
            state.sets.forget_agent(name)
            clear_agent_health(state, name)
            persist_records(state, [], now, out, delete=[f"agent/{name}"])
