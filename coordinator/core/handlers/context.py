"""The context that handlers share while one message passes through the chain."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.leader.state import LeaderDecision, LeaderState
from coordinator.core.members import Member
from coordinator.core.messages import UnitStatus, Up


@dataclass(slots=True)
class Context:
    """One message of an agent, and what the handlers have found out about it so far."""

    state: LeaderState
    message: Up
    now: float
    """Seconds of the leader's monotonic clock."""
    out: list[LeaderDecision]
    """Effects so far, in order."""
    known: Member | None = None
    """The sender, after `check_member`."""
    news: list[UnitStatus] = field(default_factory=list)
    """Statuses that differ from what is known, after `collect_statistics`."""

    def identify_sender(self, member: Member) -> None:
        """Let the next handlers see `member` as the sender, as it is now."""
        self.known = member

    def replace_message(self, message: Up) -> None:
        """Let the next handlers see `message` in place of what the agent has sent."""
        self.message = message

    @property
    def member(self) -> Member:
        """The sender. Raises RuntimeError in handlers before `check_member`."""
        if self.known is None:
            raise RuntimeError("a handler asks for the sender before check_member")
        return self.known
