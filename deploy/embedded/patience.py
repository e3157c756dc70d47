"""Limits that adapt to a busy machine: a process that gets a tenth of a core needs ten times as long, and is not hung.

What would begin work anew when a limit is over, or give up, counts the time that it could have had: on processors that are wanted
ten times over ten seconds count as one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MAX_PRESSURE = 30.0
"""More than so many times longer nothing is waited for."""


def measure_pressure() -> float:
    """Return how many times over the processors of this machine are wanted just now: from 1 to MOST."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_PRESSURE, max(1.0, max(os.getloadavg()[0], _count_runnable_threads()) / cores))


def _count_runnable_threads() -> float:
    """Return how many threads want a processor at this moment; the load average follows slowly. 0 where it cannot be seen."""
    try:
        return float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 0.0


def scale_timeout(seconds: float) -> float:
    """Return a limit of `seconds` as it is on the machine as it is now."""
    return seconds * measure_pressure()


class AdaptiveTimeout:
    """Lasts `seconds` of a machine with time to spare, from the last `renew` on. `now`: monotonic seconds."""

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
        """Something went on: begin to count anew."""
        self._spent, self._last, self._began = 0.0, self._now(), self._now()

    @property
    def waited(self) -> float:
        """Seconds by the clock since the last `renew`."""
        return self._now() - self._began

    def is_over(self) -> bool:
        """Tell whether it has run out. Ask often: what passed since the last time counts by the pressure of now."""
        now = self._now()
        self._spent += (now - self._last) / self._pressure()
        self._last = now
        return self._spent > self._seconds
