"""The tickets that order events of different lanes with a common unique value.

Each unique index of a target table has a map: folded value → ticket of the last event that gives or
takes the value. To register, an event reads the ticket to wait for and replaces it by its own. An event
is released as soon as its lane has committed it, and a lane commits its events in order, so one id for
each lane shows what is released:

- A value's holders, in event order, each wait for the holder before, or follow it in the same lane's
  order.
- So the last holder is released after all others, and its ticket alone shows whether the value is free.
- A wait is always for a smaller id, and a lane takes its events in order, so no cycle of waits can form.

Nothing waits here: a lane sees in `Lane._collect_items` that its next event must wait, and waits in
`LaneGroup._wait_for_lanes` (consumer/attempt/lane_group.py).

docs/adr/0011-a-lane-s-commit-releases.md has the reasons against counts and sets of ids. There is no
condition and no mutex here: the core is single-threaded (tests, model).
consumer/attempt/drivers/threads.py (`ThreadSignals`) has one mutex around it, taken once for each chunk of
events, and one condition for each lane; one for each value would cost more than the row.
"""

from __future__ import annotations

from consumer.ordering.model import ChangeId

Ticket = tuple[ChangeId, int]
"""(event id, its lane): an event has one, for all unique values that it gives or takes."""
ValueHolders = dict[bytes, Ticket]
"""Folded value of a unique index → ticket of its last event."""

BEFORE_ALL_EVENTS: ChangeId = (-1, 0)
"""Less than every event's id."""
SWEEP_THRESHOLD = 20_000


class TicketTable:
    """All tickets of one attempt. They are of one topic, and end with the attempt."""

    def __init__(self, lanes: int, *, sweep: int = SWEEP_THRESHOLD) -> None:
        """`lanes`: number of lanes. `sweep`: number of kept values at which free ones are looked for."""
        self._released: list[ChangeId] = [BEFORE_ALL_EVENTS] * lanes
        self._indexes: dict[tuple[str, str], ValueHolders] = {}
        self._sweep = self._sweep_at = sweep

    def __len__(self) -> int:
        """Return the number of values with a last event that is not released yet."""
        return sum(
            not self.is_released(ticket) for held in self._indexes.values() for ticket in held.values()
        )

    @property
    def kept(self) -> int:
        """The number of values in memory, including free ones that were not swept yet."""
        return sum(map(len, self._indexes.values()))

    def get_holders(self, table: str, index: str) -> ValueHolders:
        """Return the map of a unique index of the target table "schema.name"."""
        return self._indexes.setdefault((table, index), {})

    def register(self, holders: ValueHolders, value: bytes, ticket: Ticket) -> Ticket | None:
        """Make `ticket` the last one of `value`; return the ticket to wait for.

        None if the value is free, or if its holder is in the same lane, which is ordered in itself.
        """
        last = holders.get(value)
        holders[value] = ticket
        if last is None or last[1] == ticket[1] or self._released[last[1]] >= last[0]:
            return None
        return last

    def is_released(self, ticket: Ticket) -> bool:
        """Return whether the event of the ticket is released."""
        return self._released[ticket[1]] >= ticket[0]

    def release(self, lane: int, event: ChangeId) -> None:
        """Release all events of `lane` up to `event`: they are committed."""
        self._released[lane] = event

    def forget_free_values(self) -> None:
        """Forget the free values, once there are enough of them to make the search cheap for each."""
        if self.kept < self._sweep_at:
            return
        released = self._released
        for holders in self._indexes.values():
            for value in [value for value, (event, lane) in holders.items() if released[lane] >= event]:
                del holders[value]
        self._sweep_at = max(self._sweep, 2 * self.kept)
