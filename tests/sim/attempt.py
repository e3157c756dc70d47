"""The model's consumer: a query that makes task attempts, each driving the real core against the model's target.

An attempt is a set of actors (its task and its lanes), generators that the schedule advances in any order. The core is
the product's own: Deduplicator, progress.plan, Dispatcher, LockTable, Lane, net change. Only what a switched-off rule
would do differently is written here.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from consumer.dedup import Deduplicator
from consumer.dispatch import Dispatcher, Item, TablePlan
from consumer.errors import (
    CommitUnknownError,
    ConsumerError,
    FencedError,
    RefusedError,
    TransientError,
    UnitStoppedError,
)
from consumer.lanes import Apply, Batch, Idle, Lane, Limits, WaitFor
from consumer.layout import Layout
from consumer.locks import Holders, LockTable, Ticket
from consumer.model import Held, LaneProgress, NetChange, RowChange, TargetTable
from consumer.progress import Mark, advanced, committed, idle_rows, plan, relaid
from consumer.progress import Plan as Start
from schemas.position import Position
from schemas.table import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from tests.sim.source import SourceRow, Topic
from tests.sim.target import Steps, Txn

if TYPE_CHECKING:
    from tests.sim.world import World

CI = "utf8mb4_general_ci"


def target_table(key_collation: str = CI) -> TargetTable:
    """(branch, k) primary key; (branch, u1) and (branch, u2) unique; v is the version."""
    text = {"branch": "utf8mb4_bin", "k": key_collation, "u1": CI, "u2": CI}
    columns = [
        Column(name=name, type=ColumnType(kind=Kind.VARCHAR, length=10, collation=collation))
        for name, collation in text.items()
    ]
    columns.append(Column(name="v", type=ColumnType(kind=Kind.INT, bits=64)))

    def unique(name: str, column: str) -> UniqueIndex:
        return UniqueIndex(name=name, parts=(IndexPart(column="branch"), IndexPart(column=column)))

    table = Table(
        db="d",
        name="t",
        columns=tuple(columns),
        key=unique("PRIMARY", "k"),
        unique=(unique("u1", "u1"), unique("u2", "u2")),
    )
    return TargetTable(table, (0, 1), ((0, 2), (0, 3)), ("branch",))


TABLE = target_table()
UNFOLDED = target_table("utf8mb4_bin")  # rule 10 off: the target's `_ci` key hashed by its bytes


class NoGap(Deduplicator):
    """Rule 3 off: nobody looks at `prev`."""

    __slots__ = ()

    def judge(self, offset: int, position: Position | None, prev: Position | None, gen: int) -> int:
        return super().judge(offset, position, None, gen)


class Unticketed(LockTable):
    """No event waits for another lane's because of a unique value."""

    def register(self, holders: Holders, value: bytes, ticket: Ticket) -> None:
        super().register(holders, value, ticket)


class WholeMoves(Dispatcher):
    """Rule 7 off: a key-moving update goes whole to the new key's lane."""

    def _move(self, plan: TablePlan, change: RowChange, old: bytes) -> None:
        after = change.after
        if after is not None:
            key = plan.fold_key(after)
            lane = plan.lane_of(key)
            if change.id[0] > self._passed[lane]:
                waits = self._waits(plan, (change.id, lane), change.before, after)
                self._queues[lane].append((change, plan, key, waits))


