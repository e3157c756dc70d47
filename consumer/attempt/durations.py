"""Durations as histograms: how many were at most as long as each of some bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Upper bounds of the buckets in seconds; longer durations are in one more bucket."""


class Durations(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of durations. Reports of several add up."""

    counts: tuple[int, ...] = msgspec.field(name="counts", default=())
    """How many are in each bucket and not in an earlier one; buckets after the last are empty."""
    total_ms: int = msgspec.field(name="total_ms", default=0)

    def merge(self, other: Durations) -> Durations:
        """Return both together."""
        if not (self.counts and other.counts):
            return self if self.counts else other
        counts = tuple(map(sum, zip_longest(self.counts, other.counts, fillvalue=0)))
        return Durations(counts, self.total_ms + other.total_ms)

    def list_buckets(self) -> list[tuple[str, float]]:
        """Return (bound in seconds, number of durations up to it) of each bucket, as Prometheus has it."""
        found, upto = list[tuple[str, float]](), 0
        for bound, count in zip_longest((*map(str, BOUNDS_S), "+Inf"), self.counts, fillvalue=0):
            upto += count
            found.append((str(bound), upto))
        return found


NO_DURATIONS = Durations()


class DurationCounter:
    """Counts durations. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def add(self, seconds: float, number: int = 1) -> None:
        """Count a duration, `number` times. A negative one counts as 0: two clocks differ."""
        seconds = max(0.0, seconds)
        self._counts[bisect_left(BOUNDS_S, seconds)] += number
        self._total_s += seconds * number

    @property
    def durations(self) -> Durations:
        """The durations that were counted."""
        return Durations(_strip_zeros(self._counts), round(self._total_s * 1000))


def _strip_zeros(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the counts without the zeros at the end, so that a report is short."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return tuple(counts[:end])
