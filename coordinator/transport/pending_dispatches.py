"""Dispatches that wait for their answer, of one stream: a pure table, for counting and for logs.

The cores need no such table (they say again what still holds); people do: it shows how many instructions were answered,
and where the others got lost. An entry ends in exactly one way: replied, timed out, superseded by a later dispatch for the
same unit, or its channel was closed.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PendingDispatch:
    """`deadline`: monotonic seconds, as the caller counts."""

    op_seq: int
    unit: str
    deadline: float


@dataclass(slots=True)
class PendingDispatches:
    """`ended`: how entries ended, by word; beside these `late`: answers to what was no longer waiting."""

    timeout: float = 5.0
    ended: Counter[str] = field(default_factory=Counter)
    _waiting: dict[int, PendingDispatch] = field(default_factory=dict)
    _order: deque[PendingDispatch] = field(default_factory=deque)
    _by_unit: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def register_dispatch(self, op_seq: int, unit: str, now: float) -> None:
        """A dispatch is about to be sent; an unanswered one for the same unit is superseded."""
        before = self._by_unit.get(unit)
        if before is not None:
            self._end_dispatch(before, "superseded")
        entry = PendingDispatch(op_seq, unit, now + self.timeout)
        self._waiting[op_seq] = entry
        self._order.append(entry)
        self._by_unit[unit] = op_seq

    def mark_answered(self, op_seq: int) -> bool:
        """Tell whether the answer was waited for. Dispatches are answered at most once; doubles count as late."""
        known = self._end_dispatch(op_seq, "replied") is not None
        if not known:
            self.ended["late"] += 1
        return known

    def close_all(self) -> None:
        """The stream has ended, and everything that waits with it."""
        for op_seq in list(self._waiting):
            self._end_dispatch(op_seq, "channel closed")
        self._order.clear()

    def sweep_overdue(self, now: float) -> list[PendingDispatch]:
        """End and return what has waited too long. Cheap: looks at the oldest only."""
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
