"""Deletes target rows that a copy has shown to be deleted at the source
(docs/adr/0026-applying-a-copy.md).

A target key that, in the form that the target shows, equals no existing key is only *doubted*: a padded
CHAR, a rounded time or another case may be the same row. So the target itself is asked. The row that it
finds under an existing key belongs to that key and stays. Of the others, only rows that it finds under
the very key that it showed are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from consumer.attempt.copies.keys import KeyComparison, encode_key
from consumer.attempt.copies.window import KeyWindow, note_changes
from consumer.attempt.effects import ListKeys, LookUpKeys, Machine, OpenKeys, ReadPassed, ask_driver
from consumer.attempt.readers.reader import EnvelopeReader, KeysRead, ReaderItem, RowBatch, Truncated
from consumer.errors import CopyNeededError, RefusedError, TakesLongError
from consumer.ordering.model import LaneProgress, TargetTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import decode_full_event
from consumer.tables.router import build_key_table, extend_topic_key, make_key_function, make_topic_filter
from schemas.table.model import Key

MAX_QUICK_SWEEP_KEYS = 50_000
"""Number of keys and events up to which also an attempt that is not patient compares them, in a second or
two."""
RemoveRows = Callable[[TargetTable, list[Key]], Machine[int]]
"""(table, keys) → a `Machine` that deletes the rows of these keys, unless they are kept, in one transaction
that guards the unit's progress, and returns the number of deleted rows."""
VouchForKeys = Callable[[Iterable[Sequence[Key]]], Machine[None]]
"""(pages of keys) → a `Machine` that raises if the rows of these keys must not be deleted."""
ReadTopicAfter = Callable[[str, ActiveDefinition, int, int, Callable[[ReaderItem], None]], Machine[None]]
"""(topic, active definition, begin, end, take) → a `Machine` that passes a copy's events between `begin`
and `end` to `take`."""


class BoundRefusedError(Exception):
    """A bound of the range is a key that the target cannot hold (a zero date in PostgreSQL), so it
    cannot be queried.
    """


class Sweep:
    """The sweep at one marker of a copy.

    `patient`: whether it may take long; otherwise it raises TakesLongError. `read`: reads the copy again
    (`read_topic_after` by default). `vouch`: receives all keys that are to be deleted, before the first
    deletion.
    """

    def __init__(
        self,
        topic: str,
        active: ActiveDefinition,
        remove: RemoveRows,
        *,
        patient: bool,
        read: ReadTopicAfter | None = None,
        vouch: VouchForKeys | None = None,
    ) -> None:
        self._topic, self._active, self._remove, self._patient = topic, active, remove, patient
        self._read, self._vouch = read or read_topic_after, vouch
        self._of: TargetTable = active.target
        self._table: TargetTable = build_key_table(self._of)
        self._looked = 0

    def sweep_range(self, window: KeyWindow, since: int, after: Key | None, upto: Key | None) -> Machine[int]:
        """Delete the rows in the range (after, upto] of the source's key that no event after `since`
        leaves existing.

        Source and target order the key alike. Returns the number of rows. Raises BoundRefusedError
        before any deletion.
        """
        keys = yield from ask_driver(OpenKeys())
        try:
            for key in window.list_living_keys(since):
                keys.note_key(key, True)
            return (
                yield from self._compare_target_keys(
                    keys, self._convert_bound(after), self._convert_bound(upto)
                )
            )
        finally:
            keys.close()

    def sweep_refused_ranges(self, begins: int, at: int, upto: Key | None) -> Machine[int]:
        """Delete the rows that earlier markers could not delete because the target refused a bound;
        return their number.

        At the marker at the offset `at`, these are all rows up to `upto` that no event since `begins`
        leaves existing. If `upto` is refused too, nothing is deleted: the next marker deletes these
        rows, and the last marker has no `upto`.
        """
        bound = self._convert_bound(upto)
        try:
            yield from self._fetch_first_page(None, bound)
        except BoundRefusedError:
            return 0
        return (yield from self.sweep_table(begins, at, bound))

    def sweep_table(self, begins: int, at: int, upto: Key | None = None) -> Machine[int]:
        """Delete the rows that no event of the copy leaves existing; return their number.

        The copy began at the offset `begins`. All its rows up to `upto`, a key of the target, are before
        the offset `at`; None: the copy has ended. In a target topic this also deletes keys with an
        outdated routing key, and rows that are outside the route's filter by now: an update writes
        nothing there.
        """
        whole = Sweep(
            self._topic,
            replace(self._active, target=extend_topic_key(self._of)),
            self._remove,
            patient=self._patient,
            read=self._read,
            vouch=self._vouch,
        )
        whole.count_compared(at - begins)
        keys = yield from ask_driver(OpenKeys())
        return (yield from whole._sweep_whole_table(keys, begins, at, upto))

    def _sweep_whole_table(self, keys: KeyComparison, begins: int, at: int, upto: Key | None) -> Machine[int]:
        key_of, inside = make_key_function(self._of), make_topic_filter(self._of)

        def take(taken: ReaderItem) -> None:
            if isinstance(taken, RowBatch):
                note_changes(taken.changes, key_of, keys.note_key, inside)
            elif isinstance(taken, KeysRead):
                self.count_compared(len(taken.keys))
                for key in taken.keys:
                    keys.note_key(key, True)
            elif isinstance(taken, Truncated):
                keys.clear()

        try:
            yield from self._read(self._topic, self._active, begins, at, take)
            return (yield from self._compare_target_keys(keys, None, upto))
        finally:
            keys.close()

    def _compare_target_keys(self, keys: KeyComparison, after: Key | None, upto: Key | None) -> Machine[int]:
        page = yield from self._fetch_first_page(after, upto)
        while page:
            self.count_compared(len(page))
            keys.compare_keys(page)
            if page[-1] == after:
                break  # the target shows it as it was given, so the next page would be this one again
            after = page[-1]
            page = yield from ask_driver(ListKeys(self._table, after, upto, self._active.routed.where))
        if next(keys.yield_doubted(), None) is not None:
            for some in keys.yield_unmatched():
                keys.discard_doubts((yield from ask_driver(LookUpKeys(self._table, some))))
        if self._vouch is not None:
            yield from self._vouch(keys.yield_doubted())
        return (yield from self._delete_doubted_rows(keys))

    def _fetch_first_page(self, after: Key | None, upto: Key | None) -> Machine[Sequence[Key]]:
        return (yield from fetch_bounded_page(self._table, self._active, after, upto))

    def _delete_doubted_rows(self, keys: KeyComparison) -> Machine[int]:
        deleted = 0
        for some in keys.yield_doubted():
            if dead := (yield from find_shown_keys(self._table, some)):
                deleted += yield from self._remove(self._of, dead)
        return deleted

    def _convert_bound(self, key: Key | None) -> Key | None:
        """Convert a bound from a key of the source to a key of the target."""
        return None if key is None else self._active.convert_keys([key])[0]

    def count_compared(self, more: int) -> None:
        """Count keys and events. Raises TakesLongError if they become too many for an impatient attempt."""
        self._looked += more
        if self._looked > MAX_QUICK_SWEEP_KEYS and not self._patient:
            raise TakesLongError(
                f"{self._topic}: rowlock is searching the target for rows that were deleted at the "
                "source; this takes long in a large table"
            )


