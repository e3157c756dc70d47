"""Dispatches that wait for their answer: a pure table, for counting and for logs.

The cores need no such table (they say again what still holds); people do: it shows how many instructions were answered,
how late, and where they got lost. An entry ends in exactly one way: replied, timed out, superseded by a later dispatch for
the same unit and agent, or its channel was closed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Waiting:
    """`deadline`: monotonic seconds, as the caller counts."""

    agent: str
    unit: str
    stream: int
    deadline: float


@dataclass(slots=True)
class Mailbox:
    """`ended`: how entries ended, by word; beside these `late`: answers to what was no longer waiting."""

    timeout: float = 5.0
    ended: Counter[str] = field(default_factory=Counter)
    _waiting: dict[tuple[str, int], Waiting] = field(default_factory=dict)
    _by_unit: dict[tuple[str, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, agent: str, stream: int, op_seq: int, unit: str, now: float) -> None:
        """A dispatch is about to be sent; an unanswered one for the same unit and agent is superseded."""
        before = self._by_unit.get((agent, unit))
        if before is not None:
            self._end(agent, before, "superseded")
        self._waiting[agent, op_seq] = Waiting(agent, unit, stream, now + self.timeout)
        self._by_unit[agent, unit] = op_seq

    def answered(self, agent: str, op_seq: int) -> bool:
        """Whether the answer was waited for. Dispatches are answered at most once; doubles count as late."""
        known = self._end(agent, op_seq, "replied") is not None
        if not known:
            self.ended["late"] += 1
        return known

    def closed(self, stream: int) -> int:
        """End everything that went down this stream; return how much that was."""
        lost = [key for key, entry in self._waiting.items() if entry.stream == stream]
        for agent, op_seq in lost:
            self._end(agent, op_seq, "channel closed")
        return len(lost)

    def sweep(self, now: float) -> list[Waiting]:
        """End and return what has waited too long. Cheap: entries are in the order of their deadlines."""
        over: list[tuple[str, int]] = []
        for key, entry in self._waiting.items():
            if entry.deadline > now:
                break
            over.append(key)
        return [ended for key in over if (ended := self._end(*key, "timed out")) is not None]

    def _end(self, agent: str, op_seq: int, how: str) -> Waiting | None:
        entry = self._waiting.pop((agent, op_seq), None)
        if entry is None:
            return None
        self.ended[how] += 1
        if self._by_unit.get((agent, entry.unit)) == op_seq:
            del self._by_unit[agent, entry.unit]
        return entry
