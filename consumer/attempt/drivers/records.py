"""The records that an attempt is given, and those that it must read from Kafka itself; the same for every driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from consumer.attempt import effects as fx
from consumer.attempt.reader import Slice

ReadMissing = Callable[[int, int], Iterable[Slice]]
"""(start, upto) → the records of the topic in [start, upto), from Kafka itself."""


class AttemptRecords:
    """`slices`: what the attempt was given. Both methods return None at the end of what they read."""

    def __init__(self, slices: Iterable[Slice], read_missing: ReadMissing) -> None:
        self._slices = iter(slices)
        self._read_missing = read_missing
        self._missing: Iterator[Slice] | None = None

    def next_slice(self) -> Slice | None:
        return next(self._slices, None)

    def next_missing(self, effect: fx.ReadMissing) -> Slice | None:
        if self._missing is None:
            self._missing = iter(self._read_missing(effect.start, effect.upto))
        records = next(self._missing, None)
        if records is None:
            self._missing = None
        return records
