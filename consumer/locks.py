"""The locks that order events of different lanes which share a unique value (design.md §6 Lock).

An array of maps, slot by hash of the table name; key = (unique index of a table, folded value). A lock holds a wait
count, the last event id and the ids that are not released yet. Registering raises the count and returns the last id
as the one to wait for; releasing lowers it, and at zero the lock is destroyed. A wait is always for a smaller id and
a lane takes its events in order, so no cycle of waits can form.

No condition and no mutex live here: the core is single-threaded (tests, model). consumer/lane_threads.py holds one
mutex around it, once per chunk of events, and one condition per lane: per lock they would cost more than the row.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import xxhash

from consumer.model import EventId

LockKey = tuple[int, bytes]
"""(number of the unique index, from `LockTable.index`, folded value)."""

SLOTS = 64


class Lock(msgspec.Struct, gc=False, eq=False):
    """One unique value that is in flight (a Struct, because thousands a second are made).

    `count`: events registered and not yet released; `held`: their ids, kept from the second on (None: only `last`);
    `lane`: of `last`; `slot`: the map it stands in under `key`.
    """

    count: int
    held: set[EventId] | None
    key: LockKey
    lane: int
    last: EventId
    slot: dict[LockKey, Lock]

    def holds(self, event: EventId) -> bool:
        """Whether `event` is registered and not yet released."""
        if self.held is None:
            return self.count > 0 and self.last == event
        return event in self.held


Wait = tuple[Lock, EventId, int]
"""(lock, event id to wait for, the lane that holds it)."""


class LockTable:
    """All locks of one task attempt: locks do not reach across topics, and die with the attempt."""

    def __init__(self) -> None:
        self._slots: list[dict[LockKey, Lock]] = [{} for _ in range(SLOTS)]
        self._numbers: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return sum(len(slot) for slot in self._slots)

    def index(self, table: str, index: str) -> tuple[dict[LockKey, Lock], int]:
        """Return (slot, index number) of a unique index of the target table "schema.name"."""
        number = self._numbers.setdefault((table, index), len(self._numbers))
        return self._slots[xxhash.xxh3_64_intdigest(table.encode()) % SLOTS], number

    def register(
        self, slot: dict[LockKey, Lock], key: LockKey, event: EventId, lane: int
    ) -> tuple[Lock, Wait | None]:
        """Take a ticket on `key` for `event`, which goes to `lane`; return the lock and whom to wait for.

        The wait is None when nobody holds the value, or the same lane does: a lane is ordered in itself.
        """
        lock = slot.get(key)
        if lock is None:
            lock = slot[key] = Lock(1, None, key, lane, event, slot)
            return lock, None
        wait = (lock, lock.last, lock.lane) if lock.lane != lane else None
        if lock.held is None:
            lock.held = {lock.last, event}
        else:
            lock.held.add(event)
        lock.count += 1
        lock.last = event
        lock.lane = lane
        return lock, wait

    @staticmethod
    def ready(wait: Wait) -> bool:
        """Whether the event waited for is released."""
        return not wait[0].holds(wait[1])

    @staticmethod
    def release(held: Iterable[tuple[EventId, Iterable[Lock]]]) -> None:
        """Release, of each event, all its tickets; a lock that nobody holds any more is destroyed."""
        for event, tickets in held:
            for lock in tickets:
                if lock.count == 1:
                    lock.count = 0
                    del lock.slot[lock.key]
                    if lock.held is not None:
                        lock.held.clear()
                else:
                    lock.count -= 1
                    if lock.held is not None:  # always, with more than one
                        lock.held.discard(event)


def new_lock(slot: dict[LockKey, Lock], key: LockKey, event: EventId, lane: int) -> Lock:
    """Return a lock that `event` holds (not put into `slot`)."""
    return Lock(1, None, key, lane, event, slot)
