"""Deleting what a copy has shown to be gone: which of the target's keys are none of those that live (docs/adr/0026-applying-a-copy.md).

A key of the target that is, as the target shows it, none of the living ones is only *doubted*: a padded CHAR, a rounded time or another
case may be the same row. So the target itself is asked: whatever it finds under a living key is that key's row and stays; and of the
rest only what it finds under the very key that it showed is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from consumer.attempt.copies.keys import KeyCheck, encode_key
from consumer.attempt.copies.window import Window, note_changes
from consumer.attempt.effects import ListKeys, LookUp, Machine, OpenKeys, ReadPassed
from consumer.attempt.readers.reader import Emptied, EnvelopeReader, Rows, Taken
from consumer.errors import CopyNeededError, RefusedError, TakesLongError
from consumer.ordering.model import LaneProgress, TargetTable
from consumer.tables.definition import InForce
from consumer.tables.event_decoder import full_event
from consumer.tables.router import key_function, key_table, let_through, told_apart
from schemas.table.model import Key

HERE = 50_000
"""Keys and events up to which a task of Spark compares them itself: a second or two."""
Delete = Callable[[TargetTable, list[Key]], Machine[None]]
"""(table, keys of it) → the machine that deletes their rows in one transaction which guards the unit's progress."""
Vouch = Callable[[Iterable[Sequence[Key]]], Machine[None]]
"""(pages of keys) → the machine that raises where their rows must not be deleted."""
ReadAgain = Callable[[str, InForce, int, int, Callable[[Taken], None]], Machine[None]]
"""(topic, definition in force, begin, end, take) → the machine that lets `take` have what a copy brought between its begin and its end."""


class BoundRefusedError(Exception):
    """The target cannot be asked for a range: a bound of it is a key that the target cannot hold (a zero date in PostgreSQL)."""


