"""Time limits that adapt to a busy machine: a process that gets a tenth of a core is slow by a factor
of ten, not hung.

Code that restarts work, or gives up, when a limit is over counts the time that its work could have had:
if the demand for processors is ten times what the machine has, ten seconds count as one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MAX_PRESSURE = 30.0
"""The largest factor by which a limit is extended."""


def measure_pressure() -> float:
    """Return the present demand for this machine's processors, as a multiple of their number: from 1 to
    MAX_PRESSURE.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_PRESSURE, max(1.0, max(os.getloadavg()[0], _count_runnable_threads()) / cores))


def _count_runnable_threads() -> float:
    """Return how many threads are runnable at this moment; 0 if that is unknown. (The load average
    follows slowly.)
    """
    try:
        return float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 0.0


def scale_timeout(seconds: float) -> float:
    """Return a limit of `seconds`, extended by the machine's present load."""
    return seconds * measure_pressure()


class AdaptiveTimeout:
    """A limit of `seconds` on an idle machine, counted from the last `renew`. `now`: monotonic seconds."""

    def __init__(
        self,
        seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        pressure: Callable[[], float] = measure_pressure,
    ) -> None:
        self._seconds, self._now, self._pressure = seconds, now, pressure
        self._spent, self._last, self._began = 0.0, now(), now()

    def renew(self) -> None:
        """Start counting again, because there was progress."""
        self._spent, self._last, self._began = 0.0, self._now(), self._now()

    @property
    def waited(self) -> float:
        """Seconds by the clock since the last `renew`."""
        return self._now() - self._began

    def is_over(self) -> bool:
        """Return whether the limit is over.

        Call it often: the time since the last call counts by the present load.
        """
        now = self._now()
        self._spent += (now - self._last) / self._pressure()
        self._last = now
        return self._spent > self._seconds
