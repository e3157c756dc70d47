"""A target in memory with the semantics that ordering is about: rows by exact key, unique entries, guarded progress.

It implements the part of consumer.targets.base.Session that apply uses, so that a history runs against it as against a real
database. Transactions are atomic and serial; tests/sim has the target with locks and interleaved statements.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from consumer.errors import FencedError, UniqueViolationError
from consumer.model import Held, LaneProgress, NetChange, TargetTable, Unit, UnitState
from schemas.position import ZERO
from schemas.table import Key, Row, Table


@dataclass
class MemoryTarget:
    """What the database holds. One unit; `rows` by table name, then exact key."""

    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)
    progress: dict[int, LaneProgress] = field(default_factory=dict)
    state: UnitState = field(default_factory=lambda: UnitState(None, None, None))
    held: list[Held] = field(default_factory=list)
    displaced: list[Row] = field(default_factory=list)
    commits: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def session(self) -> MemorySession:
        return MemorySession(self)


class MemoryTransaction:
    """Works on copies, which the session puts in place at commit."""

    def __init__(self, target: MemoryTarget) -> None:
        self.rows = {name: dict(rows) for name, rows in target.rows.items()}
        self.progress = dict(target.progress)
        self.state = target.state
        self.held = list(target.held)
        self.displaced = list(target.displaced)

    def apply(self, net: NetChange, *, displacing: str | None = None) -> int:
        before = len(self.displaced)
        rows = self.rows.setdefault(net.table.name, {})
        for key in net.deletes:
            rows.pop(key, None)
        for row in net.replaces:
            rows.pop(key_of(net.table, row), None)
        for row in net.replaces + net.updates:
            for other in conflicts(net.table, rows, row):
                if displacing is None:
                    raise UniqueViolationError(f"{row} meets {other}")
                del rows[key_of(net.table, other)]
                if not net.catch_up:
                    self.displaced.append(other)
            rows[key_of(net.table, row)] = row
        return len(self.displaced) - before

    def truncate(self, table: TargetTable, where: dict[str, str] | None) -> None:
        self.rows[table.name] = {}

    def hold(self, held: Sequence[Held]) -> None:
        self.held.extend(held)

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        for row in rows:
            self.progress[row.lane] = row

    def write_unit(self, state: UnitState) -> None:
        self.state = state

    def relayout(self, rows: Sequence[LaneProgress]) -> None:
        self.progress = {row.lane: row for row in rows}


class MemorySession:
    def __init__(self, target: MemoryTarget) -> None:
        self.target = target

    def ensure_bookkeeping(self) -> None: ...

    def create_table(self, table: Table) -> None:
        self.target.rows.setdefault(table.name, {})

    def take_over(
        self,
        unit: Unit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        with self.target.mutex:
            if not self.target.progress:
                for lane in range(lanes):
                    self.target.progress[lane] = LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout)
            rows = {lane: replace(row, epoch=row.epoch + 1) for lane, row in self.target.progress.items()}
            self.target.progress = rows
            return rows[0].epoch, _in_order(rows), self.target.state

    def begin(self, unit: Unit, epoch: int) -> tuple[list[LaneProgress], UnitState, list[Held]]:
        with self.target.mutex:
            if any(row.epoch != epoch for row in self.target.progress.values()):
                raise FencedError("another epoch")
            rows = {lane: replace(row, attempt=row.attempt + 1) for lane, row in self.target.progress.items()}
            self.target.progress = rows
            return _in_order(rows), self.target.state, list(self.target.held)

    @contextmanager
    def transaction(self, unit: Unit, guards: Sequence[LaneProgress]) -> Iterator[MemoryTransaction]:
        with self.target.mutex:
            for guard in guards:
                row = self.target.progress.get(guard.lane)
                if row is None or (row.epoch, row.attempt, row.offset) != (
                    guard.epoch,
                    guard.attempt,
                    guard.offset,
                ):
                    raise FencedError(f"{row} is not {guard}")
            transaction = MemoryTransaction(self.target)
            yield transaction
            self.target.rows, self.target.progress = transaction.rows, transaction.progress
            self.target.state, self.target.held = transaction.state, transaction.held
            self.target.displaced = transaction.displaced
            self.target.commits += 1

    def fetch_rows(
        self, table: TargetTable, after: Key | None, limit: int, where: dict[str, str] | None = None
    ) -> list[Row]:
        keys = sorted(key for key in self.target.rows.get(table.name, {}) if after is None or key > after)
        return [self.target.rows[table.name][key] for key in keys[:limit]]

    def close(self) -> None: ...


def key_of(table: TargetTable, row: Row) -> Key:
    return tuple(row[at] for at in table.key_at)


def conflicts(table: TargetTable, rows: dict[Key, Row], row: Row) -> list[Row]:
    """Return the rows of other keys that hold a unique value (without NULL) that `row` needs."""
    key, found = key_of(table, row), {}
    for at in table.unique_at:
        value = tuple(row[i] for i in at)
        if None in value:
            continue
        for other_key, other in rows.items():
            if other_key != key and tuple(other[i] for i in at) == value:
                found[other_key] = other
    return list(found.values())


def _in_order(rows: dict[int, LaneProgress]) -> list[LaneProgress]:
    return [rows[lane] for lane in sorted(rows)]
