"""The handlers that decide whether a message is for this owner at all, and register who is new."""

from __future__ import annotations

from coordinator.core.handlers.bounds import LONGEST_NAME, refuse_claim
from coordinator.core.handlers.context import Context
from coordinator.core.members import Member
from coordinator.core.messages import Hello, Rejected, Superseded
from coordinator.core.owner.agents import announce_owner, drop_other_incarnation
from coordinator.core.owner.sets import build_owner_header, persist_records, take_next_number
from coordinator.core.owner.state import SendMessage
from coordinator.core.records import AgentRecord


class CheckLeader:
    """An agent that obeys a later owner is not for this one. Its word ends no term: whoever says so could be anybody, and if it is
    true our next write to the control topic fails."""

    def handle(self, context: Context) -> bool:
        message, rev = context.message, context.state.rev
        known = message.known_rev if isinstance(message, Rejected) else 0
        if max(message.header.owner_rev, known) <= rev:
            return True
        seen = f"it says that term {max(message.header.owner_rev, known)} has begun, after {rev}"
        refuse_claim(
            context.state, message.agent, context.now, context.out, what="later term claimed", about=seen
        )
        return False


class RegisterAgent:
    """A known incarnation is announced to; a new one is stored first, then announced to (`owner_members.registered`)."""

    def handle(self, context: Context) -> bool:
        if not isinstance(context.message, Hello):
            return True
        state, message = context.state, context.message
        known = state.members.get(message.agent)
        if known is None or known.incarnation != message.incarnation:
            if self._has_room(context, message):
                self._store_registration(context, message)
        elif known.durable:
            announce_owner(state, known, context.out)
        return False

    @staticmethod
    def _has_room(context: Context, message: Hello) -> bool:
        """One registration of a name at a time, and not more agents than can be."""
        state, known = context.state, context.state.members.get(message.agent)
        if max(len(message.agent), len(message.incarnation)) > LONGEST_NAME:
            refuse_claim(
                state, message.agent[:40], context.now, context.out, what="name refused", about="too long"
            )
            return False
        if known is not None:
            return known.durable
        if len(state.members) < state.config.agents:
            return True
        seen = f"{len(state.members)} agents are known, and no more may be (coordination.agents)"
        refuse_claim(state, message.agent, context.now, context.out, what="too many agents", about=seen)
        return False

    @staticmethod
    def _store_registration(context: Context, message: Hello) -> None:
        state, now = context.state, context.now
        epoch = take_next_number(state)
        state.members[message.agent] = Member(message.agent, message.incarnation, epoch, now, durable=False)
        record = AgentRecord(message.agent, message.incarnation, epoch)
        persist_records(state, [record], now, context.out, agent=(message.agent, epoch))


class CheckMember:
    """A stranger is told that nobody knows it: it begins anew. One whose registration is under way is not heard yet."""

    def handle(self, context: Context) -> bool:
        state, message = context.state, context.message
        member = state.members.get(message.agent)
        if member is not None and member.durable:
            context.known = member
            return True
        state.dropped["unknown agent"] += 1
        if member is None:
            superseded = Superseded(build_owner_header(state, message.header.agent_epoch))
            context.out.append(SendMessage(message.agent, superseded))
        return False


class CheckTerm:
    """An agent that still obeys an earlier owner is announced to. A rejection has said all it has to say by now."""

    def handle(self, context: Context) -> bool:
        state, message, member = context.state, context.message, context.member
        if message.header.owner_rev >= state.rev:
            return not isinstance(message, Rejected)
        if message.header.agent_epoch == member.agent_epoch:
            announce_owner(state, member, context.out)
        else:
            drop_other_incarnation(state, member, message.header.agent_epoch, context.out)
        return False
