"""A lane as a pure state machine: what to gather, when to commit, when to wait, what to do after an error.

```
          feed, drain                  released
 ┌──────┐ ──────────▶ ┌───────────┐ ◀────────── ┌─────────┐
 │ IDLE │             │ GATHERING │ ──────────▶ │ WAITING │   (all it gathered before is committed)
 └──────┘ ◀────────── └───────────┘    wait     └─────────┘
    ▲  nothing more     commit │ ▲ applied, failed
    │                          ▼ │
    │                    ┌──────────┐
    └─────────────────── │ APPLYING │  failed: again after a pause, halves by event order, a single event quarantined
                         └──────────┘
```
The shell (attempt/lane_group.py) asks `next()` for the effect, carries it out and says how it
went. Between Apply and `applied()` or `failed()` nothing else may be called but `batch`, `feed`, `drain`, `ask`, `push`.
What an error leads to is decided in segments.py, and what is applied is put together in batches.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from consumer.ordering.dispatch import LaneItem
from consumer.ordering.lanes.batches import LaneBatch, QuarantinedKeys, Segment
from consumer.ordering.lanes.limits import LaneLimits
from consumer.ordering.lanes.segments import LaneSegments
from consumer.ordering.locks import LockTable, Wait
from consumer.ordering.model import ChangeId, QuarantineEntry
from consumer.ordering.progress import LaneMark


@dataclass(frozen=True, slots=True)
class ApplySegment:
    """Effect: after `pause` seconds, apply `Lane.batch()` in one transaction; then say `applied()` or `failed(error)`."""

    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitForTickets:
    """Effect: block until `waits` are released (asking the holders to commit); then ask `next()` again."""

    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """Effect: nothing to do until fed. `drained`: the drain mark is reached; `wrote`: and written by this lane."""

    drained: bool = False
    wrote: bool = False


LaneEffect = ApplySegment | WaitForTickets | WaitForWork


class Lane:
    """The state of lane `number`."""

    def __init__(
        self,
        number: int,
        locks: LockTable,
        limits: LaneLimits,
        held: Sequence[QuarantineEntry] = (),
        *,
        replace: bool = True,
        unfit: str = "",
    ) -> None:
        """`held`: quarantine entries of the unit. `replace`: `conflicts: replace`, else quarantine. `unfit`: why the target may refuse a row of which
        none is to be held ("…seen…: remedy"): then the unit stops in front of it."""
        self.number = number
        self._locks, self._limits = locks, limits
        self._queue: deque[LaneItem] = deque()
        self._gathered: list[LaneItem] = []
        self._bytes = 0
        self._segments = LaneSegments(number, limits, QuarantinedKeys(held), replace=replace, unfit=unfit)
        self._end: LaneMark | None = None
        self._wrote = False
        self._wanted: set[ChangeId] = set()
        self._push = False

    def queue_items(self, items: list[LaneItem]) -> None:
        """Queue items (event order)."""
        self._queue.extend(items)

    def drain_to(self, mark: LaneMark) -> None:
        """Apply all that was fed and stand at `mark`; `next()` then says Idle(drained=True)."""
        self._end, self._wrote = mark, False

    def request_commit(self, event: ChangeId) -> None:
        """Another lane waits for `event`: commit as soon as it is gathered."""
        self._wanted.add(event)

    def push_gathered(self) -> None:
        """Commit what is there instead of waiting for more (memory is short)."""
        self._push = True

    @property
    def busy(self) -> bool:
        """Tell whether `next()` may say anything but Idle, or Idle(drained=True) for the first time."""
        return bool(
            self._queue
            or self._segments.waiting
            or self._end is not None
            or (self._gathered and self._is_commit_due())
        )

    def choose_effect(self) -> LaneEffect:
        """Say what to do now."""
        if not self._segments.waiting:
            waits = self._gather_items()
            if self._gathered and (waits or self._is_commit_due()):
                self._close_segment()
            elif waits:
                return WaitForTickets(waits)
        if self._segments.waiting:
            return ApplySegment(self._segments.compute_pause())
        self._push = False
        if self._end is not None and not self._gathered:
            self._end, idle = None, WaitForWork(drained=True, wrote=self._wrote)
            return idle
        return WaitForWork()

    def build_batch(self) -> LaneBatch:
        """Return what is to be applied now: the net change of the first segment. The costly part; touches only this lane."""
        return self._segments.build_batch()

    def record_applied(self) -> int:
        """The batch is committed: its events are released (the shell holds the locks' mutex). Returns their number."""
        segment = self._segments.remove_committed()
        self._wrote = segment.end is not None
        last = segment.items[-1][0].id
        self._locks.release(self.number, last)
        if self._wanted:
            self._wanted = {event for event in self._wanted if event > last}
        return len(segment.items)

    def handle_failure(self, error: Exception) -> None:
        """The batch was rolled back: decide what is tried next. Raises `error` when the lane cannot go on."""
        self._segments.handle_failure(error)

    def _gather_items(self) -> tuple[Wait, ...]:
        """Move items from the queue to the gather; return what the head of the queue must wait for, if that stops it."""
        queue, gathered, wanted = self._queue, self._gathered, self._wanted
        limit, max_bytes = self._limits.max_gather, self._limits.max_bytes
        size, ready = self._bytes, self._locks.is_released
        while queue and len(gathered) < limit and size < max_bytes:
            item = queue[0]
            if item[3]:
                waits = tuple(wait for wait in item[3] if not ready(wait))
                if waits:
                    self._bytes = size
                    return waits
            gathered.append(queue.popleft())
            size += len(item[0].wire)
            if wanted and item[0].id in wanted:
                break
        self._bytes = size
        return ()

    def _is_commit_due(self) -> bool:
        """Tell whether what is gathered is committed now, though nothing stops it from growing."""
        if (
            len(self._gathered) >= self._limits.max_gather
            or self._bytes >= self._limits.max_bytes
            or self._push
        ):
            return True
        if self._wanted and any(event <= self._gathered[-1][0].id for event in self._wanted):
            return True
        return self._end is not None and not self._queue

    def _close_segment(self) -> None:
        end = None if self._queue else self._end
        self._segments.waiting.append(Segment(self._gathered, end))
        self._gathered, self._bytes = [], 0
