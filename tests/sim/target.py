"""The model's target database: row and unique-entry locks, deadlock detection, guarded progress, backups.

Every method that may wait is a generator: each `yield` is a moment at which the schedule may let others run.
Changes are made in place under exclusive locks and undone at rollback; `committed` is what readers (and the
judge) see. Keys and unique values are compared case-insensitively, as under a `_ci` collation.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from msgspec import structs

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.evolution.in_target import follow_definition, require_table_unchanged
from consumer.errors import (
    CommitUnknownError,
    FencedError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.model import (
    LaneProgress,
    NetChange,
    QuarantineEntry,
    UnitState,
    build_aged_entry,
    format_entry_key,
)
from consumer.ordering.reasons import find_trial_offset, is_queued, is_waiting
from consumer.ordering.recovery import TRIAL_INTERVAL_S
from schemas.table.model import Row
from schemas.wire.position import ZERO
from tests.sim.rules import Rules
from tests.sim.truth import Wrong

Steps = Generator[None, None, Any]
RowKey = tuple[str, str]
"""(branch, key in lower case)."""
KEY, VERSION, BRANCH = 0, 3, 4
"""Where they stand in a row of the target: (k, u1, u2, v, branch)."""
UNIQUE_AT = (1, 2)
PLANTED = "the target's user lost a right"
NEW = UnitState(definition=None, ddl=None, stopped=None)


def row_key(row: Sequence[Any]) -> RowKey:
    return (row[BRANCH], row[KEY].lower())


def key_of(key: Sequence[Any]) -> RowKey:
    """Of an exact key of the target table, (branch, k)."""
    return (key[0], key[1].lower())


def entries(row: Row) -> list[tuple[int, Any, str]]:
    """The unique entries of a row (branch, u1, u2); NULLs have none."""
    return [(at, row[BRANCH], str(row[at]).lower()) for at in UNIQUE_AT if row[at] is not None]


@dataclass(eq=False)
class Txn:
    owner: Any  # the attempt, for a crash
    locks: list[Any] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)
    touched: set[RowKey] = field(default_factory=set)
    waits_for: Any = None
    progress: dict[tuple[str, int], LaneProgress] = field(default_factory=dict)
    relaid: tuple[str, list[LaneProgress]] | None = None
    states: dict[str, UnitState] = field(default_factory=dict)
    held: list[tuple[str, QuarantineEntry]] = field(default_factory=list)
    released: set[str] = field(default_factory=set)
    closed_before: tuple[str, int] | None = None
    displaced: list[Row] = field(default_factory=list)
    emptied: list[Row] = field(default_factory=list)
    sweeps: bool = False
    ids: set[tuple[int, int]] = field(default_factory=set)
    dropped: set[tuple[int, int]] = field(default_factory=set)
    kept: set[tuple[str, str]] = field(default_factory=set)
    ended: set[tuple[str, str]] = field(default_factory=set)
    unit: str = ""
    closed: bool = False


class Definition:
    """What a change of definition does in a transaction: the table's form stays."""

    def __init__(self, target: Target, txn: Txn, unit: str) -> None:
        self._target, self._txn, self._unit = target, txn, unit

    def lock_units(self) -> dict[str, UnitState]:
        return dict(self._target.states)

    def write_unit(self, state: UnitState) -> None:
        self._txn.states[self._unit] = state

    def alter_table(self, change: object) -> None:
        raise NotImplementedError(change)

    def truncate_table(self, table: object, where: object) -> None:
        raise NotImplementedError(table, where)


