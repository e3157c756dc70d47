"""The records that an attempt receives, and those that it reads from Kafka itself. Shared by all drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from consumer.attempt import effects as fx
from consumer.attempt.copies.keys import KeyComparison
from consumer.attempt.copies.keys_on_disk import ScratchKeys
from consumer.attempt.copies.snapshots import TableSnapshot
from consumer.attempt.readers.reader import RecordSlice
from consumer.errors import TransientError
from schemas.table.model import Key, Table

RangeReader = Callable[[int, int], Iterable[RecordSlice]]
"""(start, upto) → the records of the topic in [start, upto), read from Kafka."""
BeginFinder = Callable[[int, int | None], tuple[int, bytes] | None]
"""(after, hint) → see consumer.attempt.effects.FindBegin."""


SnapshotFinder = Callable[[int], TableSnapshot | None]
"""(after) → see consumer.attempt.effects.FindSnapshot. Raises ConsumerError if the source's definition
cannot be read."""


RestReader = Callable[[int], Iterable[RecordSlice]]
"""(start) → the topic's records from that offset on. Raises TransientError."""
SourceLookup = Callable[[Table, Sequence[Key]], Sequence[Key]]
"""(table, keys) → see consumer.attempt.effects.AskSource."""


def find_no_begin(_after: int, _hint: int | None) -> tuple[int, bytes] | None:
    """Return None: no copy is known."""
    return None


def find_no_snapshot(_after: int) -> TableSnapshot | None:
    """Return None: no snapshot is known."""
    return None


def read_nothing_after(_start: int) -> Iterable[RecordSlice]:
    """Return no records."""
    return ()


def refuse_source_lookup(table: Table, _keys: Sequence[Key]) -> Sequence[Key]:
    """Raise TransientError: this process cannot query the source."""
    raise TransientError(f"{table.db}.{table.name}: this process cannot query the source")


class AttemptRecords:
    """The records of one attempt. A read returns None at its end.

    `slices`: the records given to the attempt. `is_assigned`: called during long operations; returns False
    once the unit should end here.
    """

    def __init__(
        self,
        slices: Iterable[RecordSlice],
        read_missing: RangeReader,
        *,
        find_begin: BeginFinder = find_no_begin,
        find_snapshot: SnapshotFinder = find_no_snapshot,
        read_rest: RestReader = read_nothing_after,
        ask_source: SourceLookup = refuse_source_lookup,
        is_assigned: Callable[[], bool] = lambda: True,
    ) -> None:
        self._slices = iter(slices)
        self._read, self._read_rest, self._is_assigned = read_missing, read_rest, is_assigned
        self._ask_source = ask_source
        self._find_begin, self._find_snapshot = find_begin, find_snapshot
        self._missing: tuple[int, Iterator[RecordSlice]] | None = None
        self._again: tuple[int, Iterator[RecordSlice]] | None = None
        self._rest: Iterator[RecordSlice] | None = None

    def carry_out_effect(self, effect: fx.RecordEffect) -> Any:
        """Carry out an effect, and return its result."""
        match effect:
            case fx.NextSlice():
                return next(self._slices, None)
            case fx.ReadMissing():
                self._missing, records = self._read_next_slice(self._missing, effect)
                return records
            case fx.ReadPassed():
                return self._read_next_passed(effect)
            case fx.ReadRest():
                return self._read_next_after(effect)
            case fx.FindBegin():
                return self._find_begin(effect.after, effect.hint)
            case fx.FindSnapshot():
                return self._find_snapshot(effect.after)
            case fx.AskSource():
                self.go_on()
                return self._ask_source(effect.table, effect.keys)

    def _read_next_passed(self, effect: fx.ReadPassed) -> RecordSlice | None:
        self.go_on()
        self._again, records = self._read_next_slice(self._again, effect)
        return records

    def _read_next_after(self, effect: fx.ReadRest) -> RecordSlice | None:
        self.go_on()
        self._rest = self._rest or iter(self._read_rest(effect.start))
        records = next(self._rest, None)
        if records is None:
            self._rest = None
        return records

    def _read_next_slice(
        self, open_: tuple[int, Iterator[RecordSlice]] | None, effect: fx.ReadMissing | fx.ReadPassed
    ) -> tuple[tuple[int, Iterator[RecordSlice]] | None, RecordSlice | None]:
        """Continue the open reader if it began at the same offset; otherwise open another one."""
        if open_ is None or open_[0] != effect.start:
            open_ = effect.start, iter(self._read(effect.start, effect.upto))
        records = next(open_[1], None)
        return (None if records is None else open_), records

    def go_on(self) -> None:
        """Raise TransientError if the unit should end here."""
        if not self._is_assigned():
            raise TransientError("the unit was taken away from this process")


def open_keys(scratch: str) -> KeyComparison:
    """Return storage for the keys of a table. `scratch`: a folder; "" is the system's."""
    return ScratchKeys(Path(scratch) if scratch else None)
