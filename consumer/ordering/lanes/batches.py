"""A batch, which is one target transaction of a lane: the net changes of a segment's items, and those of them that are held instead.

A change of a key that has an earlier change in the quarantine queues there behind it. A delete does not queue: the row is gone at the
source, whatever became of the earlier changes, so it is applied and closes the key's entries. All others become net changes.

An update that moves the key is a delete under the old key and an insert under the new one, and only the half that the target refuses is
quarantined: one lane then leaves the same rows and entries as several, which apply the halves apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from consumer.ordering.dispatch import LaneItem, TablePlan, split_key_move
from consumer.ordering.fold import encode_folded
from consumer.ordering.model import ChangeId, QuarantineEntry, ReducedChanges, RowChange
from consumer.ordering.netchange import replace_snapshot_rows
from consumer.ordering.progress import LaneMark
from schemas.table.equality import are_same_values
from schemas.table.model import Key

QuarantinedKey = tuple[str, str]
"""(target table "schema.name", folded key as text)."""
QuarantinePlace = tuple[int, int, Key]
"""Of an entry of the quarantine: (offset, part, exact key). Exact keys that are equal are one key: 0.0 and -0.0, whose texts differ."""
QUEUED_AFTER = "held behind offset"
"""How the error of an entry begins that only queues behind a refused one."""


@dataclass(slots=True)
class LaneBatch:
    """The changes of one target transaction, with `mark` as the lane's new progress (written last).

    `displacing`: None, or JSON to hand to `Transaction.apply(displacing=…)`. `held`: for `Transaction.hold`. `closed`: entries, also of `held`,
    that a row of a snapshot or a delete settles: they leave the quarantine with this transaction. `places`: what it leaves held of the keys that it touches.
    `events`: (first, last) ids of what is applied; None for a pure progress write. `count`: events in it.
    """

    nets: list[ReducedChanges]
    mark: LaneMark
    quarantined: list[QuarantineEntry] = field(default_factory=list)
    closed: list[ChangeId] = field(default_factory=list)
    places: dict[QuarantinedKey, list[QuarantinePlace]] = field(default_factory=dict)
    displacing: str | None = None
    events: tuple[ChangeId, ChangeId] | None = None
    count: int = 0


@dataclass(slots=True)
class Segment:
    """A stretch of items that is applied in one transaction, and what has been tried on it."""

    items: list[LaneItem]
    end: LaneMark | None = None  # the drain mark, when this is the last segment before it
    tries: int = 0
    violations: int = 0
    replaces_rows: bool = False  # a snapshot's rows replace what the target has of their keys
    displacing: bool = False
    #: Of a single event: the parts that the target refused, which go to quarantine, and why. A key move in one lane has two parts, 0 and 1.
    refused: dict[int, str] = field(default_factory=dict)
    batch: LaneBatch | None = None  # built; an untouched segment is tried again with the same


class QuarantinedKeys:
    """The keys that have changes in the quarantine, as one lane knows them: a batch says what it makes of them, and is `committed`, or forgotten."""

    def __init__(self, held: Sequence[QuarantineEntry]) -> None:
        """`held`: quarantine entries of the unit."""
        self._entries: dict[
            QuarantinedKey, list[QuarantinePlace]
        ] = {}  # the first entry of a key, if any, holds it
        for entry in held:
            self._entries.setdefault((entry.table, entry.folded), []).append(_get_entry_place(entry))

    def split_free_items(
        self, items: list[LaneItem], batch: LaneBatch, refused: Mapping[int, str]
    ) -> list[LaneItem]:
        """Return what of `items` is applied. The rest is recorded in `batch.held`: what is refused, and what queues behind it.

        `refused`: the parts of a single item that the target refused, and why.
        """
        if not self._entries and not refused and all(item[0].refused is None for item in items):
            return items
        free: list[LaneItem] = []
        for item in items:
            change, plan, key, _waits = item
            for part, folded in _split_change(change, plan, key):
                earlier = self._get_places(batch, plan, folded)
                error = refused.get(part.id[1], part.refused)
                settles = _settles_key(part, plan)
                if part.snapshot or (settles and error is None):
                    _close_entries(batch, earlier, _build_exact_key(part, plan))
                if earlier and not settles:
                    # another key that folds alike counts, too: to the target it may be the same, and a retry must know of both
                    error = f"{QUEUED_AFTER} {earlier[0][0]}"
                if error is None:
                    free.append((part, plan, folded, ()))
                else:
                    entry = _build_quarantine_entry(part, plan, folded, error)
                    batch.quarantined.append(entry)
                    earlier.append(_get_entry_place(entry))
        return free

    def record_commit(self, batch: LaneBatch) -> None:
        """The batch is in the target: know its keys as it left them."""
        for place, entries in batch.places.items():
            if entries:
                self._entries[place] = entries
            else:
                self._entries.pop(place, None)

    def _get_places(self, batch: LaneBatch, plan: TablePlan, folded: bytes) -> list[QuarantinePlace]:
        """Return what is held of a key as the batch leaves it, so far; to be changed in place."""
        place = (plan.name, encode_folded(folded))
        if place not in batch.places:
            batch.places[place] = list(self._entries.get(place, ()))
        return batch.places[place]


def build_batch(segment: Segment, lane: int, held: QuarantinedKeys) -> LaneBatch:
    """Return what is to be applied of `segment`: the costly part of a lane."""
    items = segment.items
    first, last = items[0][0].id, items[-1][0].id
    batch = LaneBatch([], segment.end or _build_mark(items[-1][0]), events=(first, last), count=len(items))
    if segment.displacing:
        batch.displacing = _encode_displacing(lane, first, last)
    groups: dict[TablePlan, list[RowChange]] = {}
    for item in held.split_free_items(items, batch, segment.refused):
        plan = item[1]
        if plan in groups:
            groups[plan].append(item[0])
        else:
            groups[plan] = [item[0]]
    batch.nets = [plan.reducer.reduce(changes) for plan, changes in groups.items()]
    if segment.replaces_rows:
        batch.nets = [replace_snapshot_rows(net) for net in batch.nets]
    return batch


def _encode_displacing(lane: int, first: ChangeId, last: ChangeId) -> str:
    return msgspec.json.encode({"lane": lane, "from": first, "to": last}).decode()


def _split_change(change: RowChange, plan: TablePlan, key: bytes) -> list[tuple[RowChange, bytes]]:
    """Return the change, or its halves when it moves the key: each is held, or applied, under its own key."""
    if change.after is None or not moves_key(change, plan):
        return [(change, key)]
    first, second = split_key_move(change)
    return [(first, key), (second, plan.fold_key(change.after))]


def moves_key(change: RowChange, plan: TablePlan) -> bool:
    """Return whether the change is an update that gives its row another key, be it 0.0 instead of -0.0: entries are recorded by exact key."""
    before, after = change.before, change.after
    return (
        before is not None
        and after is not None
        and not are_same_values(plan.build_key(before), plan.build_key(after))
    )


def _settles_key(part: RowChange, plan: TablePlan) -> bool:
    """Return whether the change is the last word on its key, whatever is in the quarantine: a delete.

    Not where each change is written as an event: its readers never saw the row that is in the quarantine.
    """
    return part.after is None and plan.target.topic is None


def _close_entries(batch: LaneBatch, earlier: list[QuarantinePlace], key: Key) -> None:
    """Close the entries of the very `key`, and not of others that fold like it."""
    closed = [(offset, part) for offset, part, of in earlier if of == key]
    if closed:
        batch.closed += closed
        earlier[:] = [entry for entry in earlier if entry[2] != key]


def _get_entry_place(entry: QuarantineEntry) -> QuarantinePlace:
    return entry.offset, entry.part, tuple(msgspec.json.decode(entry.key))


def _build_quarantine_entry(change: RowChange, plan: TablePlan, folded: bytes, error: str) -> QuarantineEntry:
    return QuarantineEntry(
        offset=change.id[0],
        part=change.id[1],
        table=plan.name,
        key=msgspec.json.encode(_build_exact_key(change, plan)).decode(),
        folded=encode_folded(folded),
        event=change.wire.decode(),
        error=error,
        commit_ts_ms=change.ts_ms,
    )


def _build_exact_key(change: RowChange, plan: TablePlan) -> Key:
    row = change.after if change.before is None else change.before
    return () if row is None else plan.build_key(row)


def _build_mark(change: RowChange) -> LaneMark:
    """Return where a lane stands that has applied `change`."""
    return (change.id[0], change.position, change.gen, change.ts_ms)
