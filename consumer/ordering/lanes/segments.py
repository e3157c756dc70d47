"""The segments of a lane until they are committed: retried, halved, displacing another row, or
quarantined.

After an error a segment is divided *by event order*, and each half is reduced again and writes its own
progress. Halves of the net rows would show states that never existed, and no progress row could describe
them.
"""

from __future__ import annotations

from consumer.errors import RefusedError, TransientError, UniqueViolationError, UnitStoppedError
from consumer.ordering.lanes.batches import LaneBatch, QuarantinedKeys, Segment, build_batch, moves_key
from consumer.ordering.lanes.limits import LaneLimits
from consumer.ordering.netchange import may_be_anew
from schemas.backoff import pause_after


class LaneSegments:
    """The segments of lane `number` that are not committed yet, in event order; the first of `waiting`
    is applied.
    """

    def __init__(
        self, number: int, limits: LaneLimits, held: QuarantinedKeys, *, replace: bool, unfit: str
    ) -> None:
        """`replace`, `unfit`: see Lane."""
        self.waiting: list[Segment] = []
        self._number, self._limits, self._held = number, limits, held
        self._replace, self._unfit = replace, unfit
        self._failures = 0

    def compute_pause(self) -> float:
        """Return the seconds to wait before the first segment is tried (again)."""
        return pause_after(self._failures, self._limits.pause, self._limits.max_pause)

    def build_batch(self) -> LaneBatch:
        """Return the batch of the first segment."""
        segment = self.waiting[0]
        if segment.batch is None:
            segment.batch = build_batch(segment, self._number, self._held)
        return segment.batch

    def remove_committed(self) -> Segment:
        """Remove the first segment, with a batch that is committed, and return it."""
        segment = self.waiting.pop(0)
        self._failures = 0
        if segment.batch is not None:
            self._held.record_commit(segment.batch)
        return segment

    def handle_failure(self, error: Exception) -> None:
        """Choose the retry of the rolled-back batch.

        Raises `error`, or UnitStoppedError, if the lane cannot continue.
        """
        segment = self.waiting[0]
        if isinstance(error, UniqueViolationError):
            self._handle_violation(segment, error)
        elif isinstance(error, RefusedError):
            self._handle_refusal(segment, error)
        elif isinstance(error, TransientError):
            self._failures += 1
            segment.tries += 1
            if self._failures >= self._limits.tries:
                raise error
            if segment.tries >= self._limits.whole:
                self._halve_segment(segment)
        else:
            raise error

    def _halve_segment(self, segment: Segment) -> None:
        """Replace the segment by its halves, by event order; a single item is not divided."""
        items = segment.items
        if len(items) > 1:
            middle = len(items) // 2
            self.waiting[0:1] = [Segment(items[:middle]), Segment(items[middle:], segment.end)]

    def _handle_refusal(self, segment: Segment, error: RefusedError) -> None:
        if len(segment.items) > 1:
            self._halve_segment(segment)
            return
        if self._unfit and not segment.refused and not isinstance(error, UniqueViolationError):
            raise UnitStoppedError(
                f"the target refuses the row at offset {segment.items[0][0].id[0]}: {self._unfit}"
            ) from error
        segment.refused = _choose_refused_parts(segment, error)
        segment.displacing, segment.batch = False, None

    def _handle_violation(self, segment: Segment, error: UniqueViolationError) -> None:
        """Retry a unique violation once as transient; then displace the other row, or refuse the event.

        Rows of a snapshot that are written in place cannot pass a unique value to each other; replaced
        rows can. So the second try replaces the existing rows.
        """
        segment.violations += 1
        if (
            not segment.replaces_rows
            and segment.batch is not None
            and any(map(may_be_anew, segment.batch.nets))
        ):
            segment.replaces_rows, segment.batch = True, None
        if segment.displacing or (segment.violations > 1 and not self._replace):
            self._handle_refusal(segment, error)
        elif segment.violations > 1:
            segment.displacing, segment.batch = True, None


def _choose_refused_parts(segment: Segment, error: RefusedError) -> dict[int, str]:
    """Return the parts of the segment's single event to quarantine next, with the reason. Raises `error`
    if all are.

    The target does not report which half of a key move it refuses. So the delete is tried without the
    insert first, then the insert without the delete.
    """
    change, plan, _key, _waits = segment.items[0]
    tried, why = segment.refused, str(error)
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
