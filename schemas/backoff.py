"""Back-off: the wait before a failed action is retried. Pure: the caller passes the time in.

The pause doubles with each consecutive failure, up to a limit, and starts again from the first one
after a quiet time. The caller reports why and how long it waits (a log line, a status, an event): no
retry is silent. Randomness is the caller's task, too: a caller that shares the failed service with many
others varies the pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

_MOST_DOUBLINGS = 60


def pause_after(failures: int, first: float, longest: float = inf) -> float:
    """Return the seconds to wait after the `failures`-th consecutive failure; 0 without any."""
    return min(longest, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) if failures else 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The back-off of one retried action. Times are seconds of one monotonic clock."""

    first: float
    """The first pause."""
    longest: float
    """The longest pause."""
    quiet: float = inf
    """Seconds since the last failure or start after which a failure counts as the first one."""
    failures: int = 0
    """Consecutive failures so far."""
    since: float = -inf
    """Time of the last failure or start."""

    def with_start(self, now: float) -> Backoff:
        """Return the back-off after a start at `now`: the quiet time then counts from there, for long
        runs between failures.
        """
        return replace(self, since=now)

    def with_failure(self, now: float) -> Backoff:
        """Return the back-off after a failure at `now`."""
        failures = 1 if now - self.since >= self.quiet else self.failures + 1
        return replace(self, failures=failures, since=now)

    @property
    def pause(self) -> float:
        return pause_after(self.failures, self.first, self.longest)

    @property
    def next_at(self) -> float:
        """The time from which a retry is allowed; always, before the first failure."""
        return self.since + self.pause if self.failures else -inf