class Target:
    def __init__(self, rules: Rules, rng: random.Random, check: Callable[[set[RowKey]], None]) -> None:
        self.rules, self.rng, self.check = rules, rng, check
        self.rows: dict[RowKey, Row] = {}
        self.unique: dict[Any, RowKey] = {}
        self.locks: dict[Any, Txn] = {}
        self.committed: dict[RowKey, Row] = {}
        self.progress: dict[str, dict[int, LaneProgress]] = {}
        self.states: dict[str, UnitState] = {}
        self.held: list[tuple[str, QuarantineEntry]] = []
        self.now_s = 0.0  # its clock
        self._held_at: dict[tuple[str, int, int], float] = {}  # when an entry was written
        self._refused_at: dict[tuple[str, str, str], float] = {}  # when it refused a row of a key
        self.displaced: list[Row] = []
        self.kept: set[tuple[str, str]] = set()  # (unit, key as JSON) of rows that the source removed
        self.emptied: list[Row] = []  # by a TRUNCATE
        self.poison: set[int] = set()  # versions that it refuses
        self.trouble = 0.0  # probability of a transient error, per transaction
        self.revoked = (
            0.0  # probability that a right is missing, per transaction: the unit then waits for a person
        )
        self.deadlocks = 0
        self.alike = False  # its key's order is the source's
        self.shown: Callable[[str], str] = lambda key: key  # how it shows a key

    # --- progress
    # -------------------------------------------------------------------------------------------------

    def take_over(self, owner: Any, unit: str, epoch: int, layout: str, lanes: int) -> Steps:
        """Give the unit a new epoch, creating its rows where missing; waits for transactions that hold
        them."""
        txn = Txn(owner)
        try:
            for n in sorted(self.progress.get(unit, {})):
                yield from self.lock(txn, ("lane", unit, n))
            fresh = {n: LaneProgress(n, 0, 0, "id", -1, ZERO, 0, layout) for n in range(lanes)}
            rows = self.progress.get(unit) or fresh
            self.progress[unit] = {n: structs.replace(row, epoch=epoch) for n, row in rows.items()}
            self.states[unit] = structs.replace(self.states.get(unit, NEW), stopped=None)
            return self.lanes(unit)
        finally:
            self.close(txn)

    def lanes(self, unit: str) -> list[LaneProgress]:
        return [row for _n, row in sorted(self.progress[unit].items())]

    def begin(self, owner: Any, unit: str, epoch: int) -> Steps:
        """Begin an attempt: lock all lane rows in lane order, compare the epoch, count the attempt."""
        txn = Txn(owner)
        try:
            for n in sorted(self.progress[unit]):
                yield from self.lock(txn, ("lane", unit, n))
            if any(row.epoch != epoch for row in self.progress[unit].values()):
                raise FencedError("epoch")
            self.progress[unit] = {
                n: structs.replace(r, attempt=r.attempt + 1) for n, r in self.progress[unit].items()
            }
            return self.lanes(unit), self.states[unit], self.read_held(unit)
        finally:
            self.close(txn)

    def read_held(self, unit: str) -> list[QuarantineEntry]:
        """Return a unit's entries, each with its age."""
        ages = {place: int((self.now_s - at) * 1000) for place, at in self._held_at.items()}
        return [
            build_aged_entry(each, ages[of, each.offset, each.part]) for of, each in self.held if of == unit
        ]

    def stop_unit(self, unit: str, epoch: int, why: str) -> None:
        if all(row.epoch == epoch for row in self.progress[unit].values()):
            self.states[unit] = structs.replace(self.states[unit], stopped=why)

    def transact(self, owner: Any, unit: str, effect: fx.Transact) -> Steps:
        """Carry out a transaction of an attempt."""
        txn = yield from self.open(owner, unit, effect.guards)
        try:
            if self.rng.random() < self.revoked:
                raise TargetConfigError(PLANTED)
            txn.sweeps = not any(
                isinstance(each, ops.WriteProgress | ops.ReplaceLaneRows) for each in effect.operations
            )
            for operation in effect.operations:
                yield from self._operation(txn, unit, operation, effect.displaced)
            yield from self.commit(txn)
        except BaseException:
            self.rollback(txn)
            raise

    def _operation(self, txn: Txn, unit: str, operation: ops.Operation, displaced: list[int]) -> Steps:
        match operation:
            case ops.WriteChanges():
                before = len(txn.displaced)
                self._end_kept(txn, unit, operation.net)
                yield from self.apply(txn, operation.net, operation.displacing)
                displaced.append(len(txn.displaced) - before)
            case ops.QuarantineEvents():
                txn.held = [(unit, entry) for entry in operation.entries]
            case ops.TruncateTarget():
                yield from self._truncate(txn, operation.where)
            case ops.CloseQuarantine():
                txn.unit, txn.ids = unit, {*txn.ids, *operation.ids}
            case ops.DropQuarantined():
                txn.unit, txn.dropped = unit, set(operation.ids)
            case ops.CloseQuarantineBefore():
                txn.closed_before = (unit, operation.offset)
            case ops.RecordKeptRows():
                txn.kept |= {(unit, key) for key in operation.kept.keys}
            case ops.ForgetKeptRows():
                txn.ended |= {each for each in self.kept if each[0] == unit}
            case ops.SupersedeDisplaced():
                pass  # a mark on rows that made room: nothing follows from it
            case ops.WriteProgress():
                txn.progress |= {(unit, row.lane): row for row in operation.rows}
            case ops.WriteUnit():
                txn.states[unit] = operation.state
            case ops.FollowDefinition():
                follow_definition(txn.owner.spec, txn.owner, Definition(self, txn, unit), operation)
            case ops.ReplaceLaneRows():
                txn.relaid = (unit, list(operation.rows))
            case ops.RequireTableUnchanged():
                require_table_unchanged(txn.owner.spec, txn.owner, Definition(self, txn, unit), operation)
            case ops.MarkSharersIncomplete() | ops.RequireRowsPresent():
                pass  # nobody drops a table here
            case _:
                assert_never(operation)

    def _end_kept(self, txn: Txn, unit: str, net: NetChange) -> None:
        """Let keys that get a new row, or none, leave the list of kept ones."""
        if net.table.has_kept_rows and self.rules.written_keys_leave_the_list:
            txn.ended |= {(unit, format_entry_key(key)) for key in net.list_keys_of_new_rows()}

    def _truncate(self, txn: Txn, where: dict[str, str] | None) -> Steps:
        """Delete the rows of the source, those that are there once each of them is locked."""
        branch = (where or {}).get("branch")
        for key in sorted(key for key in self.rows if key[0] == branch):
            yield from self.lock(txn, key)
            if (row := self.rows.get(key)) is not None:
                txn.emptied.append(row)
            yield from self._delete(txn, key)

    def open(self, owner: Any, unit: str, guards: Sequence[LaneProgress]) -> Steps:
        """Begin a transaction whose guard must pass."""
        txn = Txn(owner)
        try:
            for guard in sorted(guards, key=lambda row: row.lane):
                yield from self.lock(txn, ("lane", unit, guard.lane))
                row = self.progress[unit].get(guard.lane)
                if row is None or not self._is(row, guard):
                    raise FencedError(f"{row} is not {guard}")
        except BaseException:
            self.rollback(txn)
            raise
        return txn

    def _is(self, row: LaneProgress, guard: LaneProgress) -> bool:
        if not self.rules.attempt_fences:
            return row.epoch == guard.epoch
        return (row.epoch, row.attempt, row.offset) == (guard.epoch, guard.attempt, guard.offset)

    # --- locks
    # ----------------------------------------------------------------------------------------------------

    def lock(self, txn: Txn, what: Any) -> Steps:
        """Take an exclusive lock until the end of the transaction. Raises TransientError for a deadlock."""
        while self.locks.get(what, txn) is not txn:
            txn.waits_for = what
            if self._cycle(txn):
                txn.waits_for = None
                self.deadlocks += 1
                raise TransientError("deadlock")
            yield
        txn.waits_for = None
        if what not in self.locks:
            self.locks[what] = txn
            txn.locks.append(what)
        if self.rng.random() < 0.3:
            yield

    def _cycle(self, txn: Txn) -> bool:
        at = self.locks.get(txn.waits_for)
        while at is not None and at is not txn:
            at = self.locks.get(at.waits_for) if at.waits_for is not None else None
        return at is txn

    # --- rows
    # -----------------------------------------------------------------------------------------------------

    def apply(self, txn: Txn, net: NetChange, displacing: str | None) -> Steps:
        for key in net.deletes:
            if txn.sweeps and (row := self.rows.get(key_of(key))) is not None:
                txn.emptied.append(row)
            yield from self._delete(txn, key_of(key))
        for row in net.replaces:
            yield from self._delete(txn, row_key(row))
        for row in net.snapshot:
            yield from self._delete(txn, row_key(row))
            yield from self._put(txn, row, displacing)
        for row in net.replaces:
            yield from self._put(txn, row, displacing)
        for row in net.updates:
            yield from self._delete(txn, row_key(row))
            yield from self._put(txn, row, displacing)

    def _delete(self, txn: Txn, key: RowKey) -> Steps:
        yield from self.lock(txn, key)
        row = self.rows.get(key)
        if row is None:
            return
        for entry in entries(row):
            yield from self.lock(txn, entry)
        del self.rows[key]
        for entry in entries(row):
            del self.unique[entry]
        txn.touched.add(key)
        txn.undo.append(lambda: self._restore(key, row))

    def _put(self, txn: Txn, row: Row, displacing: str | None) -> Steps:
        if row[VERSION] in self.poison:
            raise RefusedError(f"refused: {row}")
        key = row_key(row)
        yield from self.lock(txn, key)
        for entry in entries(row):
            yield from self.lock(txn, entry)
            other = self.unique.get(entry)
            if other is None or other == key:
                continue
            if displacing is None:
                raise UniqueViolationError(f"{row} meets {self.rows[other]}")
            if self.rules.displaced_rows_are_kept:
                txn.displaced.append(self.rows[other])
            yield from self._delete(txn, other)
        if key in self.rows:  # only where another transaction's work was displaced in between
            yield from self._delete(txn, key)
        self._restore(key, row)
        txn.touched.add(key)
        txn.undo.append(lambda: self._forget(key))

    def _restore(self, key: RowKey, row: Row) -> None:
        self.rows[key] = row
        for entry in entries(row):
            self.unique[entry] = key

    def _forget(self, key: RowKey) -> None:
        for entry in entries(self.rows.pop(key)):
            del self.unique[entry]

    # --- what a copy asks
    # ---------------------------------------------------------------------------------------------

    def list_keys(self, effect: fx.ListKeys) -> list[tuple[str, str]]:
        """Return the next two keys that readers see, in this target's order."""
        after, upto = (None if key is None else self._order(key) for key in (effect.after, effect.upto))
        found = sorted(
            (
                (row[BRANCH], row[KEY])
                for row in self.committed.values()
                if row[BRANCH] == (effect.where or {}).get("branch")
            ),
            key=self._order,
        )
        beyond = [key for key in found if after is None or self._order(key) > after]
        page = [key for key in beyond if upto is None or self._order(key) <= upto][:2]
        return [(branch, self.shown(key)) for branch, key in page]

    def _order(self, key: Sequence[Any]) -> tuple[int, ...]:
        """The source orders keys by their letters; this target mostly otherwise."""
        letters = [ord(letter) for letter in key[1].lower()]
        return tuple(letters if self.alike else [-letter for letter in letters])

    def look_up(self, keys: Sequence[Any]) -> list[tuple[str, str]]:
        found = [self.committed.get(key_of(key)) for key in keys]
        return [(row[BRANCH], self.shown(row[KEY])) for row in found if row is not None]

    # --- ends
    # -----------------------------------------------------------------------------------------------------

    def commit(self, txn: Txn) -> Steps:
        """Commit, or fail before, or fail behind it: then only the progress row can tell."""
        yield
        luck = self.rng.random()
        if luck < self.trouble:
            self.rollback(txn)
            raise CommitUnknownError("lost") if luck < self.trouble / 3 else TransientError("lost connection")
        for key in txn.touched:
            if key in self.rows:
                self.committed[key] = self.rows[key]
            else:
                self.committed.pop(key, None)
        for (unit, lane), row in txn.progress.items():
            self.progress[unit][lane] = row
        if txn.relaid is not None:
            self.progress[txn.relaid[0]] = {row.lane: row for row in txn.relaid[1]}
        self.states |= txn.states
        if txn.progress:  # its next row is another one: the key was deleted, or a snapshot has read it
            for of, entry in [each for each in self.held if _leaves(txn, *each, new=False)]:
                self._refused_at.pop((of, entry.table, entry.key), None)
        self.held = [
            entry for entry in [*self.held, *txn.held] if not _leaves(txn, *entry, new=entry in txn.held)
        ]
        self.kept = (self.kept - txn.ended) | txn.kept
        newest = {(of, entry.table, entry.key): entry for of, entry in txn.held}
        for of, entry in txn.held:
            self._note_entry(of, entry, newest.values(), is_trial=not txn.progress)
        self.displaced.extend(txn.displaced)
        self.emptied.extend(txn.emptied)
        touched = set(txn.touched)
        self.close(txn)
        self.check(touched)
        if luck > 1 - self.trouble / 3:
            raise CommitUnknownError("lost behind COMMIT")

    def _note_entry(
        self, unit: str, entry: QuarantineEntry, newest: Collection[QuarantineEntry], *, is_trial: bool
    ) -> None:
        """Note a new entry. Raises Wrong for a key that was tried too early after it was refused.

        `newest`: of each key that the transaction adds entries of.
        """
        place, is_old = (unit, entry.table, entry.key), (unit, entry.offset, entry.part) in self._held_at
        self._held_at[unit, entry.offset, entry.part] = self.now_s
        if is_queued(entry):
            if is_old:  # the end of a copy: the key may be tried at once
                self._refused_at.pop(place, None)
            return
        was_room_made = is_trial and is_waiting(entry) and find_trial_offset(entry) < 0
        if was_room_made or entry not in newest:
            return
        since = self.now_s - self._refused_at.get(place, -TRIAL_INTERVAL_S)
        if is_trial and since < TRIAL_INTERVAL_S:
            raise Wrong(f"{entry.key} was tried again {since:.3f} s after the target had refused it")
        self._refused_at[place] = self.now_s

    def rollback(self, txn: Txn) -> None:
        if not txn.closed:
            for undo in reversed(txn.undo):
                undo()
            self.close(txn)

    def close(self, txn: Txn) -> None:
        txn.closed = True
        for what in txn.locks:
            del self.locks[what]
        txn.locks = []

    def kill(self, owner: Any) -> None:
        """Roll back what `owner` has open: its connections are gone."""
        for txn in {id(t): t for t in self.locks.values() if t.owner is owner}.values():
            self.rollback(txn)

    # --- backups
    # --------------------------------------------------------------------------------------------------

    def backup(self) -> Any:
        tables = (
            self.committed, self.progress, self.states, self.held, self.displaced, self.emptied, self.kept,
        )  # fmt: skip
        return copy.deepcopy((tables, self._held_at))

    def restore(self, backup: Any) -> None:
        """Come back as of `backup`; nobody is connected."""
        tables, self._held_at = copy.deepcopy(backup)
        (
            self.committed, self.progress, self.states, self.held, self.displaced, self.emptied, self.kept,
        ) = tables  # fmt: skip
        self._refused_at = {}
        self.locks, self.unique, self.rows = {}, {}, {}
        for key, row in self.committed.items():
            self._restore(key, row)


def _leaves(txn: Txn, unit: str, entry: QuarantineEntry, *, new: bool) -> bool:
    """Whether a transaction takes the entry out of the quarantine; `new`: it has put it in."""
    if unit == txn.unit and (entry.offset, entry.part) in txn.ids:
        return True
    closed = txn.closed_before
    return not new and (
        (unit == txn.unit and (entry.offset, entry.part) in txn.dropped)
        or entry.folded in txn.released
        or (closed is not None and unit == closed[0] and entry.offset < closed[1])
    )
