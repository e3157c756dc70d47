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

After an error (findings 16 and 17) the gather is divided *by event order*, each half is reduced anew and writes its
own progress: halves of net rows would show states that never were, and no progress row could say where they stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from consumer.errors import RefusedError, TransientError, UniqueViolationError, UnitStoppedError
from consumer.ordering.dispatch import Item, TablePlan, halves
from consumer.ordering.fold import folded_text
from consumer.ordering.locks import LockTable, Wait
from consumer.ordering.model import EventId, Held, Reduced, RowChange
from consumer.ordering.netchange import anew, may_be_anew
from consumer.ordering.progress import Mark
from schemas.backoff import pause_after


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`max_gather`: events a transaction (1: row-at-a-time replay); `max_bytes`: of their wire JSON; `max_pending`: events
    handed to the lanes and not yet committed, above which the attempt reads no further."""

    max_gather: int = 10_000
    max_bytes: int = 16 * 2**20
    max_pending: int = 50_000
    tries: int = 6  # failures in a row of one gather, halves included, before its transient error is raised
    whole: int = 2  # of these, with the whole gather before it is divided
    pause: float = 0.05  # seconds before the second try; doubles up to max_pause
    max_pause: float = 2.0


HeldKey = tuple[str, str]
"""(target table "schema.name", folded key as text)."""
HeldAt = tuple[int, int, str]
"""Of an entry of the quarantine: (offset, part, exact key as text)."""


@dataclass(slots=True)
class Batch:
    """The changes of one target transaction, with `mark` as the lane's new progress (written last).

    `displacing`: None, or JSON to hand to `Transaction.apply(displacing=…)`. `held`: for `Transaction.hold`. `closed`: entries, also of `held`,
    that a row of a snapshot replaces: they leave the quarantine behind that. `places`: what it leaves held of the keys that it touches.
    `events`: (first, last) ids of what is applied; None for a pure progress write. `count`: events in it.
    """

    nets: list[Reduced]
    mark: Mark
    held: list[Held] = field(default_factory=list)
    closed: list[EventId] = field(default_factory=list)
    places: dict[HeldKey, list[HeldAt]] = field(default_factory=dict)
    displacing: str | None = None
    events: tuple[EventId, EventId] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class Apply:
    """Effect: after `pause` seconds, apply `Lane.batch()` in one transaction; then say `applied()` or `failed(error)`."""

    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Effect: block until `waits` are released (asking the holders to commit); then ask `next()` again."""

    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Effect: nothing to do until fed. `drained`: the drain mark is reached; `wrote`: and written by this lane."""

    drained: bool = False
    wrote: bool = False


Effect = Apply | WaitFor | Idle
HELD_BEHIND = "held behind offset"
"""How the error of an entry begins that only queues behind a refused one."""


@dataclass(slots=True)
class _Segment:
    """A stretch of items that is applied in one transaction, and what has been tried on it."""

    items: list[Item]
    end: Mark | None = None  # the drain mark, when this is the last segment before it
    tries: int = 0
    violations: int = 0
    anew: bool = False  # a snapshot's rows replace what the target has of their keys
    displacing: bool = False
    refused: str | None = None  # of a single event: why it goes to quarantine
    batch: Batch | None = None  # built; an untouched segment is tried again with the same


class Lane:
    """The state of lane `number`."""

    def __init__(
        self,
        number: int,
        locks: LockTable,
        limits: LaneLimits,
        held: Sequence[Held] = (),
        *,
        replace: bool = True,
        unfit: str = "",
    ) -> None:
        """`held`: quarantine entries of the unit. `replace`: `conflicts: replace`, else quarantine. `unfit`: why the target may refuse a row of which
        none is to be held ("…seen…: remedy"): then the unit stops in front of it."""
        self.number = number
        self.held: dict[HeldKey, list[HeldAt]] = {}  # → its entries; the first one, if any, holds the key
        for entry in held:
            self.held.setdefault((entry.table, entry.folded), []).append(_at(entry))
        self._locks, self._limits, self._replace, self._unfit = locks, limits, replace, unfit
        self._queue: deque[Item] = deque()
        self._gathered: list[Item] = []
        self._bytes = 0
        self._segments: list[_Segment] = []
        self._end: Mark | None = None
        self._wrote = False
        self._failures = 0
        self._wanted: set[EventId] = set()
        self._push = False

    def feed(self, items: list[Item]) -> None:
        """Queue items (event order)."""
        self._queue.extend(items)

    def drain(self, mark: Mark) -> None:
        """Apply all that was fed and stand at `mark`; `next()` then says Idle(drained=True)."""
        self._end, self._wrote = mark, False

    def ask(self, event: EventId) -> None:
        """Another lane waits for `event`: commit as soon as it is gathered."""
        self._wanted.add(event)

    def push(self) -> None:
        """Commit what is there instead of waiting for more (memory is short)."""
        self._push = True

    @property
    def busy(self) -> bool:
        """Tell whether `next()` may say anything but Idle, or Idle(drained=True) for the first time."""
        return bool(
            self._queue or self._segments or self._end is not None or (self._gathered and self._due())
        )

    def next(self) -> Effect:
        """Say what to do now."""
        if not self._segments:
            waits = self._gather()
            if self._gathered and (waits or self._due()):
                self._close()
            elif waits:
                return WaitFor(waits)
        if self._segments:
            return Apply(self._pause())
        self._push = False
        if self._end is not None and not self._gathered:
            self._end, idle = None, Idle(drained=True, wrote=self._wrote)
            return idle
        return Idle()

    def batch(self) -> Batch:
        """Return what is to be applied now: the net change of the first segment. The costly part; touches only this lane."""
        segment = self._segments[0]
        if segment.batch is None:
            segment.batch = self._build(segment)
        return segment.batch

    def applied(self) -> int:
        """The batch is committed: its events are released (the shell holds the locks' mutex). Returns their number."""
        segment = self._segments.pop(0)
        self._failures = 0
        self._wrote = segment.end is not None
        if segment.batch is not None:
            for place, entries in segment.batch.places.items():
                if entries:
                    self.held[place] = entries
                else:
                    self.held.pop(place, None)
        last = segment.items[-1][0].id
        self._locks.release(self.number, last)
        if self._wanted:
            self._wanted = {event for event in self._wanted if event > last}
        return len(segment.items)

    def failed(self, error: Exception) -> None:
        """The batch was rolled back: decide what is tried next. Raises `error` when the lane cannot go on."""
        segment = self._segments[0]
        if isinstance(error, UniqueViolationError):
            self._violated(segment, error)
        elif isinstance(error, RefusedError):
            self._refused(segment, error)
        elif isinstance(error, TransientError):
            self._failures += 1
            segment.tries += 1
            if self._failures >= self._limits.tries:
                raise error
            if segment.tries >= self._limits.whole:
                self._halve(segment)
        else:
            raise error

    def _gather(self) -> tuple[Wait, ...]:
        """Move items from the queue to the gather; return what the head of the queue must wait for, if that stops it."""
        queue, gathered, wanted = self._queue, self._gathered, self._wanted
        limit, max_bytes = self._limits.max_gather, self._limits.max_bytes
        size, ready = self._bytes, self._locks.ready
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

    def _due(self) -> bool:
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

    def _close(self) -> None:
        end = None if self._queue else self._end
        self._segments.append(_Segment(self._gathered, end))
        self._gathered, self._bytes = [], 0

    def _pause(self) -> float:
        return pause_after(self._failures, self._limits.pause, self._limits.max_pause)

    def _build(self, segment: _Segment) -> Batch:
        items = segment.items
        first, last = items[0][0].id, items[-1][0].id
        batch = Batch([], segment.end or _mark(items[-1][0]), events=(first, last), count=len(items))
        if segment.displacing:
            batch.displacing = _describe(self.number, first, last)
        if segment.refused is not None:
            change, plan, key, _waits = items[0]
            for part, folded in _parts(change, plan, key):
                behind = _place(batch, self.held, plan, folded)
                _hold(batch, behind, part, _held(part, plan, folded, segment.refused))
            return batch
        groups: dict[TablePlan, list[RowChange]] = {}
        some = bool(self.held) or any(item[0].refused is not None for item in items)
        for item in self._without_held(items, batch) if some else items:
            plan = item[1]
            if plan in groups:
                groups[plan].append(item[0])
            else:
                groups[plan] = [item[0]]
        batch.nets = [plan.reducer.reduce(changes) for plan, changes in groups.items()]
        if segment.anew:
            batch.nets = [anew(net) for net in batch.nets]
        return batch

    def _without_held(self, items: list[Item], batch: Batch) -> list[Item]:
        """Return `items` without those that are refused and the changes of held keys, which are recorded in `batch.held`."""
        free: list[Item] = []
        for item in items:
            change, plan, key, _waits = item
            for part, folded in _parts(change, plan, key):
                behind = _place(batch, self.held, plan, folded)
                if behind and part.snapshot:
                    _close(batch, behind, _key_text(part, plan))
                if behind:  # by what may be the same key to the target: a retry then knows of both
                    error = f"{HELD_BEHIND} {behind[0][0]}"
                    _hold(batch, behind, part, _held(part, plan, folded, error))
                elif part.refused is not None:
                    _hold(batch, behind, part, _held(part, plan, folded, part.refused))
                else:
                    free.append((part, plan, folded, ()))
        return free

    def _halve(self, segment: _Segment) -> None:
        """Replace the segment by its halves, by event order; a single item stays whole."""
        items = segment.items
        if len(items) > 1:
            middle = len(items) // 2
            self._segments[0:1] = [_Segment(items[:middle]), _Segment(items[middle:], segment.end)]

    def _refused(self, segment: _Segment, error: RefusedError) -> None:
        if len(segment.items) > 1:
            self._halve(segment)
        elif segment.refused is None:
            if self._unfit and not isinstance(error, UniqueViolationError):
                raise UnitStoppedError(
                    f"the target refuses the row of offset {segment.items[0][0].id[0]}, and {self._unfit}"
                ) from error
            segment.refused, segment.displacing, segment.batch = str(error), False, None
        else:
            raise error

    def _violated(self, segment: _Segment, error: UniqueViolationError) -> None:
        """A unique violation is tried once more as transient; then the other row is displaced, or the event refused.

        Rows of a snapshot that are written in place cannot pass a value on from one to another, and replaced rows can: with the second
        try they replace what is there.
        """
        segment.violations += 1
        if not segment.anew and segment.batch is not None and any(map(may_be_anew, segment.batch.nets)):
            segment.anew, segment.batch = True, None
        if segment.displacing or (segment.violations > 1 and not self._replace):
            self._refused(segment, error)
        elif segment.violations > 1:
            segment.displacing, segment.batch = True, None


def _describe(lane: int, first: EventId, last: EventId) -> str:
    return msgspec.json.encode({"lane": lane, "from": first, "to": last}).decode()


def _parts(change: RowChange, plan: TablePlan, key: bytes) -> list[tuple[RowChange, bytes]]:
    """Return the change, or its halves when it moves the key: each is held, or applied, under its own key."""
    before, after = change.before, change.after
    if before is None or after is None or plan.key_of(before) == plan.key_of(after):
        return [(change, key)]
    first, second = halves(change)
    return [(first, key), (second, plan.fold_key(after))]


def _place(
    batch: Batch, held: Mapping[HeldKey, Sequence[HeldAt]], plan: TablePlan, folded: bytes
) -> list[HeldAt]:
    """Return what is held of a key as the batch leaves it, so far; to be changed in place. `held`: before the batch."""
    place = (plan.name, folded_text(folded))
    if place not in batch.places:
        batch.places[place] = list(held.get(place, ()))
    return batch.places[place]


def _hold(batch: Batch, behind: list[HeldAt], part: RowChange, entry: Held) -> None:
    """Put a change into the quarantine, as `entry`, where `behind` is of its key; a snapshot's row takes the place of what is there."""
    if behind and part.snapshot:
        _close(batch, behind, entry.key)
    batch.held.append(entry)
    behind.append(_at(entry))


def _close(batch: Batch, behind: list[HeldAt], key: str) -> None:
    """Close what is held of the very `key`, and not of others that fold like it."""
    batch.closed += [(offset, part) for offset, part, of in behind if of == key]
    behind[:] = [entry for entry in behind if entry[2] != key]


def _at(entry: Held) -> HeldAt:
    return entry.offset, entry.part, entry.key


def _held(change: RowChange, plan: TablePlan, folded: bytes, error: str) -> Held:
    return Held(
        offset=change.id[0],
        part=change.id[1],
        table=plan.name,
        key=_key_text(change, plan),
        folded=folded_text(folded),
        event=change.wire.decode(),
        error=error,
        commit_ts_ms=change.ts_ms,
    )


def _key_text(change: RowChange, plan: TablePlan) -> str:
    row = change.after if change.before is None else change.before
    return msgspec.json.encode(plan.key(row) if row is not None else ()).decode()


def _mark(change: RowChange) -> Mark:
    """Return where a lane stands that has applied `change`."""
    return (change.id[0], change.position, change.gen, change.ts_ms)
