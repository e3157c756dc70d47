"""The configuration of an agent, and how it follows the active one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.messages import ConfigVersion, FileAnswer

TAKE_AGAIN = 5.0
"""Seconds between two attempts to load the active configuration, if the agent's file did not hold it."""


@dataclass(frozen=True, slots=True)
class ConfigAttempt:
    """An attempt to load the active configuration from the agent's file."""

    version: ConfigVersion
    retry_at: float
    """Time of the next attempt, in seconds of the agent's monotonic clock."""


@dataclass(slots=True)
class FollowedConfiguration:
    """The configuration of an agent that takes part in reloads."""

    version: ConfigVersion
    """The configuration under which newly given units run."""
    attempt: ConfigAttempt | None = None
    """The last attempt to load another one; None: it has the active configuration."""
    asked: int = 0
    """The number of the leader's last question about the agent's file."""
    file: FileAnswer | None = None
    """The last answer to a question about the agent's file."""

    def begin_attempt(self, active: ConfigVersion | None, now: float) -> bool:
        """Return whether to load the active configuration now. None: the leader does not know it."""
        if active is None or active == self.version:
            self.attempt = None
            return False
        if self.attempt is not None and self.attempt.version == active and now < self.attempt.retry_at:
            return False
        self.attempt = ConfigAttempt(active, now + TAKE_AGAIN)
        return True

    def begin_answer(self, asked: int) -> bool:
        """Return whether the leader asks a new question about the file."""
        is_new = asked > self.asked
        self.asked = max(asked, self.asked)
        return is_new

    def answer(self, file: FileAnswer) -> None:
        """Report the content of the file with each heartbeat."""
        self.file = file

    def adopt(self, version: ConfigVersion) -> None:
        """Run newly given units under this configuration."""
        self.version = version
