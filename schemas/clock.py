"""The wall clock, in the unit of events and records. Waits are measured by the monotonic clock instead."""

from __future__ import annotations

import time


def read_clock_ms() -> int:
    """Return the milliseconds since 1970 (UTC)."""
    return time.time_ns() // 1_000_000
