"""The claim of a leader to its term. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TermClaim:
    """The time for which a leader leads, and whether it may still send messages. Times are the leader's
    seconds.
    """

    confirmed_at: float
    """The latest time at which this coordinator certainly was the leader."""
    began: float = 0.0
    """When the term began."""
    floor: int = 0
    """The time of day (ms) when the term began; 0: not known."""
    silent: bool = False
    """Whether the claim has not been confirmed for so long that no messages may be sent."""
    stepped_down: bool = False
    ends_on_violation: bool = True
    """Whether a step that violates an invariant may end the term (`invariants`)."""

    def confirm(self, at: float) -> None:
        """Note that this coordinator was the leader at this time."""
        self.confirmed_at = max(self.confirmed_at, at)

    def update_silence(self, now: float, leader_lease: float) -> bool:
        """Return whether no messages may be sent now."""
        self.silent = now >= self.confirmed_at + leader_lease
        return self.silent

    def step_down(self) -> None:
        """End the term."""
        self.stepped_down = True

    def may_end_for_violation(self, now: float, lease: float) -> bool:
        """Return whether a violated invariant may end the term now: every agent has a lease of it."""
        return self.ends_on_violation and now >= self.began + lease
