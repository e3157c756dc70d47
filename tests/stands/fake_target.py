"""A target in memory: consumer.targets.base without SQL, with faults to order.

Guards, unique keys, quarantine and displacement behave as the contract requires; a transaction works on a
copy and replaces the state when it commits, so a rolled back one leaves nothing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Any

from msgspec import structs

from consumer.errors import (
    CommitUnknownError,
    FencedError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.fencing_tokens import compute_next_epoch
from consumer.ordering.model import (
    ApplyUnit,
    KeptRows,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    UnitState,
    build_aged_entry,
    format_entry_key,
)
from consumer.targets.alterations import (
    AddColumn,
    Alteration,
    AlterTable,
    ChangeColumn,
    DropTable,
    RenameColumn,
    apply_alterations,
)
from consumer.targets.checks.table_facts import TableFacts
from schemas.problems import Problem
from schemas.table.model import Key, Kind, Row, Table
from schemas.table.names import EXACT
from schemas.wire.position import ZERO

_NUMBERS = count(1)


@dataclass
class State:
    """What a transaction may change. Rows are in the order of their table's columns."""

    tables: dict[str, Table] = field(default_factory=dict)
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)
    lanes: dict[int, LaneProgress] = field(default_factory=dict)
    unit: UnitState = field(default_factory=lambda: UnitState(definition=None, ddl=None, stopped=None))
    others: dict[str, UnitState] = field(default_factory=dict)
    held: dict[tuple[int, int], QuarantineEntry] = field(default_factory=dict)
    closed: list[tuple[QuarantineEntry, str]] = field(default_factory=list)
    displaced: list[Row] = field(default_factory=list)
    displaced_by: list[tuple[str, str]] = field(default_factory=list)
    """Of each displaced row its table, and what took its place."""
    superseded: list[tuple[str, int, str]] = field(default_factory=list)
    kept: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """(table, key as JSON) of each row that stays although the source removed it → offset and statement."""


@dataclass
class FakeTarget:
    """`refuse`: row → an error to raise; `refuse_delete`: the same of a key that is to be deleted. `faults`:
    errors that the next transactions raise at commit, in turn (None: none). `unknown_happened`: whether a
    CommitUnknownError comes after the commit happened; its connection is lost with it. `transactional`:
    tables change in transactions. `at`: called with what comes next, or has just been done; a test dies
    there. `altered`: changes of tables, as asked for. `alter_faults`: errors that the next of them raise, in
    turn. `holds`: whether it can be asked for a key. `topic`: of the unit that `state.unit` is of."""

    state: State = field(default_factory=State)
    transactional: bool = True
    at: Callable[[str], None] = lambda _moment: None
    altered: list[AlterTable | DropTable] = field(default_factory=list)
    alter_faults: list[Exception | None] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    refuse: Callable[[Row], Exception | None] = lambda _row: None
    refuse_delete: Callable[[Key], Exception | None] = lambda _key: None
    faults: list[Exception | None] = field(default_factory=list)
    unknown_happened: bool = True
    mutex: Any = field(default_factory=threading.RLock)
    lock_waits: list[float | None] = field(default_factory=list)  # `lock_wait_s` of each transaction
    commits: int = 0
    log: list[tuple[int, ...]] = field(default_factory=list)  # lanes guarded, a tuple a commit
    nets: list[NetChange] = field(default_factory=list)  # as applied, rolled back ones too
    sessions: dict[int, FakeSession] = field(default_factory=dict)
    order: Callable[[Key], Any] = lambda key: key
    holds: Callable[[Key], bool] = lambda _key: True
    age_ms: int | None = None
    """The age of every entry of the quarantine when it is read; None: it does not tell."""
    topic: str = "t"

    @property
    def tables(self) -> dict[str, Table]:
        return self.state.tables

    def session(self) -> FakeSession:
        return FakeSession(self)

    # -- Sessions

    def get_connection(self, number: int) -> FakeSession:
        with self.mutex:
            return self.sessions.setdefault(number, FakeSession(self))

    def drop_if_broken(self, number: int) -> None:
        with self.mutex:
            if self.get_connection(number).lost:
                self.drop_connection(number)

    def drop_connection(self, number: int) -> None:
        with self.mutex:
            self.sessions.pop(number, None)

    def rows_of(self, table: str = "public.acct") -> list[Row]:
        return sorted(self.state.rows.get(table, {}).values(), key=str)


