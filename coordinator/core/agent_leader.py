"""The leader that an agent obeys, and the headers of the agent's messages to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.messages import Announce, Header


@dataclass(slots=True)
class ObeyedLeader:
    """The leader that an agent obeys. It is the one with the highest term that has announced itself."""

    name: str = ""
    rev: int = 0
    """The leader's term: the offset of its claim in the control topic; 0 before the first announcement."""
    agent_epoch: int = 0
    """The number of this incarnation of the agent, given by the leader; 0 before the first announcement."""
    seq: int = 0
    """The number of the last message sent in this incarnation."""

    @property
    def is_known(self) -> bool:
        """True once a leader has announced itself."""
        return self.agent_epoch > 0

    def build_header(self, assignment: int = 0) -> Header:
        """Return the header of the next message."""
        self.seq += 1
        return Header(self.rev, self.agent_epoch, assignment, self.seq)

    def is_contradicted(self, message: Announce) -> bool:
        """Return whether another leader announces itself for the term of this one."""
        return message.header.owner_rev == self.rev and message.owner != self.name

    def adopt_announcement(self, message: Announce) -> bool:
        """Obey the leader that announces itself, and return whether its term is a later one."""
        is_later = message.header.owner_rev > self.rev
        self.name, self.rev = message.owner, message.header.owner_rev
        self.agent_epoch = message.header.agent_epoch
        return is_later
