"""The ranges of a key sweep that a unit has passed and not yet compared
(docs/adr/0041-partition-retention.md).

The marker of a chunk shows which keys of its range exist: those that a `k` event or a row event after `since`
leaves. That stays right at every later offset, because every change is an event. So a unit need not compare
a range at its marker. It compares ranges between two batches, when all lanes are at one offset, for a part of
a second at a time; the table's own events wait no longer than that, however many rows a range has lost.

A `KeySweep` is what a process remembers of it. The unit's row in the target has the offset after which ranges
are not compared (`StoredDefinition.sweep_since`), from which the topic gives the same again. Without I/O.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer.attempt.copies.keys import KEYS_PER_PAGE
from consumer.attempt.copies.keys_on_disk import MAX_KEYS_IN_MEMORY
from consumer.attempt.copies.marker import CopyChunk, build_copy_chunk, is_key_marker
from consumer.attempt.copies.window import note_changes
from consumer.attempt.readers.reader import (
    KeysRead,
    KeySweepBegun,
    ReaderItem,
    RowBatch,
    TopicNotice,
)
from consumer.ordering.model import TargetTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import make_key_function
from schemas.table.model import Key

QUIET_S = 60.0
"""Seconds without a marker after which a unit no longer waits for ranges: later ones are compared at their
markers."""


@dataclass(slots=True)
class PassedRange:
    """The range of a chunk whose marker, at the offset `at`, the unit has passed."""

    chunk: CopyChunk
    at: int
    count: int
    """The number of the chunk's keys."""
    keys: set[Key] | None
    """The target's keys of the chunk; None: they were too many to keep, and are read again."""
    after: Key | None
    """The target's key up to which the range is compared."""
    doubted: list[Key] = field(default_factory=list)
    """Keys of the target up to `after` that are not among `keys`, and were not looked at since."""
    deleted: int = 0

    def note_keys(self, keys: set[Key]) -> None:
        """Note the keys of the chunk, which have been read again."""
        self.keys = keys

    def note_page(self, page: Sequence[Key]) -> None:
        """Note the next keys of the target."""
        living = self.keys or set()
        self.after = page[-1]
        self.doubted = [key for key in page if key not in living]

    def take_doubted_keys(self, most: int) -> list[Key]:
        """Return the next doubted keys, at most `most`; they are looked at now."""
        some = self.doubted[:most]
        self.doubted = self.doubted[most:]
        return some

    def count_deleted(self, rows: int) -> None:
        self.deleted += rows


@dataclass(slots=True)
class KeySweep:
    """The ranges that a unit has passed, in their order, and the rows that later events leave.

    `upto`: the offset of the last record that it knows. `ongoing`: a key sweep has begun, and its last marker
    has not come.
    """

    upto: int
    ongoing: bool = True
    ranges: deque[PassedRange] = field(default_factory=deque)
    _read: list[tuple[int, Sequence[Key]]] = field(default_factory=list)
    _rows: dict[Key, int] = field(default_factory=dict)  # → the offset of the event that leaves the row
    _offset: int = -1
    _quiet_since_s: float = math.inf

    def note_taken(self, taken: ReaderItem, topic: str, active: ActiveDefinition) -> None:
        """Take an item of the reader, in topic order."""
        self.upto = taken.mark[0]
        if isinstance(taken, RowBatch):
            self._note_rows(taken, active.target)
        elif isinstance(taken, KeysRead):
            self._read.append((self.upto, taken.keys))
        elif isinstance(taken, KeySweepBegun):
            self.ongoing = True
        elif isinstance(taken, TopicNotice) and is_key_marker(taken.event):
            self._note_marker(build_copy_chunk(topic, taken.event), active)

    def _note_rows(self, batch: RowBatch, target: TargetTable) -> None:
        key_of = make_key_function(target)
        for change in batch.changes:
            self._offset = change.id[0]
            note_changes((change,), key_of, self._note_key)

    def _note_key(self, key: Key, exists: bool) -> None:
        if exists:
            self._rows[key] = self._offset
        else:
            self._rows.pop(key, None)

    def _note_marker(self, chunk: CopyChunk | None, active: ActiveDefinition) -> None:
        if chunk is None:
            return
        keys = {key for offset, some in self._read if offset > chunk.since for key in some}
        self._read = []
        is_kept = not self.ranges or sum(each.count for each in self.ranges) <= MAX_KEYS_IN_MEMORY
        if not self.ranges:  # no range needs what older events left
            self._rows = {key: offset for key, offset in self._rows.items() if offset > chunk.since}
        after = None if chunk.after is None else active.convert_keys([chunk.after])[0]
        self.ranges.append(PassedRange(chunk, self.upto, len(keys), keys if is_kept else None, after))
        self._quiet_since_s = math.inf
        if chunk.last:
            self.ongoing = False

    @property
    def has_work(self) -> bool:
        return bool(self.ranges)

    @property
    def is_full(self) -> bool:
        """Return whether the keys of later events are too many to keep."""
        return len(self._rows) > MAX_KEYS_IN_MEMORY

    def can_continue(self, active: ActiveDefinition, offset: int) -> bool:
        """Return whether an attempt with the definition `active`, whose lanes are at `offset`, may continue
        with these ranges.
        """
        return active.shown_alike and offset == self.upto

    def find_next_since(self, passed: PassedRange) -> int | None:
        """Return the offset after which ranges are not compared, after the range `passed`; None: there are
        none, and no sweep is under way.
        """
        return passed.at if self.ranges or self.ongoing else None

    def list_unread_ranges(self) -> list[PassedRange]:
        """Return the first ranges, as far as their keys are not known and are few enough to keep."""
        some: list[PassedRange] = []
        total = 0
        for each in self.ranges:
            total += each.count
            if each.keys is not None or (some and total > MAX_KEYS_IN_MEMORY):
                break
            some.append(each)
        return some

    def has_stalled(self, now_s: float) -> bool:
        """Return whether no marker has come for `QUIET_S`: capture may have given the sweep up, which the
        topic does not record.
        """
        if self.ranges or not self.ongoing:
            return False
        self._quiet_since_s = min(self._quiet_since_s, now_s)
        return now_s - self._quiet_since_s > QUIET_S

    def select_dead_keys(self) -> list[Key]:
        """Take at most `KEYS_PER_PAGE` of the first range's doubted keys, and return those that no longer
        exist at the source.
        """
        first = self.ranges[0]
        some = first.take_doubted_keys(KEYS_PER_PAGE)
        return [key for key in some if self._rows.get(key, -1) <= first.chunk.since]

    def pass_records(self, upto: int) -> None:
        """Note that all records up to the offset `upto` have been read."""
        self.upto = upto
