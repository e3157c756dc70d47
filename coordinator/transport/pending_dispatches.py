"""The dispatches of one stream that wait for an answer: a pure table, for counters and logs.

The cores need no such table, because they repeat what is still true. People do: it shows how many
instructions were answered, and how the others ended. An entry ends in exactly one way: replied, timed
out, superseded by a later dispatch for the same unit, or its channel was closed.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PendingDispatch:
    """A dispatch without an answer. `deadline`: monotonic seconds of the caller."""

    op_seq: int
    unit: str
    deadline: float


@dataclass(slots=True)
class PendingDispatches:
    """The dispatches without an answer, and how the others ended."""

    timeout: float = 5.0
    """Seconds until a dispatch counts as timed out."""
    ended: Counter[str] = field(default_factory=Counter)
    """The number of entries by how they ended; `late` counts the answers to entries that had already
    ended.
    """
    _waiting: dict[int, PendingDispatch] = field(default_factory=dict)
    _order: deque[PendingDispatch] = field(default_factory=deque)
    _by_unit: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def register_dispatch(self, op_seq: int, unit: str, now: float) -> None:
        """Add a dispatch that is about to be sent. An unanswered one for the same unit is superseded."""
        before = self._by_unit.get(unit)
        if before is not None:
            self._end_dispatch(before, "superseded")
        entry = PendingDispatch(op_seq, unit, now + self.timeout)
        self._waiting[op_seq] = entry
        self._order.append(entry)
        self._by_unit[unit] = op_seq

    def mark_answered(self, op_seq: int) -> bool:
        """Note an answer, and return whether its dispatch was waiting. Repeated answers count as late."""
        known = self._end_dispatch(op_seq, "replied") is not None
        if not known:
            self.ended["late"] += 1
        return known

    def close_all(self) -> None:
        """End all entries, because the stream has ended."""
        for op_seq in list(self._waiting):
            self._end_dispatch(op_seq, "channel closed")
        self._order.clear()

    def sweep_overdue(self, now: float) -> list[PendingDispatch]:
        """End the overdue entries and return them. Cheap: only the oldest are examined."""
        over: list[PendingDispatch] = []
        while self._order and self._order[0].deadline <= now:
            ended = self._end_dispatch(self._order.popleft().op_seq, "timed out")
            if ended is not None:
                over.append(ended)
        return over

    def _end_dispatch(self, op_seq: int, how: str) -> PendingDispatch | None:
        entry = self._waiting.pop(op_seq, None)
        if entry is None:
            return None
        self.ended[how] += 1
        if self._by_unit.get(entry.unit) == op_seq:
            del self._by_unit[entry.unit]
        return entry
