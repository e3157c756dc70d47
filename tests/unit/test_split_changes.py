"""A batch of all lanes is divided into free and quarantined changes as a lane's batch is, by faster ways."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as altered

from consumer.ordering.dispatch import LaneItem, TablePlan, get_image
from consumer.ordering.fold import (
    encode_folded,
    is_integer_key,
    make_key_fold,
    make_key_values_fold,
    yield_integers,
)
from consumer.ordering.lanes.batches import MAX_SUPERSEDED_ENTRIES, QuarantineChanges, QuarantinedKeys
from consumer.ordering.layout import Layout
from consumer.ordering.model import QuarantineEntry, RowChange, format_entry_key
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex, Value
from tests.kits.history import target_table

KEYS = (0.0, 1.0, 1.0 + 1e-12, -0.0, 2.0, 3.0)
"""The second and the third fold alike, and -0.0 and 0.0 are one key."""
INTEGERS = (0, 1, -2, 3, 4, 5)
MANY_DIGITS = (0, 1, "9007199254740993", 3, 4, 5)
"""Integers as events have them: a text beyond 2^53."""


def build_plan(kind: Kind = Kind.DOUBLE) -> TablePlan:
    target = target_table()
    key = Column(name="id", type=ColumnType(kind=kind), nullable=False)
    table = altered(target.table, columns=(key, *target.table.columns[1:]))
    return TablePlan(replace(target, table=table), Layout(lanes=1), TicketTable(1), None)


PLAN = build_plan()
ROW: Row = (1.0, "a", 1, 0)


def draw_entries(
    rng: random.Random, plan: TablePlan = PLAN, keys: Sequence[Value] = KEYS
) -> list[QuarantineEntry]:
    entries = []
    for offset in range(rng.randrange(1, 3 * MAX_SUPERSEDED_ENTRIES)):
        key = rng.choice(keys[:4])
        folded = encode_folded(plan.fold_key((key, None, None, 0)))
        error = rng.choice(["too long", "held behind offset 0", "held behind offset 0"])
        entries.append(
            QuarantineEntry(offset, 0, plan.name, format_entry_key((key,)), folded, "{}", error, 0)
        )
    return entries


def draw_change(rng: random.Random, offset: int, keys: Sequence[Value] = KEYS) -> RowChange:
    before: Row = (rng.choice(keys), "a", 1, offset)
    key = before[0] if rng.random() < 0.7 else rng.choice(keys)
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


def draw_updates(rng: random.Random, keys: Sequence[Value]) -> list[RowChange]:
    """Return changes of a batch, most of which update a row in place, some also its unique value."""
    pending = []
    for offset in range(100, 100 + rng.randrange(1, 12)):
        change = draw_change(rng, offset, keys)
        if rng.random() < 0.9:
            key, email = rng.choice(keys), rng.choice("ab")
            after = -key if key == 0 and rng.random() < 0.3 else key
            change = RowChange((offset, 0), (key, "a", 1, offset), (after, email, 1, offset + 1))
        pending.append(change)
    return pending


@pytest.mark.parametrize(
    ("kind", "keys"),
    [(Kind.DOUBLE, KEYS), (Kind.INT, INTEGERS), (Kind.INT, MANY_DIGITS), (Kind.DECIMAL, INTEGERS)],
)
def test_updates_of_quarantined_keys_leave_the_net_change_as_if_they_were_divided_first(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, keys: Sequence[Value]
) -> None:
    plan = build_plan(kind)
    divided = list[int]()
    divide = QuarantinedKeys.split_free_changes
    quarantined = superseded = 0

    def count_divided(*arguments: Any) -> list[RowChange]:
        divided.append(1)
        return divide(*arguments)

    monkeypatch.setattr(QuarantinedKeys, "split_free_changes", count_divided)
    for seed in range(1500):
        rng = random.Random(seed)
        held, pending = draw_entries(rng, plan, keys), draw_updates(rng, keys)
        expected, faster = QuarantineChanges(), QuarantineChanges()
        free = divide(QuarantinedKeys(held), pending, plan, expected)
        nets = QuarantinedKeys(held).reduce_free_changes(pending, plan, faster)
        assert nets == ([plan.reducer.reduce(free)] if free else []), seed
        for name in ("added", "closed", "superseded", "places"):
            assert getattr(faster, name) == getattr(expected, name), (seed, name)
        quarantined += len(faster.added)
        superseded += bool(faster.superseded)
    assert 150 < len(divided) < 1350
    assert quarantined > 500
    assert superseded


def test_an_update_from_zero_to_negative_zero_moves_the_key() -> None:
    folded = encode_folded(PLAN.fold_key((0.0, None, None, 0)))
    held = QuarantinedKeys([QuarantineEntry(1, 0, PLAN.name, "[0.0]", folded, "{}", "too long", 0)])
    moved: Row = (-0.0, "a", 1, 1)
    pending = [RowChange((7, 0), (0.0, "a", 1, 0), moved), RowChange((8, 0), moved, (-0.0, "b", 1, 2))]
    changes = QuarantineChanges()
    [net] = held.reduce_free_changes(pending, PLAN, changes)
    assert list(net.rows) == [(-0.0, "b", 1, 2)]
    assert (changes.added, changes.closed) == ([], [(1, 0)])


def test_updates_of_a_quarantined_key_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(QuarantinedKeys, "split_free_changes")
    folded = encode_folded(PLAN.fold_key((1.0, None, None, 0)))
    held = QuarantinedKeys([QuarantineEntry(1, 0, PLAN.name, "[1.0]", folded, "{}", "too long", 0)])
    pending = [
        RowChange((at, 0), (key, "a", 1, at), (key, "b", 1, at + 1))
        for at, key in enumerate((1.0, 2.0, 1.0, 3.0, 1.0), start=10)
    ]
    changes = QuarantineChanges()
    [net] = held.reduce_free_changes(pending, PLAN, changes)
    assert [row[0] for row in net.rows] == [2.0, 3.0]
    assert [(entry.offset, entry.error) for entry in changes.added] == [(14, "held behind offset 1")]


def test_a_batch_of_a_quarantined_key_alone_writes_nothing() -> None:
    folded = encode_folded(PLAN.fold_key((1.0, None, None, 0)))
    held = QuarantinedKeys([QuarantineEntry(1, 0, PLAN.name, "[1.0]", folded, "{}", "too long", 0)])
    changes = QuarantineChanges()
    assert held.reduce_free_changes([RowChange((7, 0), ROW, ROW)], PLAN, changes) == []
    assert [entry.offset for entry in changes.added] == [7]


def build_table(*kinds: Kind) -> Table:
    columns = tuple(
        Column(name=f"c{at}", type=ColumnType(kind=kind, length=20, collation="utf8mb4_general_ci"))
        for at, kind in enumerate(kinds)
    )
    parts = tuple(IndexPart(column=column.name) for column in reversed(columns))
    return Table(db="d", name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


def test_an_integer_is_found_by_its_text_only() -> None:
    assert list(yield_integers([b"7", b"-5", b"1_0", b" 8", b"", b"x", b"9.0"])) == [7, -5]


@pytest.mark.parametrize(
    ("kinds", "is_one"),
    [((Kind.INT,), True), ((Kind.YEAR,), True), ((Kind.DOUBLE,), False), ((Kind.INT, Kind.INT), False)],
)
def test_only_a_single_column_is_an_integer_key(kinds: Sequence[Kind], is_one: bool) -> None:
    assert is_integer_key(build_table(*kinds)) == is_one


VALUES = (0, 7, "7", "9007199254740993", 0.0, -0.0, 1.5, "1.50", "Straße", "STRASSE ", None)


@pytest.mark.parametrize("kind", [Kind.INT, Kind.DECIMAL, Kind.DOUBLE, Kind.VARCHAR, Kind.DATETIME])
@pytest.mark.parametrize("value", VALUES)
def test_a_key_alone_has_the_fold_of_its_row(kind: Kind, value: Value) -> None:
    single, pair = build_table(kind), build_table(kind, Kind.INT)
    assert make_key_values_fold(single)(value) == make_key_fold(single)((value,))
    assert make_key_values_fold(pair)((5, value)) == make_key_fold(pair)((value, 5))


def _get_final_rows(changes: list[RowChange]) -> dict[object, Row | None]:
    """Return key → its row after the changes; None: there is none."""
    rows: dict[object, Row | None] = {}
    for change in changes:
        if change.before is not None:
            rows[PLAN.key_of(change.before)] = None
        if change.after is not None:
            rows[PLAN.key_of(change.after)] = change.after
    return rows