class FakeSession:
    """`lost`: its connection is; whatever is asked of it fails."""

    column_names = EXACT
    table_names = EXACT

    def __init__(self, target: FakeTarget) -> None:
        self._target = target
        self.lost = False
        self.number = next(_NUMBERS)

    @property
    def transactional_ddl(self) -> bool:
        return self._target.transactional

    def get_connection_id(self) -> int:
        self._alive()
        return self.number

    def end_connection(self, connection: int) -> None:
        self._target.ended.append(connection)

    def alter_table(self, change: AlterTable | DropTable, *, connection: int) -> None:
        with self._target.mutex:
            self._alive()
            assert not self._target.transactional
            self._target.at("alter")
            if connection != self.number or connection in self._target.ended:
                raise TransientError(f"connection {connection} is lost")
            work = copy.deepcopy(self._target.state)
            alter(self._target, work, change)
            self._target.state = work
            self._target.at("altered")

    def list_unit_topics(self, pipeline: str) -> list[str]:
        return [self._target.topic] if self._target.state.lanes else []

    def read_unit_states(self, pipeline: str, topics: Sequence[str] | None = None) -> dict[str, UnitState]:
        state = self._target.state
        found = {**({self._target.topic: state.unit} if state.lanes else {}), **state.others}
        return {topic: each for topic, each in found.items() if topics is None or topic in topics}

    def list_defined_topics(self, pipeline: str) -> list[str]:
        return [name for name, state in self.read_unit_states(pipeline).items() if state.definition]

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        state = self._target.state
        if not state.lanes:
            for lane in range(lanes):
                state.lanes[lane] = LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout)
        highest = max(row.epoch for row in state.lanes.values())
        epoch = compute_next_epoch(unit, highest, assigned=assigned, above=above, now_ms=0)
        state.lanes = {lane: structs.replace(row, epoch=epoch) for lane, row in state.lanes.items()}
        before, state.unit = state.unit, structs.replace(state.unit, stopped=None)
        return epoch, list(state.lanes.values()), before

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        with self._target.mutex:
            self._alive()
            self._fault()
            state = self._target.state
            if not state.lanes or any(row.epoch != epoch for row in state.lanes.values()):
                raise FencedError("another epoch")
            state.lanes = {
                lane: structs.replace(row, attempt=row.attempt + 1) for lane, row in state.lanes.items()
            }
            return list(state.lanes.values()), state.unit, self.read_quarantine(unit)

    @contextmanager
    def begin_transaction(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress], lock_wait_s: float | None = None
    ) -> Iterator[FakeTransaction]:
        with self._target.mutex:
            self._alive()
            self._target.lock_waits.append(lock_wait_s)
            state = self._target.state
            for guard in guards:
                row = state.lanes.get(guard.lane)
                if row is None or (row.epoch, row.attempt, row.offset) != (
                    guard.epoch,
                    guard.attempt,
                    guard.offset,
                ):
                    raise FencedError(f"lane {guard.lane}")
            work = copy.deepcopy(state)
            yield FakeTransaction(self._target, work)
            self._target.at("commit")
            fault = self._target.faults.pop(0) if self._target.faults else None
            if fault is None or (isinstance(fault, CommitUnknownError) and self._target.unknown_happened):
                self._target.state = work
                self._target.commits += 1
                self._target.log.append(tuple(guard.lane for guard in guards))
            self._target.at("committed")
            self.lost = isinstance(fault, CommitUnknownError)
            if fault is not None:
                raise fault

    def _alive(self) -> None:
        if self.lost:
            raise TransientError("the connection is lost")

    def _fault(self) -> None:
        if self._target.faults and isinstance(self._target.faults[0], ConnectionFaultError):
            raise self._target.faults.pop(0) or AssertionError

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        self._alive()
        return list(self._target.state.lanes.values()) if lanes else [], self._target.state.unit

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        self._alive()
        held, age_ms = sorted(self._target.state.held.items()), self._target.age_ms
        return [entry if age_ms is None else build_aged_entry(entry, age_ms) for _, entry in held]

    def find_kept_keys(self, unit: ApplyUnit, table: str, keys: Sequence[str]) -> list[str]:
        self._alive()
        return [key for key in keys if (table, key) in self._target.state.kept]

    def has_kept_rows(self, unit: ApplyUnit) -> bool:
        self._alive()
        return bool(self._target.state.kept)

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        state = self._target.state
        if any(row.epoch == epoch for row in state.lanes.values()):
            state.unit = structs.replace(state.unit, stopped=message)

    def ensure_bookkeeping(self) -> None: ...

    def fetch_rows(
        self,
        table: TargetTable,
        after: Key | None,
        limit: int,
        where: dict[str, str] | None = None,
        *,
        upto: Key | None = None,
    ) -> list[Row]:
        """In the order of `FakeTarget.order`; of a table with its key's columns only, the keys of rows whose
        last columns are `where`."""
        self._askable(*(key for key in (after, upto) if key is not None))
        order, rows = self._target.order, self._target.state.rows.get(f"{table.schema}.{table.name}", {})
        if where:
            rows = {key: row for key, row in rows.items() if row[-len(where) :] == tuple(where.values())}
        keys = sorted(
            (
                key
                for key in rows
                if (after is None or order(key) > order(after))
                and (upto is None or order(key) <= order(upto))
            ),
            key=order,
        )[:limit]
        return keys if len(table.table.columns) == len(table.key_at) else [rows[key] for key in keys]

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        self._askable(*keys)
        rows = self._target.state.rows.get(f"{table.schema}.{table.name}", {})
        return [key for key in keys if key in rows]

    def _askable(self, *keys: Key) -> None:
        if not all(map(self._target.holds, keys)):
            raise RefusedError("the target cannot hold a value")

    def close(self) -> None: ...

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        return TableFacts()

    def read_table(self, schema: str, name: str) -> Table | None:
        return self._target.tables.get(f"{schema}.{name}")

    def judge_new_table(self, table: Table) -> list[Problem]:
        return []

    def create_table(self, table: Table) -> None:
        self._target.tables.setdefault(f"{table.db}.{table.name}", table)


