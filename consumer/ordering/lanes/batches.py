"""A batch, one target transaction of a lane: the net changes of a pending batch's items, and the quarantined
ones.

A change of a key with an earlier change in the quarantine is quarantined too; the target is asked for the
last of them once the lanes have drained (consumer/ordering/recovery.py), so of several in one batch only the
last is kept. A delete is not quarantined: the source has deleted the row, whatever became of the earlier
changes, so the delete is applied and closes the key's entries. All other changes become net changes.

An update that moves the key is a delete under the old key and an insert under the new one, and only the
half that the target refuses is quarantined. So one lane leaves the same rows and entries as several
lanes, which apply the halves separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from consumer.ordering.dispatch import LaneItem, TableKeys, TablePlan, get_image, split_key_move
from consumer.ordering.fold import decode_folded, encode_folded, yield_integers
from consumer.ordering.model import (
    ChangeId,
    QuarantineEntry,
    ReducedChanges,
    RowChange,
    TargetTable,
    format_entry_key,
    parse_entry_key,
)
from consumer.ordering.netchange import KeyEnds, NetChangeReducer, replace_snapshot_rows
from consumer.ordering.progress import LaneMark
from consumer.ordering.reasons import QUEUED_AFTER, is_queued
from schemas.table.equality import are_same_values
from schemas.table.model import Key

QuarantinedKey = tuple[str, str]
"""(target table "schema.name", folded key as text)."""
MAX_SUPERSEDED_ENTRIES = 4
"""Entries of a key that a newer one has made useless, above which they are deleted: in one statement, and
not one in each batch. Each attempt reads all entries."""


class QuarantinePlace(NamedTuple):
    """A quarantine entry, without its event. Equal exact keys are one key, for example 0.0 and -0.0, although
    their texts differ.
    """

    offset: int
    part: int
    key: Key
    queues: bool
    """Whether the event only queues after an earlier one of its fold."""


class HeldChange(NamedTuple):
    """A change that is quarantined."""

    change: RowChange
    plan: TableKeys
    key: Key
    """Its exact key."""
    folded: str
    error: str

    def build_entry(self) -> QuarantineEntry:
        return QuarantineEntry(
            offset=self.change.id[0],
            part=self.change.id[1],
            table=self.plan.name,
            key=format_entry_key(self.key),
            folded=self.folded,
            event=self.change.wire.decode(),
            error=self.error,
            commit_ts_ms=self.change.ts_ms,
        )


@dataclass(frozen=True, slots=True)
class QuarantineChanges:
    """The changes of one batch to the quarantine; filled while the batch is built."""

    added: list[QuarantineEntry] = field(default_factory=list)
    """New entries, once `build_entries` has been called."""
    closed: list[ChangeId] = field(default_factory=list)
    """Entries, also new ones, that leave the quarantine in this transaction because of a snapshot's row
    or a delete."""
    places: dict[QuarantinedKey, list[QuarantinePlace]] = field(default_factory=dict)
    """The remaining entries of the keys that the batch touches."""
    queued: dict[tuple[str, str, Key], ChangeId] = field(default_factory=dict)
    """(table, folded key, exact key) → its new entry that only queues."""
    replaced: set[ChangeId] = field(default_factory=set)
    """New entries that a later one of this batch replaces. They are not written."""
    superseded: list[ChangeId] = field(default_factory=list)
    """Entries of earlier batches that a new one replaces, once they are many."""
    held: list[HeldChange] = field(default_factory=list)
    """The changes of the new entries, also of the replaced ones."""

    def add_change(self, held: HeldChange, earlier: list[QuarantinePlace]) -> None:
        """Add a new entry. `earlier`: the remaining entries of its fold.

        It replaces the new entry of its key that only queues, if there is one: the image in an entry is the
        whole row, so nothing needs the older one. In a table written as events every entry stays.
        """
        queues = held.error.startswith(QUEUED_AFTER)
        self.held.append(held)
        earlier.append(QuarantinePlace(*held.change.id, held.key, queues))
        if held.plan.target.topic is not None:
            return
        place = (held.plan.name, held.folded, held.key)
        if place in self.queued:
            self.replaced.add(self.queued.pop(place))
        if queues:
            self.queued[place] = held.change.id

    def close_entries(self, place: QuarantinedKey, key: Key, earlier: list[QuarantinePlace]) -> None:
        """Close the entries of exactly `key`, and not of other keys with the same fold."""
        closed = [(entry.offset, entry.part) for entry in earlier if entry.key == key]
        if closed:
            self.closed.extend(closed)
            self.queued.pop((*place, key), None)
            earlier[:] = [entry for entry in earlier if entry.key != key]

    def list_remaining(self) -> list[QuarantineEntry]:
        """Return the new entries that stay in the quarantine."""
        closed = set(self.closed)
        return [entry for entry in self.added if (entry.offset, entry.part) not in closed]

    def build_entries(self) -> None:
        """Build the new entries. The replaced ones, of which a batch may have thousands, are left out."""
        replaced = self.replaced
        self.added.extend(held.build_entry() for held in self.held if held.change.id not in replaced)
        if replaced:
            self.closed[:] = [each for each in self.closed if each not in replaced]
            for entries in self.places.values():
                entries[:] = [each for each in entries if each[:2] not in replaced]
        for table, folded, key in self.queued:
            self._supersede_entries(self.places[table, folded], key)

    def _supersede_entries(self, entries: list[QuarantinePlace], key: Key) -> None:
        """Remove the entries of exactly `key` between its first and its newest that only queue, if they are
        many.
        """
        between = [entry for entry in entries if entry.key == key][1:-1]
        superseded = [entry[:2] for entry in between if entry.queues]
        if len(superseded) > MAX_SUPERSEDED_ENTRIES:
            self.superseded.extend(superseded)
            entries[:] = [entry for entry in entries if entry[:2] not in superseded]


@dataclass(frozen=True, slots=True)
class LaneBatch:
    """The changes of one target transaction; `mark` is the lane's new progress and is written last."""

    nets: list[ReducedChanges]
    """The changes to write, one for each table."""
    mark: LaneMark
    quarantine: QuarantineChanges
    displacing: str | None
    """JSON for `SqlTransaction.apply_net_change(displacing=…)`; None: rows are not displaced."""
    events: tuple[ChangeId, ChangeId]
    """The (first, last) event id."""
    count: int
    """Number of events."""
    since_ms: int = 0
    """Source commit time of the first one in ms since 1970; 0: not known."""


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A range of items that is applied in one transaction, and what earlier tries have shown."""

    items: list[LaneItem]
    end: LaneMark | None = None  # the drain mark, if this is the last batch before it
    tries: int = 0
    violations: int = 0
    replaces_rows: bool = False  # a snapshot's rows replace the target's rows of their keys
    displacing: bool = False
    #: For a single event: the refused parts, which are quarantined, with the reason. A key move in one
    #: lane has the parts 0 and 1.
    refused: Mapping[int, str] = field(default_factory=dict)


class QuarantinedKeys:
    """The keys with changes in the quarantine, as known to one lane.

    A batch contains its changes of these keys; they take effect here only with `record_commit`.
    """

    def __init__(self, held: Sequence[QuarantineEntry]) -> None:
        """`held`: quarantine entries of the unit."""
        self._entries: dict[
            QuarantinedKey, list[QuarantinePlace]
        ] = {}  # a key's first entry quarantines its later changes
        for entry in held:
            self._entries.setdefault((entry.table, entry.folded), []).append(_get_entry_place(entry))
        self._folds = {decode_folded(folded) for _, folded in self._entries}

    def split_free_items(
        self, items: list[LaneItem], changes: QuarantineChanges, refused: Mapping[int, str]
    ) -> list[LaneItem]:
        """Return the items to apply; refused ones, and those after an earlier entry, are quarantined.

        `changes`: receives the new and closed entries. `refused`: the parts of a single item that the
        target refused, with the reason.
        """
        if not self._entries and not refused and all(item[0].refused is None for item in items):
            return items
        free: list[LaneItem] = []
        folds, seen = self._folds, set[bytes]()
        for item in items:
            change, plan, key, _waits = item
            known = key in folds or key in seen or refused or change.refused is not None
            if not known and not _may_move_key(change, plan):  # most items
                free.append(item)
                continue
            for part, folded in _split_change(change, plan, key):
                seen.add(folded)
                if self._is_part_free(part, plan, folded, changes, refused):
                    free.append((part, plan, folded, ()))
        changes.build_entries()
        return free

    def split_free_changes(
        self, pending: Sequence[RowChange], plan: TableKeys, changes: QuarantineChanges
    ) -> list[RowChange]:
        """Return what `split_free_items` returns for changes of one table that are not refused. It is faster:
        each batch of a table with a quarantined key is divided.
        """
        free: list[RowChange] = []
        folds, fold_key, key_of = self._folds, plan.fold_key, plan.key_of
        for change in pending:
            before, after = change.before, change.after
            key = fold_key(before or after or get_image(change))
            if key not in folds and (before is None or after is None or key_of(before) == key_of(after)):
                free.append(change)
                continue
            for part, folded in _split_change(change, plan, key):
                if folded not in folds or self._is_part_free(part, plan, folded, changes, {}):
                    free.append(part)
        changes.build_entries()
        return free

    def reduce_free_changes(
        self, pending: Sequence[RowChange], plan: TableKeys, changes: QuarantineChanges
    ) -> list[ReducedChanges]:
        """Return the net change of what `split_free_changes` returns; none if that is nothing.

        Mostly the quarantined keys of a batch are only updated. Then these updates queue, of which the last
        of each key is kept, and the keys are left out of the net change of all changes. So a batch costs
        little more because of them, and they are found by folding each of its keys once.
        """
        reducer = plan.reducer
        if isinstance(reducer, NetChangeReducer):
            ends = reducer.find_key_ends(pending)
            if self._queue_updates(ends, pending, plan, changes):
                return [reducer.build_net_change(ends)] if ends.last else []
        free = self.split_free_changes(pending, plan, changes)
        return [reducer.reduce(free)] if free else []

    def _queue_updates(
        self, ends: KeyEnds, pending: Sequence[RowChange], plan: TableKeys, changes: QuarantineChanges
    ) -> bool:
        """Quarantine the last updates of the quarantined keys of `ends`, and remove the keys from it.

        Return False, and do nothing, if one of them may have another change than updates.
        """
        keys, fold = self._find_keys(ends.last, plan), plan.fold_values
        if not all(key in ends.first and key not in ends.read_again for key in keys):
            return False
        if any(map(_has_float_zero, keys)):
            return False
        rows = {id(ends.last.pop(key)): key for key in keys}
        newest = list[tuple[RowChange, bytes]]()
        for change in reversed(pending):
            if not rows:
                break
            if id(change.after) in rows:
                newest.append((change, fold(rows.pop(id(change.after)))))
        for change, folded in reversed(newest):
            self._is_part_free(change, plan, folded, changes, {})
        changes.build_entries()
        return True

    def _find_keys(self, keys: Collection[Any], plan: TableKeys) -> list[Any]:
        """Return which of `keys`, as `TableKeys.key_of` returns them, are quarantined.

        Integers are looked up instead: no other integer has the fold of one.
        """
        folds, fold = self._folds, plan.fold_values
        if plan.has_integer_key and {*map(type, keys)} == {int}:
            keys = {number for number in yield_integers(folds) if number in keys}
        return [key for key in keys if fold(key) in folds]

    def _is_part_free(
        self,
        part: RowChange,
        plan: TableKeys,
        folded: bytes,
        changes: QuarantineChanges,
        refused: Mapping[int, str],
    ) -> bool:
        """Return whether a change, or half of one, is applied; otherwise it is quarantined."""
        place = (plan.name, encode_folded(folded))
        earlier = self._get_places(changes, place)
        exact = _build_exact_key(part, plan)
        error = refused.get(part.id[1], part.refused)
        settles = _settles_key(part, plan)
        if part.snapshot or (settles and error is None):
            changes.close_entries(place, exact, earlier)
        if earlier and not settles and part.refused is None:
            # also for another key with the same fold: the target may treat it as equal, and a retry must
            # know both
            error = f"{QUEUED_AFTER} {earlier[0].offset}"
        if error is not None:
            changes.add_change(HeldChange(part, plan, exact, place[1], error), earlier)
        return error is None

    def record_commit(self, batch: LaneBatch) -> None:
        """Record the entries of a committed batch's keys."""
        for place, entries in batch.quarantine.places.items():
            if entries:
                self._entries[place] = entries
                self._folds.add(decode_folded(place[1]))
            else:  # its fold may be that of a key of another table, so it stays
                self._entries.pop(place, None)

    def _get_places(self, changes: QuarantineChanges, place: QuarantinedKey) -> list[QuarantinePlace]:
        """Return a key's entries as the batch leaves them so far; the list may be changed in place."""
        if place not in changes.places:
            changes.places[place] = list(self._entries.get(place, ()))
        return changes.places[place]