class Attempt:
    """One task attempt over the topic up to offset `end` (exclusive)."""

    def __init__(self, query: Query, begin: int, end: int) -> None:
        self.query, self.batch_begin, self.end = query, begin, end
        self.world, self.target, self.rules = query.world, query.world.target, query.world.rules
        self.epoch, self.wanted = query.epoch, Layout(lanes=query.lanes)
        self.actors: list[Steps] = [self._task()]
        self.finished = False
        self.failed = False
        self.rows: list[LaneProgress] = []
        self.held: list[Held] = []

    def step(self, rng: random.Random) -> None:
        """Advance one actor; an error of any ends the attempt, as the lanes' shell does."""
        actor = rng.choice(self.actors)
        try:
            next(actor)
        except StopIteration:
            self.actors.remove(actor)
            self.finished = not self.actors
        except UnitStoppedError:
            raise  # no rule lets the model stop a unit: what it met is wrong
        except ConsumerError as error:
            self.world.note(f"{self.query.unit} attempt ends: {type(error).__name__} {error}")
            self.kill()

    def kill(self) -> None:
        self.actors, self.failed = [], True
        self.target.kill(self)

    # --- the task ---------------------------------------------------------------------------------------------------

    def _task(self) -> Steps:
        self.rows, self.held = yield from self.target.begin(self, self.query.unit, self.epoch)
        start = self._plan()
        if start.switch_now:
            yield from self._relayout()
            start = self._plan()
        at = self._first(start.start)
        if start.finish is not None and self.rules.layout_changes_when_equal:
            finish = min(start.finish + 1, self.end)
            yield from self._stretch(start.layout, at, finish)
            if finish <= start.finish:
                return
            yield from self._relayout()
            at, start = finish, self._plan()
        yield from self._stretch(start.layout, at, self.end)

    def _first(self, start: int) -> int:
        """Rule 11: from the lowest lane, whatever the batch says; off: the batch's own range is believed."""
        return start if self.rules.resumes_from_progress else self.batch_begin

    def _plan(self) -> Start:
        wanted = self.wanted
        start = plan(self.rows, wanted)
        if start.finish is not None and not self.rules.layout_changes_when_equal:
            text = wanted.encode()
            self.rows = [
                replace(self.rows[n % len(self.rows)], lane=n, layout=text) for n in range(wanted.lanes)
            ]
            self.target.progress[self.query.unit] = {row.lane: row for row in self.rows}
            return Start(min(row.offset for row in self.rows) + 1, wanted)
        return start

    def _relayout(self) -> Steps:
        txn = yield from self.target.open(self, self.query.unit, self.rows)
        rows = relaid(self.rows, self.wanted)
        txn.relaid = (self.query.unit, rows)
        yield from self._commit(txn, self.rows[0], rows[0])
        self.rows = rows

    def _stretch(self, layout: Layout, begin: int, end: int) -> Steps:
        """Dispatch the records [begin, end) with one layout, drain the lanes, write the idle ones."""
        if begin >= end:
            return
        locks = (LockTable if self.rules.values_are_ticketed else Unticketed)(layout.lanes)
        marks = self._marks()
        kind = Dispatcher if self.rules.key_moves_are_two_parts else WholeMoves
        dispatcher = kind(layout, locks, self._passed())
        table = dispatcher.plan(TABLE if self.rules.keys_are_folded else UNFOLDED)
        limits = Limits(max_gather=self.world.max_gather, tries=8)
        lanes = [Lane(n, locks, limits, self.held) for n in range(layout.lanes)]
        drained: dict[int, bool] = {}
        short = end - begin <= self.world.short and not self.held and self._level()
        step = end - begin if short else 3
        for at in range(begin, end, step):
            changes = self._routed(marks, table, at, min(at + step, end))
            if short and (yield from self._short_way(changes, table, _mark(marks))):
                return
            dispatcher.dispatch(table, changes)
            _hand(lanes, dispatcher.take())
            if at == begin:
                self.actors += [self._lane(lane, lanes, drained) for lane in lanes]
            yield
        mark = _mark(marks)
        for lane in lanes:
            lane.drain(mark)
        while len(drained) < len(lanes):
            yield
        yield from self._idle([n for n, wrote in drained.items() if not wrote], mark)
        self.held = [held for of, held in self.target.held if of == self.query.unit]

    def _level(self) -> bool:
        return len({row.offset for row in self.rows}) == 1

    def _short_way(
        self, changes: Sequence[RowChange], table: TablePlan, mark: Mark
    ) -> Generator[None, None, bool]:
        """As consumer.applier: one transaction for all, which guards and moves every lane; False: the lanes must do it."""
        if not changes:
            return False
        rows = [advanced(row, mark) for row in self.rows]
        txn = yield from self.target.open(self, self.query.unit, self.rows)
        try:
            for _, stretch in groupby(changes, key=attrgetter("snapshot")):
                yield from self.target.apply(txn, table.reducer.reduce(list(stretch)), None)
            txn.progress |= {(self.query.unit, row.lane): row for row in rows}
            yield from self._commit(txn, self.rows[0], rows[0])
        except (TransientError, RefusedError):
            self.target.rollback(txn)
            return False
        except BaseException:
            self.target.rollback(txn)
            raise
        self.rows = rows
        return True

    def _marks(self) -> Deduplicator:
        rows = self.rows
        if not self.rules.marks_from_lowest_lane:
            rows = [max(rows, key=lambda row: row.offset)]
        marks = Deduplicator(rows) if self.rules.delivery_failure_leaves_no_gap else NoGap(rows)
        if not self.rules.resumes_from_progress:  # such a reader has no mark of its own to miss anything by
            marks = NoGap(rows)
            marks.offset = min(marks.offset, self.batch_begin - 1)
        return marks

    def _passed(self) -> list[LaneProgress]:
        return self.rows

    def _routed(self, marks: Deduplicator, table: TablePlan, begin: int, end: int) -> list[RowChange]:
        out: list[RowChange] = []
        for offset in range(begin, end):
            record = self.query.topic.records[offset]
            gen = record.gen if self.rules.zombies_are_dropped else 0
            if marks.judge(offset, record.position, record.prev, gen) or record.chunk is not None:
                continue
            before, after = self._row(record.before), self._row(record.after)
            wire = msgspec.json.encode({"before": before, "after": after})
            place = (record.position, record.gen, 0, wire)
            out.append(RowChange((offset, 0), before, after, record.snapshot, *place))
        return out

    def _row(self, row: SourceRow | None) -> Row | None:
        return None if row is None else (self.query.branch, *row)

    def _idle(self, lanes: Sequence[int], mark: Mark) -> Steps:
        for row in idle_rows(self.rows, sorted(lanes), mark):
            txn = yield from self.target.open(self, self.query.unit, [self.rows[row.lane]])
            txn.progress[(self.query.unit, row.lane)] = row
            yield from self._commit(txn, self.rows[row.lane], row)
            self.rows[row.lane] = row

    def _commit(self, txn: Txn, guard: LaneProgress, wrote: LaneProgress) -> Steps:
        """Commit; where the outcome is unknown, the row decides."""
        try:
            yield from self.target.commit(txn)
        except CommitUnknownError:
            yield
            row = self.target.progress[self.query.unit].get(guard.lane)
            if not committed(row, guard, wrote):
                raise

    # --- the lanes --------------------------------------------------------------------------------------------------

    def _lane(self, lane: Lane, lanes: list[Lane], drained: dict[int, bool]) -> Steps:
        while True:
            effect = lane.next()
            if isinstance(effect, Apply):
                try:
                    yield from self._write(lane.number, lane.batch())
                except FencedError:
                    raise
                except ConsumerError as error:
                    lane.failed(error)
                    if not self.rules.halves_by_event and not isinstance(error, CommitUnknownError):
                        yield from self._net_halves(lane)
                    continue
                lane.applied()
            elif isinstance(effect, WaitFor):
                for wait in effect.waits:
                    lanes[wait[1]].ask(wait[0])
            elif isinstance(effect, Idle) and effect.drained:
                drained[lane.number] = effect.wrote
                return
            yield

    def _write(self, lane: int, batch: Batch) -> Steps:
        row = advanced(self.rows[lane], batch.mark)
        txn = yield from self.target.open(self, self.query.unit, [self.rows[lane]])
        try:
            for net in batch.nets:
                yield from self.target.apply(txn, net, batch.displacing)
            txn.held = [(self.query.unit, entry) for entry in batch.held]
            txn.progress[(self.query.unit, lane)] = row
            yield from self._commit(txn, self.rows[lane], row)
        except BaseException:
            self.target.rollback(txn)
            raise
        self.rows[lane] = row

    def _net_halves(self, lane: Lane) -> Steps:
        """Rule 17 off: half of the net (its deletes) in a transaction of its own, before the rest is tried again."""
        for net in lane.batch().nets:
            txn = yield from self.target.open(self, self.query.unit, [self.rows[lane.number]])
            try:
                keys = [tuple(row[:2]) for row in net.replaces]
                half = NetChange(net.table, net.deletes + keys, [], [], net.catch_up)
                yield from self.target.apply(txn, half, None)
                yield from self.target.commit(txn)
            except ConsumerError:
                self.target.rollback(txn)