class ConnectionFaultError(TransientError):
    """Raised where an attempt begins."""


class FakeTransaction:
    def __init__(self, target: FakeTarget, state: State) -> None:
        self._target, self._state = target, state

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        self._target.nets.append(net)
        before = len(self._state.displaced)
        name = f"{net.table.schema}.{net.table.name}"
        rows = self._state.rows.setdefault(name, {})
        for key in net.list_keys_of_new_rows() if net.table.has_kept_rows else ():
            self._state.kept.pop((name, format_entry_key(key)), None)
        for key in net.deletes:
            if (error := self._target.refuse_delete(key)) is not None:
                raise error
            rows.pop(key, None)
        for row in net.replaces:
            rows.pop(self._key(net.table, row), None)
        if displacing is not None:  # whatever is in the way before anything is written
            for row in net.rows:
                if self._target.refuse(row) is None:
                    self._make_room(net, rows, row, displacing)
        for row in net.rows:
            self._write(net, rows, row, displacing)
        return len(self._state.displaced) - before

    def _key(self, table: TargetTable, row: Row) -> Key:
        return tuple(row[at] for at in table.key_at)

    def _write(self, net: NetChange, rows: dict[Key, Row], row: Row, displacing: str | None) -> None:
        if (error := self._target.refuse(row)) is not None:
            raise error
        key, row = self._make_room(net, rows, row, displacing)
        rows[key] = row

    def _make_room(
        self, net: NetChange, rows: dict[Key, Row], row: Row, displacing: str | None
    ) -> tuple[Key, Row]:
        """Displace rows of other keys that hold a unique value of a row; return it as the table has it."""
        name = f"{net.table.schema}.{net.table.name}"
        real = self._state.tables.get(name, net.table.table)
        key = self._key(net.table, row)
        row = _in_order(real, net.table.table, row, rows.get(key))
        for index in real.unique:
            at = real.find_ordinals(index.columns)
            mine = tuple(row[i] for i in at)
            clash = [
                k
                for k, r in rows.items()
                if k != key and None not in mine and tuple(r[i] for i in at) == mine
            ]
            if clash and displacing is None:
                raise UniqueViolationError(f"{mine} is held by {clash}")
            for other in clash:
                self._state.displaced.append(rows.pop(other))
                self._state.displaced_by.append((name, displacing or ""))
        return key, row

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        rows = self._state.rows.setdefault(f"{table.schema}.{table.name}", {})
        real = self._state.tables.get(f"{table.schema}.{table.name}", table.table)
        names = real.column_names
        for key, row in list(rows.items()):
            if all(row[names.index(name)] == value for name, value in (where or {}).items()):
                del rows[key]

    def lock_units(self) -> dict[str, UnitState]:
        return {self._target.topic: self._state.unit, **self._state.others}

    def write_other(self, topic: str, state: UnitState) -> None:
        self._state.others[topic] = state

    def alter_table(self, change: AlterTable | DropTable) -> None:
        assert self._target.transactional
        alter(self._target, self._state, change)

    def close_held_before(self, offset: int, why: str) -> None:
        for place in [place for place in self._state.held if place[0] < offset]:
            self._state.closed.append((self._state.held.pop(place), why))

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        for place in ids:
            self._state.closed.append((self._state.held.pop(place), why))

    def drop_held(self, ids: Sequence[tuple[int, int]]) -> None:
        for place in ids:
            del self._state.held[place]

    def supersede_displaced(self, table: str, before: int, why: str) -> None:
        self._state.superseded.append((table, before, why))

    def record_kept_rows(self, kept: KeptRows) -> None:
        for key in kept.keys:
            self._state.kept[kept.table, key] = (kept.offset, kept.statement)

    def forget_kept_rows(self) -> None:
        self._state.kept.clear()

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        for entry in held:
            assert (entry.offset, entry.part) not in self._state.held
            self._state.held[entry.offset, entry.part] = entry

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        for row in rows:
            there = self._state.lanes.get(row.lane)
            if there is None or (there.epoch, there.attempt) != (row.epoch, row.attempt):
                raise FencedError(f"lane {row.lane}")
            self._state.lanes[row.lane] = row

    def write_unit(self, state: UnitState) -> None:
        self._state.unit = state

    def replace_lanes(self, rows: Sequence[LaneProgress]) -> None:
        self._state.lanes = {row.lane: row for row in rows}


