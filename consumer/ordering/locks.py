"""The locks that order events of different lanes which share a unique value (design.md §6 Lock).

A map per unique index of a target table: folded value → ticket of the last event that gives or takes the value. To
register is to read whom to wait for and to put one's own ticket in its place. An event is released as soon as its lane
has committed it, and a lane commits its events in order; so one id a lane says what is released:

- a value's holders, in event order, wait each for the one before it (another lane's), or are behind it in the lane's own order;
- so the last one is released after all others: its ticket alone tells whether the value is free ("wait count zero");
- a wait is always for a smaller id and a lane takes its events in order, so no cycle of waits can form.

Why no counts and no sets of ids as in design.md: docs/adr/0011-a-lane-s-commit-releases.md.

No condition and no mutex live here: the core is single-threaded (tests, model). consumer/attempt/lane_group.py holds one
mutex around it, once per chunk of events, and one condition per lane: per lock they would cost more than the row.
"""

from __future__ import annotations

from consumer.ordering.model import ChangeId

Ticket = tuple[ChangeId, int]
"""(event id, the lane that it goes to)."""
Wait = Ticket
"""The ticket of the event waited for."""
ValueHolders = dict[bytes, Ticket]
"""Folded value of a unique index → ticket of its last event."""

BEFORE_ALL_EVENTS: ChangeId = (-1, 0)
"""Below every event's id."""
SWEEP_THRESHOLD = 20_000


class LockTable:
    """All locks of one task attempt: locks do not reach across topics, and die with the attempt."""

    def __init__(self, lanes: int, *, sweep: int = SWEEP_THRESHOLD) -> None:
        """`lanes`: how many there are. `sweep`: values that are kept before the free ones are looked for."""
        self._released: list[ChangeId] = [BEFORE_ALL_EVENTS] * lanes
        self._indexes: dict[tuple[str, str], ValueHolders] = {}
        self._sweep = self._sweep_at = sweep

    def __len__(self) -> int:
        """Values whose last event is not released yet."""
        return sum(
            not self.is_released(ticket) for held in self._indexes.values() for ticket in held.values()
        )

    @property
    def kept(self) -> int:
        """Values in memory, free ones that were not swept yet among them."""
        return sum(map(len, self._indexes.values()))

    def get_holders(self, table: str, index: str) -> ValueHolders:
        """Return the map of a unique index of the target table "schema.name"."""
        return self._indexes.setdefault((table, index), {})

    def register(self, holders: ValueHolders, value: bytes, ticket: Ticket) -> Wait | None:
        """Make `ticket` the last one of `value`; return whom it must wait for.

        None when nobody holds the value any more, or the same lane does: a lane is ordered in itself.
        """
        last = holders.get(value)
        holders[value] = ticket
        if last is None or last[1] == ticket[1] or self._released[last[1]] >= last[0]:
            return None
        return last

    def is_released(self, wait: Wait) -> bool:
        """Tell whether the event waited for is released."""
        return self._released[wait[1]] >= wait[0]

    def release(self, lane: int, event: ChangeId) -> None:
        """Release all events of `lane` up to `event`: they are committed."""
        self._released[lane] = event

    def sweep_free_values(self) -> None:
        """Forget the values that are free, once there are enough of them for the search to cost little each."""
        if self.kept < self._sweep_at:
            return
        released = self._released
        for holders in self._indexes.values():
            for value in [value for value, (event, lane) in holders.items() if released[lane] >= event]:
                del holders[value]
        self._sweep_at = max(self._sweep, 2 * self.kept)