def _mark(marks: Deduplicator) -> Mark:
    return (marks.offset, marks.position, marks.gen, 0)


def _hand(lanes: list[Lane], queues: list[list[Item]]) -> None:
    for lane, items in zip(lanes, queues, strict=True):
        lane.feed(items)


class Query:
    """Spark's part for one topic: micro-batches, the checkpoint, retries; and the unit's assignment."""

    def __init__(self, world: World, topic: Topic, unit: str, branch: str) -> None:
        self.world, self.topic, self.unit, self.branch = world, topic, unit, branch
        self.epoch = 0
        self.lanes = 1
        self.checkpoint = 0  # next offset of the next batch
        self.batch_end = 0
        self.live: Attempt | None = None
        self.zombies: list[Attempt] = []
        self.starting: Steps | None = self._start()

    def _start(self) -> Steps:
        """(Re)start: a higher epoch; the checkpoint from the progress rows (rule 11), or the one that is there."""
        self.epoch += 1
        self.lanes = self.world.rng.randint(1, self.world.max_lanes)
        layout = Layout(lanes=self.lanes).encode()
        rows = yield from self.world.target.take_over(self, self.unit, self.epoch, layout, self.lanes)
        if self.world.rules.resumes_from_progress:
            self.checkpoint = min(row.offset for row in rows) + 1

    def restart(self, *, kill: bool) -> None:
        """The driver is started again; without `kill` the Python lanes of its attempt go on as zombies."""
        if self.live is not None:
            self.zombies.append(self.live)
            self.live = None
        if kill:
            for attempt in self.zombies:
                attempt.kill()
            self.zombies = []
        if self.starting is not None:
            self.starting.close()
        self.starting = self._start()

    def retry(self) -> None:
        """Spark tries the task again while the old attempt still runs."""
        if self.live is not None and not self.live.finished:
            self.zombies.append(self.live)
            self.live = Attempt(self, self.checkpoint, self.batch_end)

    @property
    def idle(self) -> bool:
        return self.starting is None and self.live is None and self.checkpoint >= len(self.topic.records)

    def step(self, rng: random.Random) -> None:
        self.zombies = [attempt for attempt in self.zombies if attempt.actors]
        if self.zombies and rng.random() < 0.3:
            rng.choice(self.zombies).step(rng)
        elif self.starting is not None:
            try:
                next(self.starting)
            except StopIteration:
                self.starting = None
        elif self.live is None:
            self.batch_end = min(
                len(self.topic.records), self.checkpoint + rng.randint(1, self.world.max_batch)
            )
            if self.batch_end > self.checkpoint:
                self.live = Attempt(self, self.checkpoint, self.batch_end)
        elif self.live.failed:
            self.live = Attempt(self, self.checkpoint, self.batch_end)
        elif self.live.finished:
            self.checkpoint, self.live = self.batch_end, None
        else:
            self.live.step(rng)