def split_entries_by_lane(
    held: Sequence[QuarantineEntry], plan: TablePlan, lanes: int
) -> list[list[QuarantineEntry]]:
    """Return the quarantine entries of each lane: a lane's changes have no other keys of `plan`.

    So a key in quarantine costs the other lanes nothing.
    """
    split: list[list[QuarantineEntry]] = [[] for _ in range(lanes)]
    for entry in list_entries_of(held, plan.target):
        split[plan.lane_of(decode_folded(entry.folded))].append(entry)
    return split


def list_entries_of(held: Iterable[QuarantineEntry], target: TargetTable) -> list[QuarantineEntry]:
    """Return the quarantine entries of the table's present key: no change has a key of another width."""
    name, width = f"{target.schema}.{target.name}", len(target.key_at)
    return [each for each in held if each.table == name and len(parse_entry_key(each.key)) == width]


def build_batch(pending: PendingBatch, lane: int, held: QuarantinedKeys) -> LaneBatch:
    """Return the batch of `pending`. This is the costly part of a lane."""
    items = pending.items
    first, last = items[0][0].id, items[-1][0].id
    quarantine = QuarantineChanges()
    free = held.split_free_items(items, quarantine, pending.refused)
    plans = dict.fromkeys([item[1] for item in free])  # mostly one
    nets = [plan.reducer.reduce([item[0] for item in free if item[1] is plan]) for plan in plans]
    if pending.replaces_rows:
        nets = [replace_snapshot_rows(net) for net in nets]
    return LaneBatch(
        nets,
        pending.end or build_mark(items[-1][0]),
        quarantine,
        displacing=encode_displacing(lane, first, last) if pending.displacing else None,
        events=(first, last),
        count=len(items),
        since_ms=items[0][0].ts_ms,
    )


