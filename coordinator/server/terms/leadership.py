"""The leader as far as this coordinator knows, reported to agents and operators. Safe to read from any
thread.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.control.events import Heard, WriteConfirmed
from coordinator.server.operators.api import LeaderView
from coordinator.transport.events import LeaderInfo


class Leadership:
    """The leading coordinator, and the time at which it was last known to lead.

    `confirmed` (of this coordinator's own term) and `heard` (of another's) are set from any thread,
    ahead of the messages that wait, so that a busy leader is not mistaken for a replaced one.
    """

    def __init__(
        self, leader_lease: float, clock: Callable[[], float], notify: Callable[[LeaderInfo], None]
    ) -> None:
        """`notify` receives the coordinator that agents have to ask."""
        self._leader_lease, self._clock, self._notify = leader_lease, clock, notify
        self.leader: LeaderView | None = None
        """The coordinator that began the last known term."""
        self.confirmed = WriteConfirmed(0, 0.0)
        self.heard = Heard(0, 0.0)
        self._since = 0.0

    def record_confirmation(self, confirmed: WriteConfirmed) -> None:
        """Note the last confirmed write of this coordinator's own term."""
        self.confirmed = confirmed

    def record_sign_of_life(self, heard: Heard) -> None:
        """Note when another coordinator, which leads, was last heard of."""
        self.heard = heard

    def change_leader(self, leader: LeaderView | None, rev: int = 0) -> None:
        """Report a new leader to agents, and to operators by `leader`. Streams end unless it is this
        coordinator.
        """
        self.leader, self._since = leader, self._clock()
        if leader is None:
            self._notify(LeaderInfo(rev))
        else:
            self._notify(LeaderInfo(leader.rev, leader.address, leader.rest, leader.am_i))

    def find_leader(self, now: float) -> LeaderView | None:
        """Return the leader, with the time since it leads, or None if it was not heard of for the time
        of a lease.

        So two coordinators never name two leaders for longer than that: a former leader has not been
        confirmed since, and a dead one is not heard of.
        """
        leader = self.leader
        if leader is None or now >= self._get_alive_time(leader) + self._leader_lease:
            return None
        since = round(now - self._since, 3)
        return LeaderView(leader.rev, leader.name, leader.address, leader.rest, since, leader.am_i)

    def _get_alive_time(self, leader: LeaderView) -> float:
        """Return when `leader` was last known to lead: for this coordinator the last confirmation, for
        another the last sign of life.
        """
        if not leader.am_i:
            return self.heard.at if self.heard.rev == leader.rev else float("-inf")
        confirmed = self.confirmed
        return max(self._since, confirmed.at if confirmed.rev == leader.rev else self._since)
