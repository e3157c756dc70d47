"""The times at which an agent sends heartbeats and checkpoints. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HeartbeatTimes:
    """The times of an agent's next messages, in seconds of its monotonic clock."""

    interval: float = 1.0
    """Seconds between two heartbeats, given by the leader."""
    next_heartbeat: float = float("-inf")
    next_checkpoint: float = float("-inf")

    def set_interval(self, interval: float) -> None:
        self.interval = interval

    def make_heartbeat_due(self, now: float) -> None:
        """Send the next heartbeat now."""
        self.next_heartbeat = min(self.next_heartbeat, now)

    def begin_heartbeat(self, now: float) -> bool:
        """Return whether a heartbeat is due, and begin the time until the next one."""
        if now < self.next_heartbeat:
            return False
        self.next_heartbeat = now + self.interval
        return True

    def begin_checkpoint(self, now: float, units: int) -> bool:
        """Return whether an agent with so many units may send a checkpoint, and begin the time until the
        next one.
        """
        if now < self.next_checkpoint:
            return False
        self.next_checkpoint = now + compute_checkpoint_interval(units)
        return True


def compute_checkpoint_interval(units: int) -> float:
    """Return the seconds between two checkpoints of an agent with so many units: about a hundred units'
    progress a second.

    With many units their progress is only sent with the heartbeats: the leader computes pipeline
    progress no more often than that.
    """
    return max(0.2, units / 100)
