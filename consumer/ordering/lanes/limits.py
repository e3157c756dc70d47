"""The limits of a lane: how much it takes at a time, and how often it tries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`max_gather`: events a transaction (1: row-at-a-time replay); `max_bytes`: of their wire JSON; `max_pending`: events
    handed to the lanes and not yet committed, above which the attempt reads no further."""

    max_gather: int = 10_000
    max_bytes: int = 16 * 2**20
    max_pending: int = 50_000
    tries: int = 6  # failures in a row of one gather, halves included, before its transient error is raised
    whole: int = 2  # of these, with the whole gather before it is divided
    pause: float = 0.05  # seconds before the second try; doubles up to max_pause
    max_pause: float = 2.0
