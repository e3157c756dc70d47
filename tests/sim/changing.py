"""Units of one target table whose sources change it, under a schedule: the product's attempts against a
modelled database.

Two branches have the same table and the same statements, each at its own time. The database runs a
transaction as one step; a statement that changes a table commits by itself, and runs on at the server when
its client has ended, unless another client ends its connection. The process that owns a unit is killed, or
loses the unit while it goes on.
"""

from __future__ import annotations

import contextlib
import copy
import random
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs
from msgspec.structs import replace as altered_struct

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.attempt import Attempt
from consumer.attempt.drivers.batches import make_single_thread_signals
from consumer.attempt.evolution import in_target
from consumer.attempt.evolution.in_target import (
    drop_target,
    follow_definition,
    list_sharing_topics,
    lose_others,
    require_rows_present,
    resolve_target,
    resolve_target_place,
)
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec, build_initial_layout, load_active_definition, resolve_definition
from consumer.errors import ConsumerError, FencedError, RefusedError, TransientError, UniqueViolationError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    UnitState,
)
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import SchemaChangePolicy, TableRoute, build_desired_table
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import explain_changed_table
from consumer.targets.alterations import (
    AddColumn,
    Alteration,
    AlterTable,
    ChangeColumn,
    DropTable,
    RenameColumn,
    apply_alterations,
)
from consumer.targets.checks.column_fit import can_hold_all_values
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.shared.column_values import get_implicit_value
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, Value
from schemas.table.names import EXACT
from schemas.wire.codec import encode_event_value
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges
from schemas.wire.position import ZERO
from tests.kits.apply import FakeSource
from tests.sim.actors import AttemptActors, after_a_step, at_once, build_step_table, in_steps, unmet
from tests.sim.changing_renames import Renames
from tests.sim.changing_wide import unique_change, wide
from tests.sim.truth import Wrong

Steps = Generator[None, None, Any]
Values = dict[str, Value]
PLACE = "public.acct"
TEXT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}


def text(length: int) -> ColumnType:
    return ColumnType(kind=Kind.VARCHAR, length=length, **TEXT)  # type: ignore[arg-type]


def whole(bits: int) -> ColumnType:
    return ColumnType(kind=Kind.INT, bits=bits)


TABLE = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="id", type=whole(32), nullable=False),
        Column(name="a", type=text(3)),
        Column(name="b", type=whole(8), nullable=False),
        Column(name="u", type=text(3)),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)


# --- the database


@dataclass
class State:
    tables: dict[str, Table] = field(default_factory=dict)
    rows: dict[tuple[Value, ...], Values] = field(default_factory=dict)
    lanes: dict[str, dict[int, LaneProgress]] = field(default_factory=dict)
    units: dict[str, UnitState] = field(default_factory=dict)
    held: list[QuarantineEntry] = field(default_factory=list)
    displaced: int = 0


@dataclass(eq=False)
class Sent:
    """A statement at the server. `client`: who waits for it, or waits no more; `outcome`: how it ended."""

    client: Run
    connection: int
    change: AlterTable | DropTable
    done: bool = False
    outcome: Exception | None = None


