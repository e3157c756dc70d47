"""Histories of which a target refuses rows end alike with any number of lanes: rows, quarantine, displaced
rows.

The judge applies each half of each change for itself, in the order of the topic. Two things depend on when a
lane commits, so the histories leave them out:

- *A row that fits follows one that was refused* (or a key that folds like a refused one is deleted), and both
  are in one batch: the batch never shows the refused row to the target. So with batches of several events no
  such row comes while its key is held. Lanes alone do not recover a key: the attempt does, once they have
  drained (test_quarantine_recovers.py).
- *A value that a held key has given up at the source*, and its older row in the target still has: whether
  another row meets it depends on whether the held key's delete has come by then, for the delete has no ticket
  of a value that the source's row no longer had. So no row takes such a value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace as altered

from consumer.errors import RefusedError
from consumer.ordering.fold import make_key_fold
from consumer.ordering.model import TargetTable
from consumer.ordering.reasons import QUEUED_AFTER
from schemas.table.model import Column, ColumnType, Key, Kind, Row
from tests.kits.history import Event, TopicHistory, run_pure, target_table
from tests.stands.fake_target import FakeTarget

NAME = "public.history"
Place = tuple[int, int]
Entry = tuple[Place, str, str]
"""Of the quarantine: ((offset, part), key, why)."""
DRIFT: Row = (99.0, "n9", None, 0)
"""A row that somebody else has written into the target, under a key that the source never has."""


def _table() -> TargetTable:
    table = target_table()
    key = Column(name="id", type=ColumnType(kind=Kind.DOUBLE), nullable=False)
    return replace(table, table=altered(table.table, columns=(key, *table.table.columns[1:])))


TABLE = _table()
FOLD = make_key_fold(TABLE.table)
KEYS = (1.0, 1.0 + 1e-12, 2.0, 3.0, 4.0)
"""The first two are two rows to source and target, and fold alike."""
assert FOLD((KEYS[0],)) == FOLD((KEYS[1],)), "else no key folds like another"


KEEP: Any = "keep"


class Op(NamedTuple):
    """What the source does: `put` or `drop` the row of `key`, or `move` it to the key `other`. `a`, `b`: its
    unique values, or KEEP.

    `refused`: None, "bad" (by the target), or "unsent" (known to be refused before it is sent), of the new
    row.
    """

    what: str
    key: float
    other: float
    a: str | None
    b: int | None
    refused: str | None


@dataclass
class Judge:
    """The target as it must be after each event. `replaces`: `conflicts: replace`."""

    replaces: bool
    rows: dict[Key, Row] = field(default_factory=dict)
    held: dict[bytes, list[Entry]] = field(default_factory=dict)
    closed: set[Place] = field(default_factory=set)
    displaced: list[Row] = field(default_factory=list)

    @property
    def entries(self) -> list[Entry]:
        return sorted(entry for entries in self.held.values() for entry in entries)

    def take(self, offset: int, before: Row | None, after: Row | None, refused: str | None) -> None:
        is_move = before is not None and after is not None and before[0] != after[0]
        if before is not None and (after is None or is_move):
            self._delete(before)
        if after is not None:
            self._write((offset, int(is_move)), after, refused)

    def _delete(self, row: Row) -> None:
        self.rows.pop((row[0],), None)
        entries = self.held.pop(FOLD(row), [])
        self.closed |= {place for place, key, _ in entries if key == f"[{row[0]}]"}
        if others := [entry for entry in entries if entry[1] != f"[{row[0]}]"]:
            self.held[FOLD(row)] = others

    def _write(self, place: Place, row: Row, why: str | None) -> None:
        met = {
            key
            for key, other in self.rows.items()
            if key != (row[0],) and any(other[at] == row[at] is not None for at in (1, 2))
        }
        if FOLD(row) in self.held:
            why = why if why == "unsent" else QUEUED_AFTER
        elif why is None and met and not self.replaces:
            why = "unique"
        if why is not None:
            self.held.setdefault(FOLD(row), []).append((place, f"[{row[0]}]", why))
            return
        self.displaced += [self.rows.pop(key) for key in met]
        self.rows[row[0],] = row


class Play:
    """The events that `ops` lead to, and what they must come to. What the source would refuse does
    nothing."""

    def __init__(
        self, ops: Sequence[Op], *, replaces: bool = True, drift: bool = False, recovers: bool = True
    ) -> None:
        """`drift`: the target has a row that another writer wrote. `recovers`: a row that fits may come while
        its key is held."""
        self.start: dict[Key, Row] = {(DRIFT[0],): DRIFT} if drift else {}
        self.judge = Judge(replaces, dict(self.start))
        self.topic: list[Event] = []
        self.bad: set[object] = set()
        self._source: dict[Any, Row] = {}
        self._stale: set[tuple[int, object]] = set()
        for number, op in enumerate(ops):
            before = self._source.get(op.key)
            after = self._after(number, op, before)
            if (before, after) != (None, None) and self._may_be(before, after, op, recovers=recovers):
                self._happens(before, after, op)

    def _after(self, number: int, op: Op, before: Row | None) -> Row | None:
        if op.what == "drop" or (op.what == "move" and before is None):
            return None
        a, b = (
            (None if before is None else before[at]) if value is KEEP else value
            for at, value in ((1, op.a), (2, op.b))
        )
        return (op.other if op.what == "move" else op.key, a, b, number)

    def _may_be(self, before: Row | None, after: Row | None, op: Op, *, recovers: bool) -> bool:
        if after is None:
            return True
        others = [row for row in self._source.values() if row is not before]
        if any(row[at] == after[at] is not None for row in others for at in (0, 1, 2)):
            return False
        taken = {(at, after[at]) for at in (1, 2) if before is None or before[at] != after[at]}
        return not taken & self._stale and (
            recovers or op.refused is not None or FOLD(after) not in self.judge.held
        )

    def _happens(self, before: Row | None, after: Row | None, op: Op) -> None:
        if before is not None:
            del self._source[op.key]
        refused = None
        if after is not None:
            self._source[after[0]] = after
            refused = op.refused
            if refused == "bad":
                self.bad.add(after[3])
        offset = len(self.topic)
        prev = (0, 1, 10 * (offset - 1), 0) if offset else None
        unsent = refused if refused == "unsent" else None
        self.topic.append(Event((0, 1, 10 * offset, 0), prev, 1, before, after, unsent))
        self.judge.take(offset, before, after, refused)
        for (key,), row in self.judge.rows.items():
            if FOLD(row) in self.judge.held:
                now = self._source.get(key, (key, None, None, 0))
                self._stale |= {(at, row[at]) for at in (1, 2) if row[at] not in (None, now[at])}


def run(play: Play, seed: int, *, lanes: int, max_gather: int = 1) -> FakeTarget:
    """Apply it by the product's lanes in attempts of random length, some of which crash."""
    target = FakeTarget(refuse=lambda row: RefusedError("bad") if row[3] in play.bad else None)
    target.state.rows[NAME] = dict(play.start)
    if play.topic:
        run_pure(
            TopicHistory([], play.topic), target.session(), TABLE, lanes=lanes, max_gather=max_gather,
            rng=random.Random(seed), replace=play.judge.replaces,
        )  # fmt: skip
    return target


