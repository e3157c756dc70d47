"""A lane as a state machine without I/O: when to collect, commit and wait, and what follows an error.

```
       queue_items, drain_to          released
 ┌──────┐ ──────────▶ ┌───────────┐ ◀────────── ┌─────────┐
 │ IDLE │             │ GATHERING │ ──────────▶ │ WAITING │   (all items collected before are committed)
 └──────┘ ◀────────── └───────────┘    wait     └─────────┘
    ▲  nothing more     commit │ ▲ record_applied, handle_failure
    │                          ▼ │
    │                    ┌──────────┐
    └─────────────────── │ APPLYING │  failed: pause and retry, halve in event order, quarantine one event
                         └──────────┘
```

The caller (attempt/lane_group.py) asks `choose_effect()` for the effect, carries it out and reports the
outcome. Between an ApplySegment and `record_applied()` or `handle_failure()` it may only call
`build_batch`, `queue_items`, `drain_to`, `request_commit` and `push_gathered`. segments.py decides what
follows an error, batches.py builds the batches.
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
    """Effect: after `pause` seconds, apply `Lane.build_batch()` in one transaction.

    Then call `record_applied()` or `handle_failure(error)`.
    """

    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitForTickets:
    """Effect: ask the holders of `waits` to commit and wait until they are released; then call
    `choose_effect()` again.
    """

    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """Effect: there is nothing to do until items are queued.

    `drained`: the drain mark is reached. `wrote`: this lane has written it.
    """

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
        """`held`: quarantine entries of the unit. `replace`: `conflicts: replace`, otherwise quarantine.

        `unfit`: why the target may refuse rows that must not be quarantined ("evidence: remedy"); the
        unit stops before such a row.
        """
        self.number = number
        self._locks, self._limits = locks, limits
        self._queue: deque[LaneItem] = deque()
        self._gathered: list[LaneItem] = []
        self._bytes = 0
        self._segments = LaneSegments(number, limits, QuarantinedKeys(held), replace=replace, unfit=unfit)
        self._end: LaneMark | None = None
        self._wrote = False
        self._commit_requests: set[ChangeId] = set()
        self._push = False

    def queue_items(self, items: list[LaneItem]) -> None:
        """Queue items, in event order."""
        self._queue.extend(items)

    def drain_to(self, mark: LaneMark) -> None:
        """Apply all queued items and move to `mark`; then `choose_effect()` returns
        WaitForWork(drained=True).
        """
        self._end, self._wrote = mark, False

    def request_commit(self, event: ChangeId) -> None:
        """Commit as soon as `event` is collected, because another lane waits for it."""
        self._commit_requests.add(event)

    def push_gathered(self) -> None:
        """Commit the collected items instead of waiting for more (memory is short)."""
        self._push = True

    @property
    def busy(self) -> bool:
        """True if `choose_effect()` may return anything but WaitForWork, or WaitForWork(drained=True)
        for the first time.
        """
        return bool(
            self._queue
            or self._segments.waiting
            or self._end is not None
            or (self._gathered and self._is_commit_due())
        )

    def choose_effect(self) -> LaneEffect:
        """Return the next effect."""
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
        """Return the batch of the first segment. The costly part; accesses only this lane."""
        return self._segments.build_batch()

    def record_applied(self) -> int:
        """Release the events of the committed batch; return their number.

        The caller holds the locks' mutex.
        """
        segment = self._segments.remove_committed()
        self._wrote = segment.end is not None
        last = segment.items[-1][0].id
        self._locks.release(self.number, last)
        if self._commit_requests:
            self._commit_requests = {event for event in self._commit_requests if event > last}
        return len(segment.items)

    def handle_failure(self, error: Exception) -> None:
        """Choose the retry of the rolled-back batch. Raises `error` if the lane cannot continue."""
        self._segments.handle_failure(error)

    def _gather_items(self) -> tuple[Wait, ...]:
        """Collect items from the queue; return the tickets for which the head of the queue must wait, if
        any.
        """
        queue, gathered, commit_requests = self._queue, self._gathered, self._commit_requests
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
            if commit_requests and item[0].id in commit_requests:
                break
        self._bytes = size
        return ()

    def _is_commit_due(self) -> bool:
        """Return whether the collected items are committed now although more could follow."""
        if (
            len(self._gathered) >= self._limits.max_gather
            or self._bytes >= self._limits.max_bytes
            or self._push
        ):
            return True
        if self._commit_requests and any(
            event <= self._gathered[-1][0].id for event in self._commit_requests
        ):
            return True
        return self._end is not None and not self._queue

    def _close_segment(self) -> None:
        end = None if self._queue else self._end
        self._segments.waiting.append(Segment(self._gathered, end))
        self._gathered, self._bytes = [], 0
