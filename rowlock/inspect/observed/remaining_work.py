"""The lines of a wait that show how much is left, how fast it shrinks, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PROGRESS_LINE_EVERY_S = 10.0
"""Seconds between two lines of one wait that differ in their figures alone."""


class RemainingWork:
    """The events that a wait had left when they were first read, and when it was last shown."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._wait = ""
        self._began_s = self._shown_s = 0.0
        self._first = 0

    def is_line_due(self, wait: str) -> bool:
        """Return whether the next line about a wait is to be shown now: at once if the wait is a new one."""
        now_s = self._clock_s()
        if wait == self._wait and now_s < self._shown_s + PROGRESS_LINE_EVERY_S:
            return False
        self._wait, self._shown_s = wait, now_s
        return True

    def format_line(self, wait: str, events: int) -> str | None:
        """Return the next line about a wait; None: the last one is recent enough.

        The rate is that since the first reading, or since there were more events than ever before.
        """
        now_s = self._clock_s()
        if events > self._first:
            self._began_s, self._first = now_s, events
        if not self.is_line_due(wait):
            return None
        return f"{wait}: {events:,} events left{self._describe_rate(now_s, events)}"

    def _describe_rate(self, now_s: float, events: int) -> str:
        done, elapsed_s = self._first - events, now_s - self._began_s
        if done <= 0 or elapsed_s <= 0:
            return ""
        rate = done / elapsed_s
        return f", {rate:,.0f} events/s, about {events / rate:,.0f} s left"