def fetch_bounded_page(
    table: TargetTable, active: ActiveDefinition, after: Key | None, upto: Key | None
) -> Machine[Sequence[Key]]:
    """Return a page of the target's keys in (after, upto]. `table`: as in ListKeys.

    Raises BoundRefusedError if the target refuses a bound.
    """
    try:
        return (yield from ask_driver(ListKeys(table, after, upto, active.routed.where)))
    except RefusedError as error:
        if after is None and upto is None:
            raise
        raise BoundRefusedError(str(error)) from error


def find_shown_keys(table: TargetTable, keys: Sequence[Key]) -> Machine[list[Key]]:
    """Return those of `keys`, which the target showed, under which it finds rows with these very keys.
    `table`: as in ListKeys.
    """
    there = set(map(encode_key, (yield from ask_driver(LookUpKeys(table, keys)))))
    return [key for key in keys if encode_key(key) in there]


def read_topic_after(
    topic: str, active: ActiveDefinition, since: int, upto: int, take: Callable[[ReaderItem], None]
) -> Machine[None]:
    """Pass the topic's events after `since` and before `upto` to `take`; duplicates are dropped as at
    the first reading.

    `since` is the offset of an event of the copy. It was accepted, so its position and generation are
    the reader's marks.
    """
    reader: EnvelopeReader | None = None
    while (records := (yield from ask_driver(ReadPassed(since, upto)))) is not None:
        if reader is None:
            reader = make_reader_after(topic, active, since, *records[0])
            records = records[1:]
        for taken in reader.read_slice(records):
            take(taken)
    if reader is None:
        raise build_reread_error(topic, since)


def make_reader_after(
    topic: str, active: ActiveDefinition, since: int, offset: int, raw: bytes | None
) -> EnvelopeReader:
    """Return a reader of what follows the event of a copy at `since`. `offset`, `raw`: the first record that
    Kafka gave. Raises CopyNeededError if it is another one.
    """
    if offset != since or raw is None:
        raise build_reread_error(topic, since)
    place = decode_full_event(topic, offset, raw).source
    reader = EnvelopeReader(topic)
    reader.begin_reading([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], active)
    return reader


def build_reread_error(topic: str, since: int) -> CopyNeededError:
    """Return the error of a copy that Kafka no longer holds completely."""
    return CopyNeededError(
        f"{topic}: Kafka has deleted offset {since}, and the copy must be read again from there", cause="gap"
    )
