"""The handlers that check that a message is for this leader, and register new agents."""

from __future__ import annotations

from coordinator.core.handlers.bounds import LONGEST_NAME, refuse_claim
from coordinator.core.handlers.context import Context
from coordinator.core.leader.agents import announce_leader, drop_other_incarnation
from coordinator.core.leader.sets import build_leader_header, persist_records, take_next_number
from coordinator.core.leader.state import SendMessage
from coordinator.core.members import Member
from coordinator.core.messages import Hello, Rejected, Superseded
from coordinator.core.records import AgentRecord


def check_leader(context: Context) -> bool:
    """Refuse messages that claim a later term. Such a claim does not end this term, because any agent
    could send it. If it is true, the next write to the control topic fails.
    """
    message, rev = context.message, context.state.rev
    known = message.known_rev if isinstance(message, Rejected) else 0
    if max(message.header.owner_rev, known) <= rev:
        return True
    seen = f"it reports that term {max(message.header.owner_rev, known)} has begun, after {rev}"
    refuse_claim(
        context.state, message.agent, context.now, context.out, what="later term claimed", about=seen
    )
    return False


def register_agent(context: Context) -> bool:
    """Announce the leader to an incarnation of an agent. A new incarnation is stored first
    (`leader.agents.confirm_registration`).
    """
    if not isinstance(context.message, Hello):
        return True
    state, message = context.state, context.message
    known = state.members.by_name.get(message.agent)
    if known is None or known.incarnation != message.incarnation:
        if _has_room(context, message):
            _store_registration(context, message)
    elif known.durable:
        announce_leader(state, known, context.out)
    return False


def _has_room(context: Context, message: Hello) -> bool:
    """Return whether the registration can begin: one at a time for each name, and not more agents
    than allowed.
    """
    state, known = context.state, context.state.members.by_name.get(message.agent)
    if max(len(message.agent), len(message.incarnation)) > LONGEST_NAME:
        refuse_claim(
            state, message.agent[:40], context.now, context.out, what="name refused", about="too long"
        )
        return False
    if known is not None:
        return known.durable
    if len(state.members.by_name) < state.config.agents:
        return True
    seen = f"{len(state.members.by_name)} agents are known, which is the limit (coordination.agents)"
    refuse_claim(state, message.agent, context.now, context.out, what="too many agents", about=seen)
    return False


def _store_registration(context: Context, message: Hello) -> None:
    state, now = context.state, context.now
    epoch = take_next_number(state)
    state.members.put_member(Member(message.agent, message.incarnation, epoch, now, durable=False))
    record = AgentRecord(message.agent, message.incarnation, epoch)
    persist_records(state, [record], now, context.out, agent=(message.agent, epoch))


def check_member(context: Context) -> bool:
    """End an unknown agent with `Superseded`, so that it starts again. Messages of an agent that is
    still being registered are ignored.
    """
    state, message = context.state, context.message
    member = state.members.by_name.get(message.agent)
    if member is not None and member.durable:
        context.identify_sender(member)
        return True
    state.history.count_dropped("unknown agent")
    if member is None:
        superseded = Superseded(build_leader_header(state, message.header.agent_epoch))
        context.out.append(SendMessage(message.agent, superseded))
    return False


def check_term(context: Context) -> bool:
    """Announce the leader to an agent that still obeys an earlier one. A `Rejected` ends here, because
    it contains nothing else.
    """
    state, message, member = context.state, context.message, context.member
    if message.header.owner_rev >= state.rev:
        return not isinstance(message, Rejected)
    if message.header.agent_epoch == member.agent_epoch:
        announce_leader(state, member, context.out)
    else:
        drop_other_incarnation(state, member, message.header.agent_epoch, context.out)
    return False
