"""Agents as an owner deals with them: announced to, registered, expired, forgotten."""

from __future__ import annotations

from coordinator.core import members
from coordinator.core.members import Member, MemberState
from coordinator.core.messages import Announce, Superseded
from coordinator.core.owner import story
from coordinator.core.owner.failures import clear
from coordinator.core.owner.sets import feed, header, interval, persist
from coordinator.core.owner.state import Effect, OwnerState, Send, StepDown
from coordinator.core.replication import AgentGone


def step_down(state: OwnerState, why: str, out: list[Effect]) -> None:
    state.stepped_down = True
    out.append(StepDown(why))


def announce(state: OwnerState, member: Member, out: list[Effect]) -> None:
    head = header(state, member.agent_epoch)
    config = state.config
    hello = Announce(head, state.owner, member.incarnation, interval(state), config.lease)
    out.append(Send(member.name, hello))


def other_incarnation(state: OwnerState, member: Member, agent_epoch: int, out: list[Effect]) -> None:
    """A message of another incarnation is dropped; an earlier one is told that it is over."""
    state.dropped["other incarnation"] += 1
    if agent_epoch < member.agent_epoch:
        out.append(Send(member.name, Superseded(header(state, agent_epoch))))


def registered(state: OwnerState, agent: str, agent_epoch: int, now: float, out: list[Effect]) -> None:
    """The registration is durable: earlier incarnations are gone, this one is announced to."""
    member = state.members.get(agent)
    if member is None or member.agent_epoch != agent_epoch:
        return
    member = state.members[agent] = Member(
        agent, member.incarnation, agent_epoch, now, draining=member.draining
    )
    clear(state, agent)
    story.joined(state, member)
    story.restarted(state, agent)
    gone(state, agent, agent_epoch - 1, now, out)
    announce(state, member, out)


def gone(state: OwnerState, agent: str, agent_epoch: int, now: float, out: list[Effect]) -> None:
    """No incarnation of the agent up to this one counts any more."""
    for unit in sorted(state.by_agent.get(agent, {})):
        feed(state, unit, AgentGone(agent, agent_epoch), now, out)


def expire(state: OwnerState, now: float, out: list[Effect]) -> None:
    """Agents that have been silent for longer than any lease of theirs are gone."""
    for name in list(state.members):
        member = state.members[name]
        expired = members.expire(member, now, state.config.silence) if member.durable else None
        if expired is not None:
            state.members[name] = expired
            state.work = True
            story.expired(state, member, now)
            gone(state, name, member.agent_epoch, now, out)


def retire(state: OwnerState, now: float, out: list[Effect]) -> None:
    """Forget agents that have been gone for long and hold nothing, so that records stay bounded."""
    for name, member in list(state.members.items()):
        long_gone = member.state is MemberState.EXPIRED and now >= member.heard_at + state.config.retire_after
        if long_gone and not state.by_agent.get(name):
            del state.members[name]
            state.by_agent.pop(name, None)
            clear(state, name)
            persist(state, [], now, out, delete=[f"agent/{name}"])