# --- tables


def alter(target: FakeTarget, state: State, change: AlterTable | DropTable) -> None:
    """Change a table and its rows, all steps or none. Raises the error of rows that do not fit, or the next
    of `alter_faults`."""
    target.altered.append(change)
    if (fault := target.alter_faults.pop(0) if target.alter_faults else None) is not None:
        raise fault
    name = f"{change.table.db}.{change.table.name}"
    if isinstance(change, DropTable):
        del state.tables[name]
        state.rows.pop(name, None)
        return
    if state.tables.get(name) != change.table:
        raise TargetConfigError(f"{name} is {state.tables.get(name)}, and not {change.table}")
    for step in change.steps:
        _step(state, name, step)


def _step(state: State, name: str, step: Alteration) -> None:
    before = state.tables[name]
    after = apply_alterations(AlterTable(before, (step,)))
    names = {step.new: step.old} if isinstance(step, RenameColumn) else {}
    rows = {}
    for old in state.rows.get(name, {}).values():
        values = dict(zip(before.column_names, old, strict=True))
        row = tuple(_value(step, column.name, values, names) for column in after.columns)
        for column, value in zip(after.columns, row, strict=True):
            if value is None and not column.nullable:
                raise RefusedError(f"{name}.{column.name} is NOT NULL, and a row has nothing there")
        key = tuple(row[at] for at in after.find_ordinals(after.key.columns))
        if key in rows or None in key:
            raise UniqueViolationError(f"{name}: key {key} is there twice")
        rows[key] = row
    for index in after.unique:
        at = after.find_ordinals(index.columns)
        held = [value for row in rows.values() if None not in (value := tuple(row[i] for i in at))]
        if len(held) != len(set(held)):
            raise UniqueViolationError(f"{name}: rows are equal in {index.columns}")
    state.tables[name], state.rows[name] = after, rows


def _value(step: Alteration, column: str, values: dict[str, Any], names: dict[str, str]) -> Any:
    if isinstance(step, AddColumn) and column == step.column.name:
        return step.fill
    value = values[names.get(column, column)]
    if isinstance(step, ChangeColumn) and column == step.desired.name:
        return converted(step, value)
    return value


def converted(step: ChangeColumn, value: Any) -> Any:
    """A lossless change keeps the value, in the form that the new type has; any other leaves something that
    is wrong."""
    kind, fsp = step.desired.type.kind, step.desired.type.fsp
    if not step.lossless:
        return None if step.desired.nullable else value
    if value is None:
        return None
    if kind is Kind.DECIMAL:
        return f"{Decimal(str(value)):.{step.desired.type.scale}f}"
    if kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        whole, _, digits = str(value).removesuffix("Z").partition(".")
        end = "Z" if kind is Kind.TIMESTAMP else ""
        return whole + ("." + digits.ljust(fsp, "0") if fsp else "") + end
    return value


def _in_order(real: Table, written: Table, row: Row, there: Row | None) -> Row:
    """Return the row in the order of the real table; what is not written stays as it is."""
    values = dict(zip(written.column_names, row, strict=True))
    kept = dict(zip(real.column_names, there, strict=True)) if there else {}
    whole = tuple(values.get(name, kept.get(name)) for name in real.column_names)
    for column, value in zip(real.columns, whole, strict=True):
        if value is None and not column.nullable:
            raise RefusedError(f"{real.name}.{column.name} is NOT NULL")
    return whole