class Database:
    """`read_table`, `read_table_facts`, `judge_new_table`, `create_table` and `column_names` are those of a
    session."""

    column_names = EXACT
    table_names = EXACT

    def __init__(self, *, transactional: bool) -> None:
        self.transactional = transactional
        self.state = State()
        self.sent: list[Sent] = []
        self.ended: set[int] = set()

    def read_table(self, schema: str, name: str) -> Table | None:
        return self.state.tables.get(f"{schema}.{name}")

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        """The modelled server knows no defaults: a writer gives each row every column that takes no NULL."""
        table = self.read_table(schema, name)
        required = () if table is None else tuple(each.name for each in table.columns if not each.nullable)
        return TableFacts(required=required)

    def judge_new_table(self, _table: Table) -> list[Problem]:
        return []

    def create_table(self, table: Table) -> None:
        self.state.tables.setdefault(f"{table.db}.{table.name}", table)

    def take_over(self, topic: str, layout: str, lanes: int) -> int:
        rows = self.state.lanes.get(topic) or {
            n: LaneProgress(n, 0, 0, "id", -1, ZERO, 0, layout) for n in range(lanes)
        }
        epoch = max(row.epoch for row in rows.values()) + 1
        self.state.lanes[topic] = {n: structs.replace(row, epoch=epoch) for n, row in rows.items()}
        unit = self.state.units.setdefault(topic, UnitState(None, None, None))
        self.state.units[topic] = structs.replace(unit, stopped=None)
        return epoch

    def begin_attempt(
        self, topic: str, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        rows = self.state.lanes[topic]
        if any(row.epoch != epoch for row in rows.values()):
            raise FencedError("epoch")
        self.state.lanes[topic] = {
            n: structs.replace(row, attempt=row.attempt + 1) for n, row in rows.items()
        }
        return list(self.state.lanes[topic].values()), self.state.units[topic], []

    def transact(self, spec: UnitSpec, effect: fx.Transact) -> None:
        """Carry out a transaction, or leave everything as it is."""
        before, topic = self.state, spec.unit.topic
        for guard in effect.guards:
            row = before.lanes[topic].get(guard.lane)
            if row is None or (row.epoch, row.attempt, row.offset) != (
                guard.epoch,
                guard.attempt,
                guard.offset,
            ):
                raise FencedError(f"lane {guard.lane}")
        self.state = copy.deepcopy(before)
        try:
            for operation in effect.operations:
                self._operation(spec, operation, effect.displaced)
        except BaseException:
            self.state = before
            raise

    def _operation(self, spec: UnitSpec, operation: ops.Operation, displaced: list[int]) -> None:
        topic, session = spec.unit.topic, Transaction(self, spec.unit.topic)
        match operation:
            case ops.FollowDefinition():
                follow_definition(spec, self, session, operation)
            case ops.DropTarget():
                drop_target(spec, self, session, operation)
            case ops.MarkSharersIncomplete():
                lose_others(spec, self, session, operation)
            case ops.RequireRowsPresent():
                require_rows_present(spec, session)
            case ops.RequireTableUnchanged():
                in_target.require_table_unchanged(spec, self, session, operation)
            case ops.WriteChanges():
                before = self.state.displaced
                self._write(operation.net, operation.displacing)
                displaced.append(self.state.displaced - before)
            case ops.WriteUnit():
                self.state.units[topic] = operation.state
            case ops.WriteProgress():
                self.state.lanes[topic] |= {row.lane: row for row in operation.rows}
            case ops.ReplaceLaneRows():
                self.state.lanes[topic] = {row.lane: row for row in operation.rows}
            case ops.QuarantineEvents():
                self.state.held += operation.entries
            case ops.TruncateTarget():
                session.truncate_table(operation.table, operation.where)
            case _:
                pass  # entries of the quarantine: there are none

    def _write(self, net: NetChange, displacing: str | None) -> None:
        real, rows = self.state.tables[PLACE], self.state.rows
        names = net.table.table.column_names
        for key in net.deletes:
            rows.pop(tuple(key), None)
        for row in net.replaces:
            rows.pop(tuple(row[at] for at in net.table.key_at), None)
        for row in net.rows:
            values = dict(zip(names, row, strict=True))
            key = tuple(values[name] for name in real.key.columns)
            full = {name: rows.get(key, {}).get(name) for name in real.column_names} | values
            for column in real.columns:
                check(column, full[column.name])
            for index in real.unique:
                mine = tuple(full[name] for name in index.columns)
                clash = [
                    k
                    for k, r in rows.items()
                    if k != key and None not in mine and tuple(r[n] for n in index.columns) == mine
                ]
                if clash and displacing is None:
                    raise UniqueViolationError(f"{mine}")
                for other in clash:
                    del rows[other]
                    self.state.displaced += 1
            rows[key] = full

    def alter_table(self, change: AlterTable | DropTable) -> None:
        """Change the table and its rows, all steps or none."""
        assert isinstance(change, AlterTable)
        if self.state.tables[PLACE] != change.table:
            self._stale(change)
        work = copy.deepcopy(self.state)
        for step in change.steps:
            step_of(work, step)
        self.state = work

    def _stale(self, change: AlterTable) -> None:
        """A statement that was made for another form of the table: the server refuses it, or carries
        it out all the same."""
        there = self.state.tables[PLACE].column_names
        for step in change.steps:
            if isinstance(step, AddColumn) and step.column.name in there:
                raise RefusedError(f"duplicate column {step.column.name}")
            missing = {"name", "old"} & {*getattr(step, "__slots__", ())}
            if any(getattr(step, attribute) not in there for attribute in missing):
                raise RefusedError(f"no such column: {step}")

    def run(self, sent: Sent) -> None:
        """The server carries out a statement."""
        try:
            self.alter_table(sent.change)
        except ConsumerError as error:
            sent.outcome = error
        sent.done = True
        self.sent.remove(sent)

    def end(self, connection: int) -> None:
        self.ended.add(connection)
        self.sent = [sent for sent in self.sent if sent.connection != connection]


class Transaction:
    """What a change of the table asks of an open transaction."""

    def __init__(self, database: Database, topic: str) -> None:
        self._database, self._topic = database, topic

    def lock_units(self) -> dict[str, UnitState]:
        return dict(self._database.state.units)

    def alter_table(self, change: AlterTable | DropTable) -> None:
        assert self._database.transactional
        self._database.alter_table(change)

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        rows = self._database.state.rows
        for key, row in list(rows.items()):
            if all(row[name] == value for name, value in (where or {}).items()):
                del rows[key]

    def write_unit(self, state: UnitState) -> None:
        self._database.state.units[self._topic] = state

    def write_other(self, topic: str, state: UnitState) -> None:
        self._database.state.units[topic] = state


def check(column: Column, value: Value) -> None:
    """Raise RefusedError for what the column does not take."""
    if value is None:
        if not column.nullable:
            raise RefusedError(f"{column.name} is NOT NULL")
        return
    type_ = column.type
    if type_.kind is Kind.INT and abs(int(str(value))) >= 2 ** (type_.bits - 1):
        raise RefusedError(f"{column.name}: {value}")
    if type_.kind is Kind.VARCHAR and len(str(value)) > type_.length:
        raise RefusedError(f"{column.name}: {value}")


def step_of(state: State, step: Alteration) -> None:
    after = apply_alterations(AlterTable(state.tables[PLACE], (step,)))
    names = {step.new: step.old} if isinstance(step, RenameColumn) else {}
    rows = {}
    for old in state.rows.values():
        row = {column.name: _value(step, column.name, old, names) for column in after.columns}
        for column in after.columns:
            check(column, row[column.name])
        rows[tuple(row[name] for name in after.key.columns)] = row
    for index in after.unique:
        values = [v for row in rows.values() if None not in (v := tuple(row[name] for name in index.columns))]
        if len(values) != len(set(values)):
            raise UniqueViolationError(f"{index.name}")
    state.tables[PLACE], state.rows = after, rows


def _value(step: Alteration, column: str, row: Values, names: dict[str, str]) -> Value:
    if isinstance(step, AddColumn) and column == step.column.name:
        return step.fill  # type: ignore[return-value]
    value = row[names.get(column, column)]
    if isinstance(step, ChangeColumn) and column == step.desired.name and not step.lossless:
        return None if step.desired.nullable else get_implicit_value(step.desired.type)
    return value


# --- the sources


@dataclass(frozen=True)
class Change:
    """A statement: what it makes of a table, what capture records of it, what rows get; `copied`: a copy
    follows it."""

    columns: ColumnChanges
    fills: Values = field(default_factory=dict)
    column: Column | None = None
    unique: UniqueIndex | None = None
    unique_gone: str = ""
    copied: bool = False
    more: tuple[Column, ...] = ()

    def of(self, table: Table) -> Table:
        renamed, dropped = self.columns.renamed, self.columns.dropped
        columns = [
            altered_struct(c, name=renamed.get(c.name, c.name))
            for c in table.columns
            if c.name not in dropped
        ]
        for column in (*([] if self.column is None else [self.column]), *self.more):
            there = any(each.name == column.name for each in columns)
            columns = [column if each.name == column.name else each for each in columns] + [column] * (
                not there
            )
        unique = [
            index
            for index in table.unique
            if index.name != self.unique_gone and not set(index.columns) & set(dropped)
        ]
        unique = [
            altered_struct(
                index,
                parts=tuple(altered_struct(p, column=renamed.get(p.column, p.column)) for p in index.parts),
            )
            for index in unique
        ]
        return altered_struct(
            table, columns=tuple(columns), unique=(*unique, *([self.unique] if self.unique else []))
        )


def draw(rng: random.Random, table: Table, *, many: bool) -> Change | None:
    """Draw a statement that the source's table can have now."""
    names = [name for name in table.column_names if name != "id"]
    luck = rng.random()
    free = [name for name in ("c", "d", "e") if name not in names]
    if luck < 0.3 and free:
        name = rng.choice(free)
        if rng.random() < 0.4:
            column = Column(name=name, type=whole(16), nullable=False, default="7")
            return Change(ColumnChanges(added=(name,)), {name: 7}, column, copied=many)
        return Change(ColumnChanges(added=(name,)), {name: None}, Column(name=name, type=whole(16)))
    if luck < 0.5 and len(names) > 2:
        name = rng.choice([each for each in names if each != "u"])
        return Change(ColumnChanges(dropped=(name,)))
    name = rng.choice(names)
    column = table.get_column(name)
    if luck < 0.65:
        type_ = (
            text(column.type.length + 2)
            if column.type.kind is Kind.VARCHAR
            else whole(min(64, column.type.bits * 2))
        )
        return Change(ColumnChanges(modified=(name,)), column=altered_struct(column, type=type_))
    if luck < 0.75:
        return Change(ColumnChanges(modified=(name,)), column=altered_struct(column, nullable=True))
    if luck < 0.85 and not many and free:
        return Change(ColumnChanges(renamed={name: free[0]}))
    if table.unique:
        return Change(ColumnChanges(), unique_gone=table.unique[0].name)
    if "u" in names:
        return Change(ColumnChanges(), unique=UniqueIndex(name="u", parts=(IndexPart(column="u"),)))
    return None


def draw_wide(rng: random.Random, table: Table, *, many: bool) -> Change | None:
    """Draw a statement of several actions (tests/sim/changing_wide.py), or one of a unique index."""
    if rng.random() < 0.15:
        unique, missing = unique_change(rng, table)
        return Change(ColumnChanges(), unique=unique, unique_gone=missing) if unique or missing else None
    found = wide(rng, table, many=many)
    if not found.given and not found.renamed and not found.dropped:
        return None
    return Change(found.changes(), dict(found.fills), more=tuple(found.given.values()))


def _passed_over(table: Table, change: Change) -> bool:
    """Return whether rows after a statement fit into a target table that does not follow it; others are
    quarantined, and which ones is not simulated here."""
    columns = change.columns
    return not columns.modified and all(
        table.get_column(name).nullable for name in (*columns.dropped, *columns.renamed)
    )


class Branch:
    """A source with its rows, and its topic, written as time goes by. `changes`: its statements to come."""

    def __init__(self, name: str, rng: random.Random, changes: list[Change], often: float) -> None:
        self.rng, self.changes, self.often = rng, list(changes), often
        self.source = FakeSource(table=TABLE, name=name)
        self.rows: dict[int, Values] = {}
        self.topic: list[bytes] = [encode_event_value(self.source.definition())]

    def step(self) -> None:
        if self.changes and self.rng.random() < self.often:
            self._change(self.changes.pop(0))
            return
        key = self.rng.randint(0, 4)
        before = self.rows.get(key)
        if before is not None and self.rng.random() < 0.2:
            del self.rows[key]
            self._write("d", before, None)
            return
        row = {column.name: self._value(column) for column in self.source.table.columns} | {"id": key}
        for index in self.source.table.unique:
            taken = {other[index.columns[0]] for at, other in self.rows.items() if at != key}
            if row[index.columns[0]] in taken:
                row[index.columns[0]] = None
        self.rows[key] = row
        self._write("c" if before is None else "u", before, row)

    def _value(self, column: Column) -> Value:
        if column.nullable and self.rng.random() < 0.2:
            return None
        type_ = column.type
        if type_.kind is Kind.INT:
            return self.rng.choice([1, 2, 2 ** (min(type_.bits, 32) - 1) - 1])
        return self.rng.choice(["x", "y", "z" * type_.length])

    def _write(self, op: Any, before: Values | None, after: Values | None, **more: Any) -> None:
        self.topic.append(encode_event_value(self.source.event(op, before, after, **more)))

    def _change(self, change: Change) -> None:
        new, renamed = change.of(self.source.table), change.columns.renamed
        if (
            new.unique and not self.source.table.unique
        ):  # a statement that rows do not allow fails, so they are made to
            for row in self.rows.values():
                row["u"] = None if sum(r["u"] == row["u"] for r in self.rows.values()) > 1 else row["u"]
            for row in self.rows.values():
                self._write("u", dict(row), dict(row))
        self.rows = {
            key: {
                renamed.get(name, name): value
                for name, value in row.items()
                if name not in change.columns.dropped
            }
            | change.fills
            for key, row in self.rows.items()
        }
        effect = None if change.columns != ColumnChanges() else "kept"
        self._write("m", None, None, definition=new, ddl="ALTER …", columns=change.columns, effect=effect)
        self.source.table = new
        if change.copied:
            self.copied()

    def copied(self) -> None:
        """Write a copy, all at once. It has a delete for each key without a row, as no marker ends this
        copy."""
        self._write("m", None, None, definition=self.source.table, copy=CopyMark(id=str(len(self.topic))))
        nothing = {column.name: None for column in self.source.table.columns}
        for key in range(5):
            row = self.rows.get(key)
            self._write(*(("d", {**nothing, "id": key}, None) if row is None else ("r", None, row)))


# --- attempts

NO_MARKER = "no marker ends its copies, so no keys are compared"
NO_KEPT_ROWS = "no route keeps rows that the source removed"
NO_DEBEZIUM = "rowlock captures here, and not Debezium"


class Run(AttemptActors):
    """One attempt at a unit, as actors that the schedule advances. `number`: of its connection."""

    def __init__(self, world: SchemaChangeSimulation, unit: Unit, end: int) -> None:
        self.world, self.unit, self.end = world, unit, end
        self.spec, self.number = unit.spec, world.connection()
        self.report: Report | None = None
        self._at = unit.begin
        self._missing: Iterator[RecordSlice] | None = None
        super().__init__()

    def task(self) -> Steps:
        self.report = yield from self.drive(Attempt(self.spec, make_single_thread_signals).run())
        self.actors = []

    def _transact(self, effect: fx.Transact, _lane: int | None) -> Steps:
        database = self.world.database
        if all(isinstance(each, ops.MarkSharersIncomplete) for each in effect.operations):
            # It takes no step: the rules' seeds are histories that are known to need them.
            database.transact(self.spec, effect)
            return
        yield
        if self.number in database.ended:
            self.number = self.world.connection()  # a lost connection is made again
            raise TransientError("the connection is lost")
        if self.world.rng.random() < 0.02:
            raise TransientError("deadlock")
        database.transact(self.spec, effect)
        yield

    def _begin_attempt(self, _effect: fx.BeginAttempt) -> Any:
        return self.world.database.begin_attempt(self.unit.topic, self.spec.epoch)

    def _read_progress(self, _effect: fx.ReadProgress) -> list[LaneProgress]:
        return list(self.world.database.state.lanes[self.unit.topic].values())

    def _read_quarantine(self, _effect: fx.ReadQuarantine) -> list[QuarantineEntry]:
        return self.world.database.state.held

    def _end_connection(self, effect: fx.EndConnection) -> None:
        self.world.database.end(effect.connection)

    def _own_connection(self, _effect: fx.OwnConnection) -> int | None:
        return None if self.world.database.transactional else self.number

    def _stop_unit(self, effect: fx.StopUnit) -> None:
        state, topic = self.world.database.state, self.unit.topic
        if all(row.epoch == self.spec.epoch for row in state.lanes[topic].values()):
            state.units[topic] = structs.replace(state.units[topic], stopped=effect.why)

    def _await(self, effect: fx.Await, _lane: int | None) -> Steps:
        yield
        while not effect.ready():
            yield

    def _start_lanes(self, effect: fx.StartLanes) -> None:
        self.start(effect.lanes)

    def _join_lanes(self, _effect: fx.JoinLanes, _lane: int | None) -> Steps:
        yield
        yield from self.join()

    def _alter(self, effect: fx.AlterTarget, _lane: int | None) -> Steps:
        """Send a statement, and wait for it; who is killed meanwhile leaves it at the server."""
        yield
        database = self.world.database
        if effect.connection != self.number or self.number in database.ended:
            raise TransientError("the connection is another one")
        sent = Sent(self, self.number, effect.change)
        database.sent.append(sent)
        while not sent.done:
            if self.number in database.ended:
                raise TransientError("the connection was ended")
            yield
        if sent.outcome is not None:
            raise sent.outcome

    def _restore_definition(self, effect: fx.RestoreDefinition) -> ActiveDefinition:
        return load_active_definition(self.spec, self.world.database, effect.text, {})

    def _prepare_definition(self, effect: fx.PrepareDefinition) -> ActiveDefinition:
        return resolve_definition(self.spec, self.world.database, effect.stored, first=effect.first)

    def _explain_misfit(self, effect: fx.ExplainMisfit) -> Problem | None:
        spec = self.spec
        return explain_changed_table(self.world.database, effect.stored, spec.source, spec.routes)

    def _read_table(self, effect: fx.ReadTable) -> Table | None:
        return self.world.database.read_table(*resolve_target_place(self.spec, effect.source))

    def _read_sharers(self, effect: fx.ReadSharers) -> Sequence[str]:
        return list_sharing_topics(self.spec, self.world.database.state.units, effect.source, EXACT)

    def _next_slice(self, _effect: fx.NextSlice) -> RecordSlice | None:
        begin, self._at = self._at, min(self._at + 3, self.end)
        return self.unit.slice(begin, self._at) if begin < self._at else None

    def _read_missing(self, effect: fx.ReadMissing) -> RecordSlice | None:
        if self._missing is None:
            starts = range(effect.start, effect.upto, 3)
            self._missing = iter([self.unit.slice(at, min(at + 3, effect.upto)) for at in starts])
        found = next(self._missing, None)
        self._missing = self._missing if found is not None else None
        return found

    def _find_begin(self, effect: fx.FindBegin) -> tuple[int, bytes] | None:
        for offset, raw in self.unit.slice(effect.after + 1, len(self.unit.branch.topic)):
            if b'"copy":{' in (raw or b""):
                return offset, raw
        return None

    handlers = build_step_table(
        in_steps(fx.Transact, _transact),
        after_a_step(fx.BeginAttempt, _begin_attempt),
        after_a_step(fx.ReadProgress, _read_progress),
        after_a_step(fx.ReadQuarantine, _read_quarantine),
        after_a_step(fx.CheckSession, lambda *_: None),
        after_a_step(fx.DropSession, lambda *_: None),
        after_a_step(fx.StopUnit, _stop_unit),
        unmet(fx.ListKeys, NO_MARKER),
        unmet(fx.LookUpKeys, NO_MARKER),
        unmet(fx.FindKeptKeys, NO_KEPT_ROWS),
        unmet(fx.FindKeptRows, NO_KEPT_ROWS),
        after_a_step(fx.RestoreDefinition, _restore_definition),
        after_a_step(fx.PrepareDefinition, _prepare_definition),
        after_a_step(fx.ExplainMisfit, _explain_misfit),
        after_a_step(fx.ReadTable, _read_table),
        after_a_step(fx.ReadSharers, _read_sharers),
        after_a_step(fx.OwnConnection, _own_connection),
        in_steps(fx.AlterTarget, _alter),
        after_a_step(fx.EndConnection, _end_connection),
        after_a_step(fx.NextSlice, _next_slice),
        after_a_step(fx.ReadMissing, _read_missing),
        unmet(fx.ReadPassed, NO_MARKER),
        unmet(fx.ReadRest, NO_DEBEZIUM),
        unmet(fx.AskSource, NO_DEBEZIUM),
        after_a_step(fx.FindBegin, _find_begin),
        unmet(fx.FindSnapshot, NO_DEBEZIUM),
        unmet(fx.OpenKeys, NO_MARKER),
        unmet(fx.TakeKeySweep, NO_MARKER),
        unmet(fx.RememberKeySweep, NO_MARKER),
        after_a_step(fx.Sleep, lambda *_: None),
        at_once(fx.ReadClock, lambda *_: 0.0),
        in_steps(fx.Await, _await),
        after_a_step(fx.StartLanes, _start_lanes),
        in_steps(fx.JoinLanes, _join_lanes),
    )


class Unit:
    """A unit and who works at it."""

    def __init__(self, world: SchemaChangeSimulation, branch: Branch) -> None:
        self.world, self.branch = world, branch
        self.topic = f"rl.{branch.source.name}.bank.acct"
        self.begin = 0
        self.live: Run | None = None
        self.zombies: list[Run] = []
        self.epoch = 0
        self.take_over()

    @property
    def spec(self) -> UnitSpec:
        world = self.world
        return UnitSpec(
            unit=ApplyUnit("p", self.topic), source=self.branch.source.name, epoch=self.epoch, topic_id="id",
            routes=world.routes, lanes=world.lanes, limits=LaneLimits(max_gather=world.gather, tries=8),
            small_batch=world.small, patient=True,
        )  # fmt: skip

    def take_over(self) -> None:
        if self.live is not None and self.live.actors:
            self.zombies.append(self.live)
        self.live = None
        layout = build_initial_layout(self.world.routes, self.world.lanes).encode()
        self.epoch = self.world.database.take_over(self.topic, layout, self.world.lanes)

    def slice(self, start: int, upto: int) -> RecordSlice:
        return list(enumerate(self.branch.topic))[start:upto]

    @property
    def applied(self) -> bool:
        rows = self.world.database.state.lanes[self.topic].values()
        return all(row.offset == len(self.branch.topic) - 1 for row in rows)

    def step(self, rng: random.Random) -> None:
        self.zombies = [run for run in self.zombies if run.actors]
        if self.zombies and rng.random() < self.world.patience:
            rng.choice(self.zombies).step(rng)
        elif self.live is None:
            if not self.applied:
                lowest = min(row.offset for row in self.world.database.state.lanes[self.topic].values())
                self.begin = max(0, min(lowest + 1, len(self.branch.topic) - 1))
                self.live = Run(self.world, self, rng.randint(self.begin + 1, len(self.branch.topic)))
        elif self.live.actors:
            self.live.step(rng)
        else:
            report, self.live = self.live.report, None
            if report is not None and report.state == "stopped":
                self.world.stopped(self, report)
            elif report is not None and report.state == "fenced":
                self.take_over()


class WaitsForAPerson(Exception):  # noqa: N818  # nothing is wrong
    """Under `lenient` several sources of one table ask for what only `evolve` does, and the unit says so."""


class SchemaChangeSimulation:
    """One history. `often`: how many of a source's changes are statements; None: drawn. `policy`: None: one
    that changes target tables, drawn. `wide`: statements of several actions. `mapped`: an earlier version has
    left a second column, and `a` is written to `a_2`. `renaming`: the route gives columns other names, and a
    person changes these now and then.

    Under `ignore` and `stop` a person changes the target table, so the history is of one source: which of two
    the table is to fit is not asked here.
    """

    def __init__(
        self,
        seed: int,
        often: float | None = None,
        policy: SchemaChangePolicy | None = None,
        *,
        wide: bool = False,
        mapped: bool = False,
        renaming: bool = False,
    ) -> None:
        self.rng = rng = random.Random(seed)
        drawn: SchemaChangePolicy = rng.choice(["lenient", "evolve"])
        self.policy = policy or drawn
        self.database = Database(transactional=rng.random() < 0.3)
        self.lanes, self.gather, self.small = rng.randint(1, 3), rng.choice([1, 3, 100]), rng.choice([0, 4])
        count = rng.choice([1, 2, 2]) if policy is None else 1
        add = (("branch", "{source}"),) if count > 1 else ()
        self.routes = (TableRoute("bank.*", "public.{table}", add, self.policy),)
        self._connections = self.copies = self.changed_by_hand = 0
        self.mapped, self.renames = mapped, Renames(seed, many=count > 1) if renaming else None
        if self.renames is not None:
            self.routes = self.renames.build_routes(self.routes)
        self.patience = rng.choice([0.3, 0.01])
        """Probability, per step, that a zombie, or a statement that nobody waits for, goes on."""
        changes, table = [], TABLE
        for _ in range(rng.randint(4, 10) if wide else rng.randint(2, 7)):
            change = (draw_wide if wide else draw)(rng, table, many=count > 1)
            if change is not None and (self.policy != "ignore" or _passed_over(table, change)):
                changes.append(change)
                table = change.of(table)
        often = rng.choice([0.15, 0.03]) if often is None else often
        self.branches = [Branch(f"b{n}", random.Random(seed * 10 + n), changes, often) for n in range(count)]
        self.units = [Unit(self, branch) for branch in self.branches]
        if mapped:
            self._map_column(self.units[0])

    def connection(self) -> int:
        self._connections += 1
        return self._connections

    def stopped(self, unit: Unit, report: Report) -> None:
        """A unit may wait for a copy that is on its way; whatever else stops it is wrong here."""
        units = self.database.state.units.values()
        if self.renames is not None and all(each.definition is None for each in units):
            # It was created by the route as it was, before any row: a person drops it, as the message asks.
            self.database.state = replace(self.database.state, tables={}, rows={})
            unit.take_over()
            return
        if self._joins_late(unit, report):
            if unit.branch.changes:
                unit.branch.step()
            elif self._has_room(unit) and not any(b'"copy":{' in raw for raw in unit.branch.topic):
                unit.branch.copied()
                self.copies += 1
            unit.take_over()
            return
        if self.policy == "lenient" and "set `schema_changes: evolve`" in report.message:
            self._change_type(report)
            unit.take_over()
            return
        if self._waits_for_new_names(unit, report):
            unit.take_over()
            return
        if "would both be written to its column" in report.message and self.renames is not None:
            self._rename(self.renames.resolve())
            return
        if "would both be written to its column" in report.message:
            self.database.state = replace(self.database.state, tables={}, rows={})
            unit.branch.copied()
            self.copies += 1
            unit.take_over()
            return
        if self.policy in ("ignore", "stop") and self._by_hand(unit):
            unit.branch.copied()
            self.copies += 1
            unit.take_over()
            return
        if report.copy is None:
            raise Wrong(f"{unit.topic} stopped: {report.message}")
        if not any(b'"copy":{' in raw for raw in unit.branch.topic[report.copy.after + 1 :]):
            unit.branch.copied()
            self.copies += 1
        unit.take_over()

    def _waits_for_new_names(self, unit: Unit, report: Report) -> bool:
        """Return whether a unit waits until another unit of its table has followed the route's new names: the
        target has columns of the old ones meanwhile."""
        old = ("and the source has no values for them", "of the source's key")
        if self.renames is None or not any(words in report.message for words in old):
            return False
        others = [self.database.state.units[each.topic].definition for each in self.units if each is not unit]
        return any(self.renames.find_wrong(decode_stored(each)) for each in others if each is not None)

    def _rename(self, routes: tuple[TableRoute, ...]) -> None:
        """A person changes the route's `rename`, and every unit starts again by it."""
        self.routes = routes
        for unit in self.units:
            unit.take_over()

    def _map_column(self, unit: Unit) -> None:
        stored = StoredDefinition(TABLE, {"a": "a_2"}, ("a",))
        there = build_desired_table(TABLE, resolve_target(unit.spec, TABLE), stored.names)
        old = Column(name="a", type=whole(16))
        state = self.database.state
        state.tables[PLACE] = altered_struct(there, columns=(*there.columns, old))
        state.units[unit.topic] = UnitState(stored.encode(), None, None)

    def _change_type(self, report: Report) -> None:
        """A person gives a column of the target the type of the source's; the copy that begins brings values.

        Where several sources write the table, each of them would need it at its own time.
        """
        found = re.search(r"column (\w+) is (\w+) in the target and (\w+) at the source", report.message)
        if found is None or len(self.units) > 1:
            raise WaitsForAPerson
        state, name = self.database.state, found[1]
        type_ = text(20) if found[3] == "varchar" else whole(64)
        columns = (
            altered_struct(each, type=type_) if each.name == name else each
            for each in state.tables[PLACE].columns
        )
        empty: Value = "" if found[3] == "varchar" else 0
        rows = {key: row | {name: empty} for key, row in state.rows.items()}
        tables = {PLACE: altered_struct(state.tables[PLACE], columns=tuple(columns))}
        self.database.state = replace(state, tables=tables, rows=rows)
        self.changed_by_hand += 1

    def _has_room(self, unit: Unit) -> bool:
        """Return whether the target can hold every value of a branch that joins late; `check` warns of a
        column that cannot, and some row would be quarantined. When no other unit has a statement left, the
        branch is to go on in any case."""
        real = self.database.state.tables[PLACE]
        columns = [each for each in unit.branch.source.table.columns if each.name in real.column_names]
        others = [each for each in self.units if each is not unit]
        return all(
            can_hold_all_values(each.type, real.get_column(each.name).type) for each in columns
        ) or all(each.applied and not each.branch.changes for each in others)

    def _by_hand(self, unit: Unit) -> bool:
        """A person makes the target table fit the source's of now. Ends with whether there was something to
        do: then the table is copied.

        Under `ignore` columns that the target lacks stay out. What new columns and other types have in the
        rows that are there comes with a copy.
        """
        source, state = unit.branch.source.table, self.database.state
        real = state.tables[PLACE]
        there = set(real.column_names)
        expected = build_desired_table(source, resolve_target(unit.spec, source))
        columns = [each for each in expected.columns if self.policy == "stop" or each.name in there]
        if self.policy == "ignore":
            missing = [each for each in real.columns if each.name not in expected.column_names]
            columns += [altered_struct(each, nullable=True) for each in missing]
        names = {each.name for each in columns}
        unique = tuple(index for index in expected.unique if names.issuperset(index.columns))
        fits = altered_struct(expected, columns=tuple(columns), unique=unique)
        if fits == real:
            return False
        rows = {key: {name: row.get(name) for name in fits.column_names} for key, row in state.rows.items()}
        self.database.state = replace(state, tables={PLACE: fits}, rows=rows)
        return True

    def _joins_late(self, unit: Unit, report: Report) -> bool:
        """Return whether a branch that has written nothing yet finds a unique index that another's statement
        brought and its own table has not (some of its rows may need what the index forbids): it waits for its
        own statement, and a copy after it. Or whether its own table is ahead: it waits for the other's unit,
        as a table that existed before rowlock is not altered for the first unit that comes."""
        fresh = self.database.state.units[unit.topic].definition is None
        return fresh and any(
            words in report.message
            for words in (
                "is stricter than the source",
                "lacks the columns",
                "and the source has no values for them",
            )
        )

    def run(self, steps: int = 900) -> None:
        """Run the history and judge it; one in which a unit rightly waits for a person ends there."""
        with contextlib.suppress(WaitsForAPerson):
            self._run(steps)
            self.judge()

    def _run(self, steps: int) -> None:
        rng = self.rng
        for at in range(steps * 20):
            if at < steps and rng.random() < 0.15:
                rng.choice(self.branches).step()
            if self.database.sent:
                sent = rng.choice(self.database.sent)
                if rng.random() < (0.2 if sent.client.actors else self.patience):
                    self.database.run(sent)
            unit = rng.choice(self.units)
            unit.step(rng)
            if at < steps and rng.random() < 0.01:
                self._disturb(unit)
            if (
                at >= steps
                and all(each.applied and not each.branch.changes for each in self.units)
                and not self.database.sent
            ):
                break
            if at >= steps:
                for branch in self.branches:
                    if branch.changes:
                        branch.step()

    def _disturb(self, unit: Unit) -> None:
        if self.rng.random() < 0.5 and unit.live is not None:
            unit.live.actors = []  # killed; what it sent goes on
        if self.renames is not None and self.renames.is_changed():
            self._rename(self.renames.build_routes(self.routes))
        unit.take_over()

    def judge(self) -> None:
        for unit in self.units:
            if not unit.applied:
                raise Wrong(f"{unit.topic} does not come to its end: {self.database.state.units[unit.topic]}")
            branch, state = unit.branch, self.database.state
            if state.held or (
                state.displaced and not self.copies
            ):  # behind what a copy passed over, rows are stale
                raise Wrong(f"held {state.held}, displaced {state.displaced}")
            stored = decode_stored(state.units[unit.topic].definition or "")
            mine = [
                row
                for row in state.rows.values()
                if row.get("branch", branch.source.name) == branch.source.name
            ]
            written = [
                name
                for name in branch.source.table.column_names
                if self.policy != "ignore" or stored.get_target_name(name) in state.tables[PLACE].column_names
            ]
            if self.renames is not None and (wrong := self.renames.find_wrong(stored)):
                raise Wrong(f"{unit.topic}: {wrong}")
            key = stored.get_target_name("id")
            found = {row[key]: {name: row[stored.get_target_name(name)] for name in written} for row in mine}
            if found != {key: {name: row[name] for name in written} for key, row in branch.rows.items()}:
                raise Wrong(f"{unit.topic}: source {branch.rows}, target {found}")
        if self.policy in ("evolve", "stop"):
            expected = {
                *self.branches[0].source.table.column_names,
                *(name for name, _ in self.routes[0].add),
            }
            expected = {stored.get_target_name(name) for name in expected}
            if {*self.database.state.tables[PLACE].column_names} - (
                {"a"} if self.mapped else set()
            ) != expected - ({"a"} if self.mapped else set()):
                raise Wrong(f"columns {self.database.state.tables[PLACE].column_names}, and not {expected}")
