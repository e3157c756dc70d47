"""A batch of all lanes is divided into free and quarantined changes as a lane's batch is, by a faster way."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec.structs import replace as altered

from consumer.ordering.dispatch import LaneItem, TablePlan, get_image
from consumer.ordering.fold import encode_folded
from consumer.ordering.lanes.batches import MAX_SUPERSEDED_ENTRIES, QuarantineChanges, QuarantinedKeys
from consumer.ordering.layout import Layout
from consumer.ordering.model import QuarantineEntry, RowChange, format_entry_key
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Column, ColumnType, Kind, Row
from tests.kits.history import target_table

KEYS = (0.0, 1.0, 1.0 + 1e-12, -0.0, 2.0, 3.0)
"""The second and the third fold alike, and -0.0 and 0.0 are one key."""


def build_plan() -> TablePlan:
    target = target_table()
    key = Column(name="id", type=ColumnType(kind=Kind.DOUBLE), nullable=False)
    table = altered(target.table, columns=(key, *target.table.columns[1:]))
    return TablePlan(replace(target, table=table), Layout(lanes=1), TicketTable(1), None)


PLAN = build_plan()


def draw_entries(rng: random.Random) -> list[QuarantineEntry]:
    entries = []
    for offset in range(rng.randrange(1, 3 * MAX_SUPERSEDED_ENTRIES)):
        key = rng.choice(KEYS[:4])
        folded = encode_folded(PLAN.fold_key((key, None, None, 0)))
        error = rng.choice(["too long", "held behind offset 0", "held behind offset 0"])
        entries.append(
            QuarantineEntry(offset, 0, PLAN.name, format_entry_key((key,)), folded, "{}", error, 0)
        )
    return entries


def draw_change(rng: random.Random, offset: int) -> RowChange:
    before: Row = (rng.choice(KEYS), "a", 1, offset)
    key = before[0] if rng.random() < 0.7 else rng.choice(KEYS)
    after: Row = (key, "a", 1, offset + 1)
    snapshot = rng.random() < 0.1
    kind = "c" if snapshot else rng.choice("ucd")
    return RowChange(
        (offset, 0), None if kind == "c" else before, None if kind == "d" else after, snapshot=snapshot
    )


def test_both_ways_divide_a_batch_alike() -> None:
    quarantined = superseded = 0
    for seed in range(2000):
        rng = random.Random(seed)
        held = draw_entries(rng)
        pending = [draw_change(rng, 100 + at) for at in range(rng.randrange(1, 12))]
        items: list[LaneItem] = [
            (change, PLAN, PLAN.fold_key(change.before or get_image(change)), ()) for change in pending
        ]
        by_items, by_changes = QuarantineChanges(), QuarantineChanges()
        free = [item[0] for item in QuarantinedKeys(held).split_free_items(items, by_items, {})]
        faster = QuarantinedKeys(held).split_free_changes(pending, PLAN, by_changes)
        assert _get_final_rows(faster) == _get_final_rows(free), seed
        for name in ("added", "closed", "superseded"):
            assert getattr(by_changes, name) == getattr(by_items, name), (seed, name)
        quarantined += len(by_changes.added)
        superseded += bool(by_changes.superseded)
    assert quarantined > 1000
    assert superseded > 5


def _get_final_rows(changes: list[RowChange]) -> dict[object, Row | None]:
    """Return key → its row after the changes; None: there is none."""
    rows: dict[object, Row | None] = {}
    for change in changes:
        if change.before is not None:
            rows[PLAN.key_of(change.before)] = None
        if change.after is not None:
            rows[PLAN.key_of(change.after)] = change.after
    return rows
