"""Compares a whole target table with the keys of a key sweep, a piece at a time
(docs/adr/0041-partition-retention.md).

Where the target orders or shows a key otherwise than the source (text, a number in a `numeric(10,2)`), no
range of the target is that of a chunk. So the table is compared as a whole: between batches, when all lanes
are at one offset, for a part of a second at a time. The table's own events wait no longer than that.

First the keys are read from the topic again, as far as the unit has passed them, until the sweep's last
marker. Then the target's keys are compared with them. A key that equals none is doubted: the target may show
an existing row in another form. So the target is asked for the existing keys that it has not shown, and what
it finds is no longer doubted. At last the rows of the doubted keys are deleted.

Invariant: when rows are deleted, every event up to the offset of the lanes has been read, and the rows that
those after the last marker leave are no longer doubted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consumer.attempt.copies.key_sweep import QUIET_S, PassedRange
from consumer.attempt.copies.keys import KEYS_PER_PAGE, KeyComparison
from consumer.attempt.copies.marker import CopyChunk, build_copy_chunk, is_key_marker
from consumer.attempt.copies.passed_ranges import RemoveKeys, build_altered_key_error
from consumer.attempt.copies.sweep import find_shown_keys, make_reader_after
from consumer.attempt.copies.window import note_changes
from consumer.attempt.effects import Effect, ListKeys, LookUpKeys, Machine, OpenKeys, ReadPassed, ask_driver
from consumer.attempt.readers.reader import (
    EnvelopeReader,
    KeysRead,
    KeySweepBegun,
    ReaderItem,
    RecordSlice,
    RowBatch,
    TopicNotice,
)
from consumer.ordering.model import RowChange
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import decode_full_event
from consumer.tables.router import build_key_table, make_key_function
from schemas.table.model import Key

KEYS_PER_PIECE = 4 * KEYS_PER_PAGE
"""Number of keys that are read from the topic before the comparison may be interrupted."""


@dataclass(frozen=True, slots=True)
class Interrupt(Effect[None]):
    """A point at which the comparison may be interrupted. No driver receives it. `is_idle`: nothing is left
    to do until the unit has passed more of the topic.
    """

    is_idle: bool = False


class TableSweep:
    """The comparison of a table with the key sweep that began at the offset `since`.

    A process keeps it from one attempt to the next; another process begins again. `has_work`: whether
    something is left to do before the unit passes more of the topic.
    """

    is_full = False
    """Its keys are kept on disk."""

    def __init__(self, topic: str, active: ActiveDefinition, since: int) -> None:
        self.has_work = True
        self._topic, self._active, self._since = topic, active, since
        self._key_of = make_key_function(active.target)
        self._table = build_key_table(active.target)
        self._reader: EnvelopeReader | None = None
        self._begin = self._next = since  # the first offset of this piece, and of the next record
        self._upto = since - 1
        self._whole: PassedRange | None = None  # once the last marker was read
        self._next_begin: int | None = None
        self._later: dict[Key, None] | None = None  # rows that events leave, once other forms are looked up
        self._quiet_since_s = math.inf
        self._machine = self._compare_table()

    def can_continue(self, active: ActiveDefinition, _offset: int) -> bool:
        """Return whether an attempt with the definition `active` may continue the comparison."""
        known, since = self._active, active.stored.sweep_since
        is_same = (active.source, active.real) == (known.source, known.real)
        return is_same and since == self._since and not active.shown_alike

    def find_next_since(self, _passed: PassedRange) -> int | None:
        """Return where the next key sweep began, if the unit has passed that."""
        return self._next_begin

    def has_stalled(self, now_s: float) -> bool:
        """Return whether no key has come for `QUIET_S`: capture may have given the sweep up, which the topic
        does not record.
        """
        if self._whole is not None or self.has_work:
            return False
        self._quiet_since_s = min(self._quiet_since_s, now_s)
        return now_s - self._quiet_since_s > QUIET_S

    def begin_piece(self, upto: int) -> None:
        """Note that all lanes are at the offset `upto` now."""
        self._begin, self._upto, self.has_work = self._next, upto, True

    def compare_piece(self, remove: RemoveKeys) -> Machine[PassedRange | None]:
        """Continue until the comparison may be interrupted. Return the table's range at the end."""
        self._remove = remove
        try:
            effect = next(self._machine)
            while not isinstance(effect, Interrupt):
                try:
                    result = yield effect
                except Exception as error:  # noqa: BLE001  # the comparison handles it
                    effect = self._machine.throw(error)
                else:
                    effect = self._machine.send(result)
        except StopIteration:
            self.has_work = False
            return self._whole
        self.has_work = not effect.is_idle
        return None

    def _compare_table(self) -> Machine[None]:
        keys = yield from ask_driver(OpenKeys())
        try:
            while (whole := self._whole) is None:
                yield from self._read_passed(keys)
                if self._whole is None:
                    yield Interrupt(is_idle=True)
            yield from self._compare_pages(keys)
            self._later = {}
            if next(keys.yield_doubted(), None) is not None:
                for some in keys.yield_unmatched():
                    keys.discard_doubts((yield from ask_driver(LookUpKeys(self._table, some))))
                    yield from self._let_interrupt(keys)
            for some in keys.yield_doubted():
                if dead := (yield from find_shown_keys(self._table, some)):
                    whole.count_deleted((yield from self._remove(dead)))
                yield from self._let_interrupt(keys)
        finally:
            keys.close()

    def _compare_pages(self, keys: KeyComparison) -> Machine[None]:
        after: Key | None = None
        where = self._active.routed.where
        while page := (yield from ask_driver(ListKeys(self._table, after, None, where))):
            keys.compare_keys(page)
            if page[-1] == after:
                break  # the target shows it as it was given, so the next page would be this one again
            after = page[-1]
            yield from self._let_interrupt(keys)

    def _let_interrupt(self, keys: KeyComparison) -> Machine[None]:
        yield Interrupt()
        yield from self._read_passed(keys)
        if self._later:
            later, self._later = list(self._later), {}
            for at in range(0, len(later), KEYS_PER_PAGE):
                found = yield from ask_driver(LookUpKeys(self._table, later[at : at + KEYS_PER_PAGE]))
                keys.discard_doubts(found)

    def _read_passed(self, keys: KeyComparison) -> Machine[None]:
        """Read the records up to the offset of the lanes."""
        while self._next <= self._upto:
            records = yield from ask_driver(ReadPassed(self._begin, self._upto + 1))
            if records is None:  # the last offsets have no records
                self._next = self._upto + 1
                return
            self._next = records[-1][0] + 1
            yield from self._note_records(records, keys)

    def _note_records(self, records: RecordSlice, keys: KeyComparison) -> Machine[None]:
        if self._reader is None:
            self._reader, records = self._make_reader(records), records[1:]
        noted = 0
        for taken in self._reader.read_slice(records):
            noted += self._note_taken(taken, keys)
            if noted >= KEYS_PER_PIECE:
                noted = 0
                yield Interrupt()
        yield Interrupt()

    def _make_reader(self, records: RecordSlice) -> EnvelopeReader:
        """Return a reader of what follows the sweep's begin. Raises CopyNeededError if something else is at
        its offset: ranges up to there were compared, when the target still showed keys as the source does.
        """
        offset, raw = records[0]
        reader = make_reader_after(self._topic, self._active, self._since, offset, raw)
        begin = decode_full_event(self._topic, offset, raw or b"")
        if begin.op != "k" or begin.copy is None:
            raise build_altered_key_error(self._topic, self._active, self._upto)
        return reader

    def _note_taken(self, taken: ReaderItem, keys: KeyComparison) -> int:
        """Note an item of the topic; return the number of its keys."""
        if isinstance(taken, RowBatch):
            self._note_rows(taken.changes, keys)
            return len(taken.changes)
        if isinstance(taken, KeySweepBegun):
            self._note_begin(taken.mark[0], keys)
        elif isinstance(taken, TopicNotice) and is_key_marker(taken.event):
            self._note_marker(build_copy_chunk(self._topic, taken.event), taken.mark[0])
        elif isinstance(taken, KeysRead) and self._whole is None:
            self._quiet_since_s = math.inf
            for key in taken.keys:
                keys.note_key(key, True)
            return len(taken.keys)
        return 0

    def _note_rows(self, changes: Sequence[RowChange], keys: KeyComparison) -> None:
        if self._later is None:
            note_changes(changes, self._key_of, keys.note_key)
        else:
            note_changes(changes, self._key_of, self._note_later)

    def _note_later(self, key: Key, exists: bool) -> None:
        if self._later is not None and exists:
            self._later[key] = None

    def _note_begin(self, offset: int, keys: KeyComparison) -> None:
        """Note the begin of another sweep. Capture has given this one up if its last marker has not come."""
        if self._whole is None:
            keys.clear()
        elif self._next_begin is None:
            self._next_begin = offset

    def _note_marker(self, chunk: CopyChunk | None, offset: int) -> None:
        self._quiet_since_s = math.inf
        if chunk is not None and chunk.last and self._whole is None:
            self._whole = PassedRange(chunk, offset, 0, None, None)