def encode_displacing(lane: int, first: ChangeId, last: ChangeId) -> str:
    """Return what displaced a row, as `rowlock_displaced` has it: the lane, and the events from `first`
    to `last`.
    """
    return msgspec.json.encode({"lane": lane, "from": first, "to": last}).decode()


def _has_float_zero(key: Any) -> bool:
    """Return whether a key, as `TableKeys.key_of` returns it, may stand for both 0.0 and -0.0."""
    return any(value == 0 and type(value) is float for value in (key if type(key) is tuple else (key,)))


def _split_change(change: RowChange, plan: TableKeys, key: bytes) -> list[tuple[RowChange, bytes]]:
    """Return the change, or its halves if it moves the key: each is applied, or quarantined, under its
    own key.
    """
    if change.after is None or not moves_key(change, plan):
        return [(change, key)]
    first, second = split_key_move(change)
    return [(first, key), (second, plan.fold_key(change.after))]


def _may_move_key(change: RowChange, plan: TableKeys) -> bool:
    """Return whether the change may give its row another key; cheaper than `moves_key`."""
    before, after = change.before, change.after
    return before is not None and after is not None and plan.key_of(before) != plan.key_of(after)


def moves_key(change: RowChange, plan: TableKeys) -> bool:
    """Return whether the change is an update that gives its row another key, also 0.0 instead of -0.0.

    Quarantine entries are recorded by exact key.
    """
    before, after = change.before, change.after
    return (
        before is not None
        and after is not None
        and not are_same_values(plan.build_key(before), plan.build_key(after))
    )


def _settles_key(part: RowChange, plan: TableKeys) -> bool:
    """Return whether the change replaces all quarantined changes of its key: a delete.

    Not in a table written as events: its readers never saw the quarantined row.
    """
    return part.after is None and plan.target.topic is None


def _get_entry_place(entry: QuarantineEntry) -> QuarantinePlace:
    return QuarantinePlace(entry.offset, entry.part, parse_entry_key(entry.key), is_queued(entry))


def _build_exact_key(change: RowChange, plan: TableKeys) -> Key:
    row = change.after if change.before is None else change.before
    return () if row is None else plan.build_key(row)


def build_mark(change: RowChange) -> LaneMark:
    """Return the progress of a lane that has applied `change`."""
    return (change.id[0], change.position, change.gen, change.ts_ms)
