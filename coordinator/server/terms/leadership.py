"""The leader as far as this coordinator knows, which it tells agents and operators. Safe to read from any thread."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.control.events import Heard, WriteConfirmed
from coordinator.server.operators.api import LeaderView
from coordinator.transport.events import LeaderInfo


class Leadership:
    """`leader`: who began the last term that is known of. `confirmed`, `heard`: when our own term, or another's, was last known to be
    alive; set from any thread, ahead of the messages that wait: an owner that is busy is not one that may have been replaced."""

    def __init__(
        self, owner_lease: float, clock: Callable[[], float], tell: Callable[[LeaderInfo], None]
    ) -> None:
        """`tell`: is told whom agents are to ask."""
        self._owner_lease, self._clock, self._tell = owner_lease, clock, tell
        self.leader: LeaderView | None = None
        self.confirmed = WriteConfirmed(0, 0.0)
        self.heard = Heard(0, 0.0)
        self._since = 0.0

    def change_leader(self, leader: LeaderView | None, rev: int = 0) -> None:
        """Tell agents (and operators, by `leader`) whom to ask. Streams end unless it is this coordinator."""
        self.leader, self._since = leader, self._clock()
        if leader is None:
            self._tell(LeaderInfo(rev))
        else:
            self._tell(LeaderInfo(leader.rev, leader.address, leader.rest, leader.am_i))

    def find_leader(self, now: float) -> LeaderView | None:
        """Return who leads, with the time since then; None where nothing was heard of it for a lease.

        So two coordinators never name two leaders for longer than that: the one that no longer leads has not been confirmed
        since, and of one that is dead nobody hears.
        """
        leader = self.leader
        if leader is None or now >= self._get_alive_time(leader) + self._owner_lease:
            return None
        since = round(now - self._since, 3)
        return LeaderView(leader.rev, leader.name, leader.address, leader.rest, since, leader.am_i)

    def _get_alive_time(self, leader: LeaderView) -> float:
        """Return when `leader` last was known to lead: its own term when it was confirmed, another's when it was heard."""
        if not leader.am_i:
            return self.heard.at if self.heard.rev == leader.rev else float("-inf")
        confirmed = self.confirmed
        return max(self._since, confirmed.at if confirmed.rev == leader.rev else self._since)
