"""The context that handlers share: one message on its way through the chain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from coordinator.core.members import Member
from coordinator.core.messages import UnitStatus, Up
from coordinator.core.owner.state import OwnerDecision, OwnerState


@dataclass(slots=True)
class Context:
    """`now`: owner's monotonic seconds. `out`: effects so far, in order.

    `known`: the sender, from `CheckMember` on. `news`: statuses that are not just what they were, from `CollectStatistics` on.
    """

    state: OwnerState
    message: Up
    now: float
    out: list[OwnerDecision]
    known: Member | None = None
    news: list[UnitStatus] = field(default_factory=list)

    @property
    def member(self) -> Member:
        """The sender. Only for handlers behind `CheckMember`."""
        if self.known is None:
            raise RuntimeError("a handler asks for the sender before CheckMember")
        return self.known


class Handler(Protocol):
    """One duty. Handlers have no state of their own."""

    def handle(self, context: Context) -> bool:
        """Do it; returns whether the message goes on to the next handler."""
