"""The locks that order events of different lanes which share a unique value (design.md §6 Lock).

An array of maps, slot by hash of the table name; key = (table, unique index, folded value). A lock holds a wait count, the
last event id and the ids not yet released. Registering raises the count and returns the last id as the one to wait
for; releasing lowers it and at zero destroys the lock. A wait is always for a smaller id, so there is no deadlock.
No condition and no mutex live here: the core is single-threaded (tests, model); consumer/lane_threads.py holds one mutex around it.
"""

from __future__ import annotations

from consumer.model import EventId

LockKey = tuple[int, bytes]
"""(number of the unique index, from `LockTable.index`, folded value)."""


class Lock:
    """One unique value that is in flight. Made without __init__: thousands a second are created."""

    __slots__ = ("count", "held", "key", "lane", "last", "slot")
    count: int  # events registered and not yet released
    held: set[EventId]  # registered and not yet released
    key: LockKey
    lane: int  # the lane of `last`
    last: EventId
    slot: dict[LockKey, Lock]


Ticket = Lock
"""What an item has registered with, to be released after its lane's commit."""
Wait = tuple[Lock, EventId, int]
"""(lock, event id to wait for, the lane that holds it)."""


class LockTable:
    """All locks of one task attempt."""

    def index(self, table: str, index: str) -> tuple[dict[LockKey, Lock], int]:
        """Return (slot, index number) of a unique index of the target table "schema.name"."""
        raise NotImplementedError

    def register(
        self, slot: dict[LockKey, Lock], key: LockKey, event: EventId, lane: int
    ) -> tuple[Ticket, Wait | None]:
        """Take a ticket. Wait is None when nobody or the same lane holds the value (a lane is ordered in itself)."""
        raise NotImplementedError

    @staticmethod
    def ready(wait: Wait) -> bool:
        """Whether the event waited for is released."""
        return wait[1] not in wait[0].held

    def release(self, event: EventId, tickets: tuple[Ticket, ...]) -> None:
        """Release all tickets of `event`."""
        raise NotImplementedError
