"""Back-off: the wait before something that failed is tried again. Pure: the caller passes the time in.

The pause doubles while failure follows failure, up to a limit, and starts again from the first after a quiet time. Who waits says why
and for how long (a log line, a status, an event): no retry is silent. Chance is the caller's, too: who shares what failed with many
others varies the pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

_MOST_DOUBLINGS = 60


def pause_after(failures: int, first: float, longest: float = inf) -> float:
    """Return the seconds to wait after the `failures`-th failure in a row; 0 without any."""
    return min(longest, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) if failures else 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The back-off of one thing that is tried again. Times are seconds of one monotonic clock.

    `first`, `longest`: pauses. `quiet`: seconds from the last failure, or from the last start, after which a failure counts as the
    first one. `failures`: in a row so far. `since`: time of the last failure or start.
    """

    first: float
    longest: float
    quiet: float = inf
    failures: int = 0
    since: float = -inf

    def with_start(self, now: float) -> Backoff:
        """Return it after a start at `now`: quiet is counted from there, for what may run for long between failures."""
        return replace(self, since=now)

    def with_failure(self, now: float) -> Backoff:
        """Return it after a failure at `now`."""
        failures = 1 if now - self.since >= self.quiet else self.failures + 1
        return replace(self, failures=failures, since=now)

    def with_recovery(self) -> Backoff:
        """Return it as it was before all failures."""
        return replace(self, failures=0, since=-inf)

    @property
    def pause(self) -> float:
        return pause_after(self.failures, self.first, self.longest)

    @property
    def next_at(self) -> float:
        """The time from which it may be tried again: at any time, before the first failure."""
        return self.since + self.pause if self.failures else -inf