class Sweep:
    """The sweep at one marker of a copy. `patient`: whoever carries it out has the time; else TakesLongError says that it takes long. `read`: reads
    the copy once more (None: `read_again`). `vouch`: is given all keys that are to be deleted before the first one is."""

    def __init__(
        self,
        topic: str,
        in_force: InForce,
        delete: Delete,
        *,
        patient: bool,
        read: ReadAgain | None = None,
        vouch: Vouch | None = None,
    ) -> None:
        self._topic, self._in_force, self._delete, self._patient = topic, in_force, delete, patient
        self._read, self._vouch = read or read_again, vouch
        self._of: TargetTable = in_force.target
        self._table: TargetTable = key_table(self._of)
        self._looked = 0

    def of_range(self, window: Window, since: int, after: Key | None, upto: Key | None) -> Machine[int]:
        """Delete in the range (after, upto] of the source's key, which source and target order alike, what lives by no event behind `since`.

        Ends with the number of rows. Raises BoundRefusedError: nothing was deleted.
        """
        keys: KeyCheck = yield OpenKeys()
        try:
            for key in window.living(since):
                keys.note(key, True)
            return (yield from self._compared(keys, self._bound(after), self._bound(upto)))
        finally:
            keys.close()

    def behind_refused(self, begins: int, at: int, upto: Key | None) -> Machine[int]:
        """Delete, at the marker at the offset `at`, also what the markers before it could not, for a bound of theirs that was refused:
        whatever stands up to `upto` and lives by no event since `begins`. Ends with the number of rows.

        Where `upto` is refused as well nothing is deleted: the next marker makes up for it, and the last one has no `upto`.
        """
        bound = self._bound(upto)
        try:
            yield from self._first_page(None, bound)
        except BoundRefusedError:
            return 0
        return (yield from self.of_table(begins, at, bound))

    def of_table(self, begins: int, at: int, upto: Key | None = None) -> Machine[int]:
        """Delete what lives by no event of the copy, which began at the offset `begins`, and of which all rows up to `upto`, a key of the
        target, stand before the offset `at` (None: it has ended). Ends with the number of rows.

        Of a topic also what stands under a routing key by which its row does not live, or is outside the route's filter by now: an update there
        writes nothing.
        """
        whole = Sweep(
            self._topic,
            replace(self._in_force, target=told_apart(self._of)),
            self._delete,
            patient=self._patient,
            read=self._read,
            vouch=self._vouch,
        )
        whole._took(at - begins)
        keys: KeyCheck = yield OpenKeys()
        return (yield from whole._whole_table(keys, begins, at, upto))

    def _whole_table(self, keys: KeyCheck, begins: int, at: int, upto: Key | None) -> Machine[int]:
        key_of, inside = key_function(self._of), let_through(self._of)

        def take(taken: Taken) -> None:
            if isinstance(taken, Rows):
                note_changes(taken.changes, key_of, keys.note, inside)
            elif isinstance(taken, Emptied):
                keys.clear()

        try:
            yield from self._read(self._topic, self._in_force, begins, at, take)
            return (yield from self._compared(keys, None, upto))
        finally:
            keys.close()

    def _compared(self, keys: KeyCheck, after: Key | None, upto: Key | None) -> Machine[int]:
        page = yield from self._first_page(after, upto)
        while page:
            self._took(len(page))
            keys.compare(page)
            if page[-1] == after:
                break  # shown as it was, so the next page would be this one
            after = page[-1]
            page = yield ListKeys(self._table, after, upto, self._in_force.routed.where)
        if next(keys.doubted(), None) is not None:
            for some in keys.unmatched():
                keys.excuse((yield LookUp(self._table, some)))
        if self._vouch is not None:
            yield from self._vouch(keys.doubted())
        return (yield from self._deleted(keys))

    def _first_page(self, after: Key | None, upto: Key | None) -> Machine[Sequence[Key]]:
        try:
            page: Sequence[Key] = yield ListKeys(self._table, after, upto, self._in_force.routed.where)
        except RefusedError as error:
            if after is None and upto is None:
                raise
            raise BoundRefusedError(str(error)) from error
        return page

    def _deleted(self, keys: KeyCheck) -> Machine[int]:
        gone = 0
        for some in keys.doubted():
            there = set(map(encode_key, (yield LookUp(self._table, some))))
            dead = [key for key in some if encode_key(key) in there]
            if dead:
                yield from self._delete(self._of, dead)
            gone += len(dead)
        return gone

    def without_row(self, keys: Sequence[Key]) -> Machine[list[Key]]:
        """Delete the rows of `keys`, which the source does not have. Ends with those of which no row is left: what the target finds under
        a key and shows as another may be another's row."""
        free: list[Key] = []
        for key in keys:
            there: Sequence[Key] = yield LookUp(self._table, [key])
            shown = [encode_key(each) for each in there] == [encode_key(key)]
            if shown:
                yield from self._delete(self._of, [key])
            if shown or not there:
                free.append(key)
        return free

    def _bound(self, key: Key | None) -> Key | None:
        """Return a key of the source as one of the target."""
        if key is None:
            return None
        source = dict(zip(self._in_force.source.key.columns, key, strict=True))
        values = source | dict(self._in_force.routed.added)
        return tuple(values[name] for name in self._in_force.target.table.key.columns)

    def _took(self, more: int) -> None:
        self._looked += more
        if self._looked > HERE and not self._patient:
            raise TakesLongError(
                f"{self._topic}: what the source has no more is looked for, which takes a while in a large table"
            )


def read_again(
    topic: str, in_force: InForce, since: int, upto: int, take: Callable[[Taken], None]
) -> Machine[None]:
    """Let `take` have what the topic holds behind `since`, where an event of the copy stands, and before `upto`, judged as before.

    That event was accepted, so its position and gen are the marks of whoever read it.
    """
    reader: EnvelopeReader | None = None
    while (records := (yield ReadPassed(since, upto))) is not None:
        if reader is None:
            reader = _reader_behind(topic, in_force, since, *records[0])
            records = records[1:]
        for taken in reader.read(records):
            take(taken)
    if reader is None:
        raise lost(topic, since)


def _reader_behind(
    topic: str, in_force: InForce, since: int, offset: int, raw: bytes | None
) -> EnvelopeReader:
    if offset != since or raw is None:
        raise lost(topic, since)
    place = full_event(topic, offset, raw).source
    reader = EnvelopeReader(topic)
    reader.begin([LaneProgress(0, 0, 0, "", since, place.position, place.gen, "")], in_force)
    return reader


def lost(topic: str, since: int) -> CopyNeededError:
    """Return why a copy cannot be read again."""
    return CopyNeededError(f"{topic}: Kafka does not hold offset {since}, where the copy stood", cause="gap")
