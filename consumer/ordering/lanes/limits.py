"""The limits of a lane's batches and retries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """The limits of a lane."""

    max_gather: int = 10_000
    """Events in a transaction (1: row-at-a-time replay)."""
    max_bytes: int = 16 * 2**20
    """Bytes of their wire JSON."""
    max_pending: int = 50_000
    """Events given to the lanes and not yet committed, above which the attempt stops reading."""
    tries: int = 6  # consecutive failures of a segment, with halves, before the error is raised
    whole: int = 2  # of these, the number with the whole segment before it is divided
    pause: float = 0.05  # seconds before the second try; doubles up to max_pause
    max_pause: float = 2.0