def entries_of(target: FakeTarget) -> list[Entry]:
    return [
        ((each.offset, each.part), each.key, why_of(each.error))
        for _, each in sorted(target.state.held.items())
    ]


def newest(entries: Sequence[Entry]) -> dict[str, Entry]:
    """The last entry of each key: of several that queue in one batch only that one is kept."""
    return {entry[1]: entry for entry in entries}


def why_of(error: str) -> str:
    """The kind of an entry's error: its words name an offset, or what was in the way."""
    return next((each for each in ("bad", "unsent", QUEUED_AFTER) if error.startswith(each)), "unique")


def drawn(rng: random.Random, keys: Sequence[float], names: Sequence[str]) -> list[Op]:
    return [
        Op(
            rng.choice(("put", "put", "put", "drop", "move", "move", "move")),
            rng.choice(keys),
            rng.choice(keys),
            rng.choice((KEEP, KEEP, None, *names)),
            rng.choice((KEEP, KEEP, None, 0, 1)),
            rng.choice((None, None, None, "bad", "bad", "unsent")),
        )
        for _ in range(30)
    ]


# Seeds, and not Hypothesis: short histories show little, and it prefers them.


@pytest.mark.parametrize("conflicts", ["replace", "quarantine"])
@pytest.mark.parametrize("part", range(4))
def test_row_by_row_any_number_of_lanes_ends_as_the_judge(part: int, conflicts: str) -> None:
    for seed in range(part * 20, part * 20 + 20):
        rng = random.Random(seed)
        play = Play(drawn(rng, KEYS, ("n0", "n1", "n9")), replaces=conflicts == "replace", drift=True)
        judge = play.judge
        for lanes in range(1, 6):
            target, where = run(play, seed, lanes=lanes), f"seed {seed}, {lanes} lanes"
            assert target.state.rows[NAME] == judge.rows, where
            assert entries_of(target) == judge.entries, where
            assert sorted(target.state.displaced, key=str) == sorted(judge.displaced, key=str), where
            assert {(each.offset, each.part) for each, _ in target.state.closed} == judge.closed, where


@pytest.mark.parametrize("part", range(4))
def test_in_batches_any_number_of_lanes_ends_as_the_judge(part: int) -> None:
    for seed in range(part * 20, part * 20 + 20):
        rng = random.Random(seed)
        play = Play(drawn(rng, KEYS[1:], ("n0", "n1")), recovers=False)
        max_gather = rng.randint(2, 20)
        for lanes in range(1, 6):
            target = run(play, seed, lanes=lanes, max_gather=max_gather)
            where = f"seed {seed}, {lanes} lanes, batches of {max_gather}"
            assert target.state.rows[NAME] == play.judge.rows, where
            assert newest(entries_of(target)) == newest(play.judge.entries), where
            assert target.state.displaced == [], where


def test_drawn_histories_hold_close_and_displace() -> None:
    """Else they would show nothing."""
    judges = [
        Play(drawn(random.Random(seed), KEYS, ("n0", "n1", "n9")), replaces=seed % 2 == 0, drift=True).judge
        for seed in range(80)
    ]
    assert sum(bool(judge.held) for judge in judges) > 60
    assert sum(bool(judge.closed) for judge in judges) > 60
    assert sum(bool(judge.displaced) for judge in judges) > 10
    assert sum(why == "unique" for judge in judges for *_, why in judge.entries) > 5
