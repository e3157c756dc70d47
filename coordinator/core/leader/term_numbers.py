"""The numbers that a leader gives in its term, and the records that wait to be stored. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class PendingRecord(NamedTuple):
    """The decisions that wait for a Persist requested at `asked`."""

    asked: float
    unit: tuple[str, int] | None = None
    """(unit, assignment)."""
    agent: tuple[str, int] | None = None
    """(agent, agent_epoch)."""
    fence: tuple[str, int] | None = None
    """(unit, assignment of the fence)."""


@dataclass(slots=True)
class TermNumbers:
    """The counters of a term."""

    counter: int = 0
    """The highest number given as an assignment or agent epoch."""
    op_seq: int = 0
    """The number of the last message."""
    token: int = 0
    """The number of the last Persist."""
    waiting: dict[int, PendingRecord] = field(default_factory=dict)
    """The decisions that wait for a Persist, by its token."""

    def take_next(self) -> int:
        """Return a number that was never given before, to a unit or to an agent."""
        self.counter += 1
        return self.counter

    def skip_to(self, given: int) -> None:
        """Give only numbers above one that was given before this term."""
        self.counter = max(self.counter, given)

    def take_op_seq(self) -> int:
        self.op_seq += 1
        return self.op_seq

    def begin_persist(self, pending: PendingRecord) -> int:
        """Return the token of a new Persist, for which these decisions wait."""
        self.token += 1
        self.waiting[self.token] = pending
        return self.token

    def end_persist(self, token: int) -> PendingRecord:
        """Return the decisions that waited for a Persist."""
        return self.waiting.pop(token, PendingRecord(float("-inf")))
