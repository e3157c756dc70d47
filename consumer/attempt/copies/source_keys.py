"""Looks up, at the source, the keys that a Debezium snapshot lacks, before their rows are deleted.

A topic does not show whether a snapshot was of the whole table (`additional-conditions` make it one of a
part). The source does: a complete snapshot lacks no existing row. So the source is asked for every key
that is to be deleted, in its own comparison. A key that it still has must arrive in the topic: in a row
of the snapshot (the target shows the key in another form, or had it elsewhere), or in a later insert, if
the row was deleted before the snapshot and inserted again. Debezium may not have written that insert
yet, so the topic is read again a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec

from consumer.attempt.copies.keys import encode_key
from consumer.attempt.effects import AskSource, Machine, ReadRest, Sleep, ask_driver
from consumer.attempt.readers.debezium import decode_debezium_record
from consumer.errors import CopyNeededError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import TargetTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import SNAPSHOT_READ
from schemas.table.model import Key
from schemas.wire.position import Position

MAX_KEYS_PER_LOOKUP = 50_000
"""Number of keys that the source is asked for over one connection; they are kept in memory meanwhile."""
LOOKUP_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Pauses in seconds before the topic is read again for inserts that Debezium had not written. A unit
that stops after them is retried like any other."""
INSERT = "c"
WHOLE = (
    "let the snapshot be of the whole table (no `additional-conditions` in the signal, no "
    "`snapshot.select.statement.overrides` of the connector)"
)


class SourceKeyProof:
    """Asks the source to confirm that rows missing in one snapshot are deleted. The snapshot's rows are
    at the offsets `first` to `last`.

    `position`: every event of the log after the snapshot has a higher position, or is applied already.
    """

    def __init__(
        self, topic: str, active: ActiveDefinition, first: int, last: int, position: Position
    ) -> None:
        self._topic, self._active, self._first, self._last = topic, active, first, last
        self._position = position
        source = active.source
        self._key_at = active.written.find_ordinals(source.key.columns)
        self._of_source = make_source_key_function(active.target, active.source_key)

    def vouch_for_keys(self, pages: Iterable[Sequence[Key]]) -> Machine[None]:
        """Confirm at the source that the keys in `pages`, as the target has them, are deleted.

        Raises CopyNeededError if the source has one of them, or cannot answer.
        """
        keys = map(self._of_source, chain.from_iterable(pages))
        while some := list(dict.fromkeys(islice(keys, MAX_KEYS_PER_LOOKUP))):
            left = yield from self._find_unseen_keys(some, self._first)
            for pause in LOOKUP_DELAYS_S if left else ():
                yield Sleep(pause)
                left = left and (yield from self._find_unseen_keys(left, self._last + 1))
            if left:
                raise self._build_partial_error(left, len(some))

    def _find_unseen_keys(self, keys: Sequence[Key], since: int) -> Machine[list[Key]]:
        """Return the keys of `keys` that the source still has, in the source's form, and that no row of
        the topic from the offset `since` on contains.
        """
        left = {encode_key(key): key for key in (yield from self._find_existing_keys(keys))}
        if left:  # the topic is read after the answer: a missing insert was not written yet
            while (records := (yield from ask_driver(ReadRest(since)))) is not None:
                for key in self._yield_written_keys(records):
                    left.pop(encode_key(key), None)
        return list(left.values())

    def _find_existing_keys(self, keys: Sequence[Key]) -> Machine[Sequence[Key]]:
        try:
            return (yield from ask_driver(AskSource(self._active.source, keys)))
        except TargetConfigError as error:
            raise CopyNeededError(
                f"{self._topic}: the snapshot at offsets {self._first} to {self._last} lacks {len(keys)} "
                f"rows of the target, and the source could not confirm that they were deleted: {error}; no "
                "row was deleted in the target",
                cause="partial", after=self._last,
                first="make the source reachable, and the table continues by itself; "
                "if it was altered or dropped",
            ) from error  # fmt: skip

    def _yield_written_keys(self, records: Iterable[tuple[int, bytes | None]]) -> Iterator[Key]:
        """Yield the keys of rows that the target will have in any case: rows of snapshots, and inserts
        that are not applied yet.
        """
        for offset, raw in records:
            if raw is None:
                continue
            try:
                event = decode_debezium_record(self._topic, self._active, offset, raw)
            except UnitStoppedError:  # the unit will stop there
                continue
            place = event.source.position
            new = event.op == INSERT and place is not None and place > self._position
            if event.after is not None and (new or event.op == SNAPSHOT_READ):
                after = event.after
                yield tuple(after[at] for at in self._key_at)

    def _build_partial_error(self, left: Sequence[Key], asked: int) -> CopyNeededError:
        source = self._active.source
        shown = msgspec.json.encode(left[0]).decode()
        return CopyNeededError(
            f"{self._topic}: the snapshot at the offsets {self._first} to {self._last} covers only a part of "
            f"the table: it lacks rows that {source.db}.{source.name} has, {len(left)} of {asked} that were "
            f"looked up, one of them with the key {shown}; nothing was deleted",
            cause="partial", after=self._last, first=WHOLE,
        )  # fmt: skip


def make_source_key_function(target: TargetTable, names: Sequence[str]) -> Callable[[Key], Key]:
    """Return a function that maps a target key to the source's key.

    `names`: the source key's columns, as named in the target. A longer target key begins with columns of
    its own.
    """
    columns = target.table.key.columns
    at = [columns.index(name) for name in names]
    return lambda key: tuple(key[each] for each in at)
