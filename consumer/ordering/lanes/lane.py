"""A lane as a state machine without I/O: when to collect, commit and wait, and what follows an error.

```
                queue_items, drain_to            released
 ┌─────────────┐ ──────────▶ ┌────────────┐ ◀────────── ┌────────────────┐
 │ WaitForWork │             │ collecting │ ──────────▶ │ WaitForTickets │  (collected: committed)
 └─────────────┘ ◀────────── └────────────┘    wait     └────────────────┘
        ▲     nothing more     commit │ ▲ record_applied, handle_failure
        │                             ▼ │
        │                      ┌────────────┐
        └───────────────────── │ ApplyBatch │  failed: pause and retry, halve in event order,
                               └────────────┘  quarantine one event
```

The boxes are the effects of `choose_effect()`. The caller (attempt/lane_group.py) asks for one, carries it
out and reports the outcome. Between an ApplyBatch and `record_applied()` or `handle_failure()` it may only
call `build_batch`, `queue_items`, `drain_to`, `request_commit` and `push_collected`. `PendingBatches`
decides what follows an error, batches.py builds the batches.

After an error a pending batch is divided *by event order*, and each half is reduced again and writes its own
progress. Halves of the net rows would show states that never existed, and no progress row could describe
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from consumer.errors import (
    RefusedError,
    ServerSilentError,
    TransientError,
    UniqueViolationError,
    UnitStoppedError,
)
from consumer.ordering.dispatch import LaneItem
from consumer.ordering.lanes.batches import LaneBatch, PendingBatch, QuarantinedKeys, build_batch, moves_key
from consumer.ordering.model import ChangeId, QuarantineEntry
from consumer.ordering.netchange import may_be_anew
from consumer.ordering.progress import LaneMark
from consumer.ordering.reasons import format_refusal
from consumer.ordering.tickets import Ticket, TicketTable
from schemas.backoff import pause_after
from schemas.problems import Problem


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """The limits of a lane."""

    max_gather: int = 10_000
    """Events in a transaction (1: row-at-a-time replay)."""
    max_bytes: int = 16 * 2**20
    """Bytes of their wire JSON."""
    max_pending: int = 50_000
    """Events given to the lanes and not yet committed, above which the attempt stops reading."""
    max_waits: float = 0.02
    """Share of the events that may have to wait for another lane. Above it, one transaction of all lanes
    applies them; 1.0: never."""
    tries: int = 6  # consecutive failures of a batch, with halves, before the error is raised
    whole: int = 2  # of these, the number with the whole batch before it is divided
    pause: float = 0.05  # seconds before the second try; doubles up to max_pause
    max_pause: float = 2.0


class PendingBatches:
    """The batches of lane `number` that are not committed yet, in event order; the first of `waiting`
    is applied.
    """

    def __init__(
        self, number: int, limits: LaneLimits, held: QuarantinedKeys, *, replace: bool, unfit: Problem | None
    ) -> None:
        """`replace`, `unfit`: see Lane."""
        self.waiting: list[PendingBatch] = []
        self._number, self._limits, self._held = number, limits, held
        self._replace, self._unfit = replace, unfit
        self.pause_s = 0.0
        """Seconds to wait before the first batch is tried (again)."""
        self._failures = 0
        self._batch: LaneBatch | None = None
        """The first pending batch, as built; it is tried again as it is unless it changes."""

    def build_batch(self) -> LaneBatch:
        """Build the first pending batch, or return it as it was built."""
        if self._batch is None:
            self._batch = build_batch(self.waiting[0], self._number, self._held)
        return self._batch

    def remove_committed(self) -> PendingBatch:
        """Remove the first batch, which is committed, and return it."""
        pending = self.waiting.pop(0)
        self._failures, self.pause_s = 0, 0.0
        if self._batch is not None:
            self._held.record_commit(self._batch)
            self._batch = None
        return pending

    def handle_failure(self, error: Exception) -> None:
        """Choose the retry of the rolled-back batch.

        Raises `error`, or UnitStoppedError, if the lane cannot continue.
        """
        pending = self.waiting[0]
        if isinstance(error, UniqueViolationError):
            self._handle_violation(pending, error)
        elif isinstance(error, RefusedError):
            self._handle_refusal(pending, error)
        elif isinstance(error, TransientError) and not isinstance(error, ServerSilentError):
            self._failures += 1
            self.pause_s = pause_after(self._failures, self._limits.pause, self._limits.max_pause)
            if self._failures >= self._limits.tries:
                raise error
            pending = self.waiting[0] = replace(pending, tries=pending.tries + 1)
            if pending.tries >= self._limits.whole:
                self._halve_batch(pending)
        else:
            raise error

    def _halve_batch(self, pending: PendingBatch) -> None:
        """Replace the batch by its halves, by event order; a single item is not divided."""
        items = pending.items
        if len(items) > 1:
            middle = len(items) // 2
            self._replace_first(PendingBatch(items[:middle]), PendingBatch(items[middle:], pending.end))

    def _replace_first(self, *batches: PendingBatch) -> None:
        """Replace the first batch, which is then built anew."""
        self.waiting[0:1] = batches
        self._batch = None

    def _handle_refusal(self, pending: PendingBatch, error: RefusedError) -> None:
        if len(pending.items) > 1:
            self._halve_batch(pending)
            return
        if self._unfit and not pending.refused and not isinstance(error, UniqueViolationError):
            place = f"the target refuses the row at offset {pending.items[0][0].id[0]}"
            raise UnitStoppedError.from_problem(self._unfit.add_place(place)) from error
        refused = _choose_refused_parts(pending, error)
        self._replace_first(replace(pending, refused=refused, displacing=False))

    def _handle_violation(self, pending: PendingBatch, error: UniqueViolationError) -> None:
        """Retry a unique violation once as transient; then displace the other row, or refuse the event.

        Rows of a snapshot that are written in place cannot pass a unique value to each other; replaced
        rows can. So the second try replaces the existing rows.
        """
        replaces_rows = pending.replaces_rows or any(map(may_be_anew, self.build_batch().nets))
        pending = replace(pending, violations=pending.violations + 1, replaces_rows=replaces_rows)
        if pending.displacing or (pending.violations > 1 and not self._replace):
            self._handle_refusal(pending, error)
        else:
            self._replace_first(replace(pending, displacing=pending.violations > 1))


def _choose_refused_parts(pending: PendingBatch, error: RefusedError) -> dict[int, str]:
    """Return the parts of the batch's single event to quarantine next, with the reason. Raises `error`
    if all are.

    The target does not report which half of a key move it refuses. So the delete is tried without the
    insert first, then the insert without the delete.
    """
    change, plan, _key, _waits = pending.items[0]
    tried, why = pending.refused, format_refusal(error)
    if not moves_key(change, plan):
        if tried:
            raise error
        return {change.id[1]: why}
    if not tried:
        return {1: why}
    if 0 not in tried:
        return {0: why}
    if 1 not in tried:
        return {0: tried[0], 1: why}
    raise error


@dataclass(frozen=True, slots=True)
class ApplyBatch:
    """Effect: after `pause` seconds, apply `Lane.build_batch()` in one transaction.

    Then call `record_applied()` or `handle_failure(error)`.
    """

    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitForTickets:
    """Effect: ask the holders of `waits` to commit and wait until they are released; then call
    `choose_effect()` again.
    """

    waits: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """Effect: there is nothing to do until items are queued.

    `drained`: the drain mark is reached. `wrote`: this lane has written it.
    """

    drained: bool = False
    wrote: bool = False


LaneEffect = ApplyBatch | WaitForTickets | WaitForWork


class Lane:
    """The state of lane `number`."""

    def __init__(
        self,
        number: int,
        tickets: TicketTable,
        limits: LaneLimits,
        held: Sequence[QuarantineEntry] = (),
        *,
        replace: bool = True,
        unfit: Problem | None = None,
    ) -> None:
        """`held`: quarantine entries of the unit. `replace`: `conflicts: replace`, otherwise quarantine.

        `unfit`: why the target may refuse rows that must not be quarantined; the unit stops before such
        a row.
        """
        self.number = number
        self._tickets, self._limits = tickets, limits
        self._queue: deque[LaneItem] = deque()
        self._collected: list[LaneItem] = []
        self._bytes = 0
        self._pending = PendingBatches(number, limits, QuarantinedKeys(held), replace=replace, unfit=unfit)
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

    def push_collected(self) -> None:
        """Commit the collected items instead of waiting for more (memory is short)."""
        self._push = True

    @property
    def busy(self) -> bool:
        """True if `choose_effect()` may return anything but WaitForWork, or WaitForWork(drained=True)
        for the first time.
        """
        return bool(
            self._queue
            or self._pending.waiting
            or self._end is not None
            or (self._collected and self._is_commit_due())
        )

    def choose_effect(self) -> LaneEffect:
        """Return the next effect."""
        if not self._pending.waiting:
            waits = self._collect_items()
            if self._collected and (waits or self._is_commit_due()):
                self._close_batch()
            elif waits:
                return WaitForTickets(waits)
        if self._pending.waiting:
            return ApplyBatch(self._pending.pause_s)
        self._push = False
        return self._wait_for_work()

    def _wait_for_work(self) -> WaitForWork:
        """Return that nothing is to be done; a drain ends with that, once."""
        if self._end is None or self._collected:
            return WaitForWork()
        self._end = None
        return WaitForWork(drained=True, wrote=self._wrote)

    def build_batch(self) -> LaneBatch:
        """Build the first pending batch. The costly part; accesses only this lane."""
        return self._pending.build_batch()

    def record_applied(self) -> int:
        """Release the events of the committed batch; return their number.

        The caller holds the mutex of the tickets.
        """
        pending = self._pending.remove_committed()
        self._wrote = pending.end is not None
        last = pending.items[-1][0].id
        self._tickets.release(self.number, last)
        if self._commit_requests:
            self._commit_requests = {event for event in self._commit_requests if event > last}
        return len(pending.items)

    def handle_failure(self, error: Exception) -> None:
        """Choose the retry of the rolled-back batch. Raises `error` if the lane cannot continue."""
        self._pending.handle_failure(error)

    def _collect_items(self) -> tuple[Ticket, ...]:
        """Collect items from the queue; return the tickets for which the head of the queue must wait, if
        any.
        """
        queue, collected, commit_requests = self._queue, self._collected, self._commit_requests
        limit, max_bytes = self._limits.max_gather, self._limits.max_bytes
        size, ready = self._bytes, self._tickets.is_released
        while queue and len(collected) < limit and size < max_bytes:
            item = queue[0]
            if item[3]:
                waits = tuple(wait for wait in item[3] if not ready(wait))
                if waits:
                    self._bytes = size
                    return waits
            collected.append(queue.popleft())
            size += len(item[0].wire)
            if commit_requests and item[0].id in commit_requests:
                break
        self._bytes = size
        return ()

    def _is_commit_due(self) -> bool:
        """Return whether the collected items are committed now although more could follow."""
        if (
            len(self._collected) >= self._limits.max_gather
            or self._bytes >= self._limits.max_bytes
            or self._push
        ):
            return True
        if self._commit_requests and any(
            event <= self._collected[-1][0].id for event in self._commit_requests
        ):
            return True
        return self._end is not None and not self._queue

    def _close_batch(self) -> None:
        end = None if self._queue else self._end
        self._pending.waiting.append(PendingBatch(self._collected, end))
        self._collected, self._bytes = [], 0
