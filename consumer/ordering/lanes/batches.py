"""A batch, which is one target transaction of a lane: the net changes of a segment's items, and those of them that are held instead.

A change of a key of which an earlier change is in the quarantine queues there, behind it; all others become net changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from consumer.ordering.dispatch import Item, TablePlan, halves
from consumer.ordering.fold import folded_text
from consumer.ordering.model import EventId, Held, Reduced, RowChange
from consumer.ordering.netchange import anew
from consumer.ordering.progress import Mark

HeldKey = tuple[str, str]
"""(target table "schema.name", folded key as text)."""
HeldAt = tuple[int, int, str]
"""Of an entry of the quarantine: (offset, part, exact key as text)."""
HELD_BEHIND = "held behind offset"
"""How the error of an entry begins that only queues behind a refused one."""


@dataclass(slots=True)
class Batch:
    """The changes of one target transaction, with `mark` as the lane's new progress (written last).

    `displacing`: None, or JSON to hand to `Transaction.apply(displacing=…)`. `held`: for `Transaction.hold`. `closed`: entries, also of `held`,
    that a row of a snapshot replaces: they leave the quarantine behind that. `places`: what it leaves held of the keys that it touches.
    `events`: (first, last) ids of what is applied; None for a pure progress write. `count`: events in it.
    """

    nets: list[Reduced]
    mark: Mark
    held: list[Held] = field(default_factory=list)
    closed: list[EventId] = field(default_factory=list)
    places: dict[HeldKey, list[HeldAt]] = field(default_factory=dict)
    displacing: str | None = None
    events: tuple[EventId, EventId] | None = None
    count: int = 0


@dataclass(slots=True)
class Segment:
    """A stretch of items that is applied in one transaction, and what has been tried on it."""

    items: list[Item]
    end: Mark | None = None  # the drain mark, when this is the last segment before it
    tries: int = 0
    violations: int = 0
    anew: bool = False  # a snapshot's rows replace what the target has of their keys
    displacing: bool = False
    refused: str | None = None  # of a single event: why it goes to quarantine
    batch: Batch | None = None  # built; an untouched segment is tried again with the same


class HeldKeys:
    """The keys that have changes in the quarantine, as one lane knows them: a batch says what it makes of them, and is `committed`, or forgotten."""

    def __init__(self, held: Sequence[Held]) -> None:
        """`held`: quarantine entries of the unit."""
        self._entries: dict[HeldKey, list[HeldAt]] = {}  # the first entry of a key, if any, holds it
        for entry in held:
            self._entries.setdefault((entry.table, entry.folded), []).append(_at(entry))

    def free(self, items: list[Item], batch: Batch) -> list[Item]:
        """Return `items` without those that are refused and the changes of held keys, which are recorded in `batch.held`."""
        if not self._entries and all(item[0].refused is None for item in items):
            return items
        free: list[Item] = []
        for item in items:
            change, plan, key, _waits = item
            for part, folded in _parts(change, plan, key):
                behind = self._place(batch, plan, folded)
                if behind and part.snapshot:
                    _close(batch, behind, _key_text(part, plan))
                if behind:  # by what may be the same key to the target: a retry then knows of both
                    error = f"{HELD_BEHIND} {behind[0][0]}"
                    _hold(batch, behind, part, _held(part, plan, folded, error))
                elif part.refused is not None:
                    _hold(batch, behind, part, _held(part, plan, folded, part.refused))
                else:
                    free.append((part, plan, folded, ()))
        return free

    def refuse(self, item: Item, why: str, batch: Batch) -> None:
        """Record in `batch` that the target refused `item`."""
        change, plan, key, _waits = item
        for part, folded in _parts(change, plan, key):
            behind = self._place(batch, plan, folded)
            _hold(batch, behind, part, _held(part, plan, folded, why))

    def committed(self, batch: Batch) -> None:
        """The batch is in the target: know its keys as it left them."""
        for place, entries in batch.places.items():
            if entries:
                self._entries[place] = entries
            else:
                self._entries.pop(place, None)

    def _place(self, batch: Batch, plan: TablePlan, folded: bytes) -> list[HeldAt]:
        """Return what is held of a key as the batch leaves it, so far; to be changed in place."""
        place = (plan.name, folded_text(folded))
        if place not in batch.places:
            batch.places[place] = list(self._entries.get(place, ()))
        return batch.places[place]


def build(segment: Segment, lane: int, held: HeldKeys) -> Batch:
    """Return what is to be applied of `segment`: the costly part of a lane."""
    items = segment.items
    first, last = items[0][0].id, items[-1][0].id
    batch = Batch([], segment.end or _mark(items[-1][0]), events=(first, last), count=len(items))
    if segment.displacing:
        batch.displacing = _describe(lane, first, last)
    if segment.refused is not None:
        held.refuse(items[0], segment.refused, batch)
        return batch
    groups: dict[TablePlan, list[RowChange]] = {}
    for item in held.free(items, batch):
        plan = item[1]
        if plan in groups:
            groups[plan].append(item[0])
        else:
            groups[plan] = [item[0]]
    batch.nets = [plan.reducer.reduce(changes) for plan, changes in groups.items()]
    if segment.anew:
        batch.nets = [anew(net) for net in batch.nets]
    return batch


def _describe(lane: int, first: EventId, last: EventId) -> str:
    return msgspec.json.encode({"lane": lane, "from": first, "to": last}).decode()


def _parts(change: RowChange, plan: TablePlan, key: bytes) -> list[tuple[RowChange, bytes]]:
    """Return the change, or its halves when it moves the key: each is held, or applied, under its own key."""
    before, after = change.before, change.after
    if before is None or after is None or plan.key_of(before) == plan.key_of(after):
        return [(change, key)]
    first, second = halves(change)
    return [(first, key), (second, plan.fold_key(after))]


def _hold(batch: Batch, behind: list[HeldAt], part: RowChange, entry: Held) -> None:
    """Put a change into the quarantine, as `entry`, where `behind` is of its key; a snapshot's row takes the place of what is there."""
    if behind and part.snapshot:
        _close(batch, behind, entry.key)
    batch.held.append(entry)
    behind.append(_at(entry))


def _close(batch: Batch, behind: list[HeldAt], key: str) -> None:
    """Close what is held of the very `key`, and not of others that fold like it."""
    batch.closed += [(offset, part) for offset, part, of in behind if of == key]
    behind[:] = [entry for entry in behind if entry[2] != key]


def _at(entry: Held) -> HeldAt:
    return entry.offset, entry.part, entry.key


def _held(change: RowChange, plan: TablePlan, folded: bytes, error: str) -> Held:
    return Held(
        offset=change.id[0],
        part=change.id[1],
        table=plan.name,
        key=_key_text(change, plan),
        folded=folded_text(folded),
        event=change.wire.decode(),
        error=error,
        commit_ts_ms=change.ts_ms,
    )


def _key_text(change: RowChange, plan: TablePlan) -> str:
    row = change.after if change.before is None else change.before
    return msgspec.json.encode(plan.key(row) if row is not None else ()).decode()


def _mark(change: RowChange) -> Mark:
    """Return where a lane stands that has applied `change`."""
    return (change.id[0], change.position, change.gen, change.ts_ms)
