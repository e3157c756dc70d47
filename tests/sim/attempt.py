"""Queries that make task attempts of the product (consumer.attempt) against the model's target.

Nothing of an attempt is written here: what it decides is the product's code. This is its driver in the
simulation: an attempt's own machine and its lanes' are actors that the schedule advances in any order, an
effect a step or several.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from consumer.attempt import effects as fx
from consumer.attempt.attempt import Attempt as Product
from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.keys import MemoryKeys
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import (
    DefinitionCache,
    UnitAssignment,
    UnitSpec,
    build_initial_layout,
    load_active_definition,
    resolve_definition,
)
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry
from consumer.ordering.recovery import list_untried_keys
from consumer.tables.definition import ActiveDefinition
from schemas.table.model import Key, Table
from schemas.table.names import EXACT
from tests.sim.actors import AttemptActors, after_a_step, at_once, build_step_table, in_steps, unmet
from tests.sim.kafka import Topic
from tests.sim.target import PLANTED, Steps
from tests.sim.truth import Wrong
from tests.sim.wire import real_table, routes, table_there

if TYPE_CHECKING:
    from tests.sim.world import PipelineSimulation

UNUSED: Any = SimpleNamespace(column_names=EXACT, table_names=EXACT)
"""The target's real table is in the spec, so that no session is asked for it."""
SLICE = 3
"""Records that an attempt is given at a time."""


class Fault(Exception):  # noqa: N818
    """The product failed where nobody foresaw it: never what a switched-off rule is found by."""


class Woken:
    """Remembers who was woken: whoever waits looks again only then, as a thread would."""

    mutex: AbstractContextManager[object] = nullcontext()

    def __init__(self) -> None:
        self.lanes: set[int | None] = set()

    def wake_lane(self, lane: int | None) -> None:
        self.lanes.add(lane)


class Attempt(AttemptActors):
    """One task attempt over the topic up to offset `end` (exclusive)."""

    column_names = EXACT
    table_names = EXACT

    def __init__(self, query: Query, begin: int, end: int) -> None:
        self.query, self.end = query, end
        self.world, self.target = query.world, query.world.target
        self.spec = query.spec
        self.finished = False
        self.failed = False
        self._at = begin
        self._reads: dict[type, tuple[int, Iterator[RecordSlice]]] = {}
        self._woken = Woken()
        self._key_sweeps = query.key_sweeps
        super().__init__()

    def kill(self) -> None:
        self.actors, self.failed = [], True
        self.target.kill(self)

    def read_table(self, _schema: str, _name: str) -> Table:
        return table_there(self.query.branch, coarse=self.world.coarse)

    # --- the actors

    def task(self) -> Steps:
        report: Report = yield from self.drive(Product(self.spec, lambda _lanes: self._woken).run())
        self.world.note(f"{self.query.unit} attempt ends: {report.state} {report.message}")
        self.actors = []  # the lanes have ended
        if report.state == "ok":
            self.finished = True
            if self.query.live is self and report.trial_in_s:
                self.query.trial_at = self.target.now_s + report.trial_in_s
            return
        self.failed = True
        self.query.ended = (
            report.state == "stopped" and self.query.live is self and self._says_stop(report.message)
        )
        if self.query.ended and report.copy is not None:
            self.world.needs_copy(self.query, report.copy)
        looked = self.query.ended and self.spec.patient
        self.query.looked_at = len(self.query.topic.records) if looked else -1
        if (
            report.state == "stopped"
            and PLANTED not in report.message
            and not self._says_stop(report.message)
        ):
            foreseen = "internal error of rowlock" not in report.message or "(ValueError: " in report.message
            raise (Wrong if foreseen else Fault)(f"the unit stopped: {report.message}")
        self.query.stopped = self.query.stopped or (
            report.state == "stopped" and self.query.live is self and self.query.epoch == self.spec.epoch
        )

    def _says_stop(self, message: str) -> bool:
        """Whether an attempt ends because the topic says that the table is stopped."""
        return any(stop in message for stop in self.query.stops())

    # --- effects

    def _await(self, effect: fx.Await, lane: int | None) -> Steps:
        """Raises Wrong where what is awaited has come and nobody said so: a thread would sleep on."""
        yield
        while not effect.ready():
            self._woken.lanes.discard(lane)
            while lane not in self._woken.lanes:
                yield
                if lane not in self._woken.lanes and effect.ready():
                    raise Wrong(
                        f"nobody woke {'the attempt' if lane is None else f'lane {lane}'}: "
                        "what it awaits is there"
                    )

    def _transact(self, effect: fx.Transact, _lane: int | None) -> Steps:
        yield from self.target.transact(self, self.query.unit, effect)

    def _begin_attempt(self, _effect: fx.BeginAttempt, _lane: int | None) -> Generator[None, None, Any]:
        return (yield from self.target.begin(self, self.query.unit, self.spec.epoch))

    def _read_progress(self, _effect: fx.ReadProgress) -> list[LaneProgress]:
        return self.target.lanes(self.query.unit)

    def _read_quarantine(self, _effect: fx.ReadQuarantine) -> list[QuarantineEntry]:
        return self.target.read_held(self.query.unit)

    def _stop_unit(self, effect: fx.StopUnit) -> None:
        self.target.stop_unit(self.query.unit, self.spec.epoch, effect.why)

    def _restore_definition(self, effect: fx.RestoreDefinition) -> ActiveDefinition:
        found = load_active_definition(self.spec, UNUSED, effect.text, self.query.tables)
        return self._see_keys(found)

    def _prepare_definition(self, effect: fx.PrepareDefinition) -> ActiveDefinition:
        made = resolve_definition(self.spec, UNUSED, effect.stored, first=effect.first)
        return self._see_keys(made)

    def _see_keys(self, active: ActiveDefinition) -> ActiveDefinition:
        ordered = active.ordered or self.target.alike
        exact = self.world.one_case and self.target.shown("a") == "a"
        return replace(active, ordered=ordered, shown_alike=ordered and exact)

    def _take_key_sweep(self, _effect: fx.TakeKeySweep) -> KeySweep | TableSweep | None:
        return self._key_sweeps.pop(self.spec.place, None)

    def _remember_key_sweep(self, effect: fx.RememberKeySweep) -> None:
        self._key_sweeps[self.spec.place] = effect.sweep

    def _list_keys(self, effect: fx.ListKeys) -> Sequence[Key]:
        return self.target.list_keys(effect)

    def _look_up_keys(self, effect: fx.LookUpKeys) -> Sequence[Key]:
        return self.target.look_up(effect.keys)

    def _find_kept_keys(self, effect: fx.FindKeptKeys) -> Sequence[str]:
        return [key for key in effect.keys if (self.query.unit, key) in self.target.kept]

    def _find_kept_rows(self, _effect: fx.FindKeptRows) -> bool:
        return any(unit == self.query.unit for unit, _ in self.target.kept)

    def _start_lanes(self, effect: fx.StartLanes) -> None:
        self.start(effect.lanes)

    def _join_lanes(self, _effect: fx.JoinLanes, _lane: int | None) -> Steps:
        yield from self.join()

    def _next_slice(self, _effect: fx.NextSlice) -> RecordSlice | None:
        begin, self._at = self._at, min(self._at + SLICE, self.end)
        return self.query.topic.slice(begin, self._at) if begin < self._at else None

    def _next_read(self, effect: fx.ReadMissing | fx.ReadPassed) -> RecordSlice | None:
        start, rest = self._reads.pop(type(effect), (-1, iter(())))
        if start != effect.start:
            rest = iter(self._slices(effect.start, effect.upto))
        records = next(rest, None)
        if records is not None:
            self._reads[type(effect)] = effect.start, rest
        return records

    def _slices(self, start: int, upto: int) -> list[RecordSlice]:
        return [self.query.topic.slice(at, min(at + SLICE, upto)) for at in range(start, upto, SLICE)]

    def _find_begin(self, effect: fx.FindBegin) -> tuple[int, bytes] | None:
        end = len(self.query.topic.records)
        return find_begin(self._slices, lambda start: self._slices(start, end), effect.after, effect.hint)

    handlers = build_step_table(
        in_steps(fx.Transact, _transact),
        in_steps(fx.BeginAttempt, _begin_attempt),
        after_a_step(fx.ReadProgress, _read_progress),
        after_a_step(fx.ReadQuarantine, _read_quarantine),
        after_a_step(fx.CheckSession, lambda *_: None),
        after_a_step(fx.DropSession, lambda *_: None),
        after_a_step(fx.StopUnit, _stop_unit),
        after_a_step(fx.ListKeys, _list_keys),
        after_a_step(fx.LookUpKeys, _look_up_keys),
        after_a_step(fx.FindKeptKeys, _find_kept_keys),
        after_a_step(fx.FindKeptRows, _find_kept_rows),
        at_once(fx.RestoreDefinition, _restore_definition),
        at_once(fx.PrepareDefinition, _prepare_definition),
        after_a_step(fx.ExplainMisfit, lambda *_: None),
        at_once(fx.ReadTable, lambda self, _: self.read_table("", "")),
        at_once(fx.ReadSharers, lambda *_: []),  # another unit's writes never change the table's form
        at_once(fx.OwnConnection, lambda *_: None),
        unmet(fx.AlterTarget, "its target alters tables in transactions"),
        unmet(fx.EndConnection, "its target alters tables in transactions"),
        after_a_step(fx.NextSlice, _next_slice),
        after_a_step(fx.ReadMissing, _next_read),
        after_a_step(fx.ReadPassed, _next_read),
        unmet(fx.ReadRest, "only a partial snapshot of Debezium needs it, and rowlock captures here"),
        unmet(fx.AskSource, "only a partial snapshot of Debezium needs it, and rowlock captures here"),
        after_a_step(fx.FindBegin, _find_begin),
        unmet(fx.FindSnapshot, "only Debezium's snapshots are found so, and rowlock captures here"),
        at_once(fx.OpenKeys, lambda *_: MemoryKeys()),
        at_once(fx.TakeKeySweep, _take_key_sweep),
        at_once(fx.RememberKeySweep, _remember_key_sweep),
        after_a_step(fx.Sleep, lambda *_: None),
        at_once(fx.ReadClock, lambda self, _: self.target.now_s),
        in_steps(fx.Await, _await),
        at_once(fx.StartLanes, _start_lanes),
        in_steps(fx.JoinLanes, _join_lanes),
    )


class Query:
    """A slot's part for one topic: which records an attempt has, and retries; and the unit's assignment."""

    def __init__(self, world: PipelineSimulation, topic: Topic, unit: str, branch: str) -> None:
        self.world, self.topic, self.unit, self.branch = world, topic, unit, branch
        self.real = real_table(branch, coarse=world.coarse)
        self.tables: DefinitionCache = {}
        self.key_sweeps: dict[UnitAssignment, KeySweep | TableSweep] = {}  # what its process remembers
        self.epoch = 0
        self.lanes = 1
        self.checkpoint = 0  # next offset of the next batch
        self.batch_end = 0
        self.ended = False  # by a stop in the topic
        self.looked_at = -1  # where the topic ended when it was last looked for a copy behind that stop
        self.stopped = False  # it waits for a person, who mends the target and restarts it
        self.trial_at: float | None = None  # when an attempt without records is to try quarantined keys
        self.live: Attempt | None = None
        self.zombies: list[Attempt] = []
        self.starting: Steps | None = self._start()

    @property
    def spec(self) -> UnitSpec:
        world = self.world
        limits = LaneLimits(
            max_gather=world.max_gather, max_pending=world.max_pending, max_waits=world.max_waits, tries=8
        )
        return UnitSpec(
            unit=ApplyUnit("p", self.unit), source="s", epoch=self.epoch, topic_id="id",
            routes=routes(self.branch, keeps=world.keeps), lanes=self.lanes, limits=limits,
            small_batch=world.small_batch, replace=not world.holds,
            real=self.real, copy_at=world.hint(self), patient=world.asking.random() < 0.6, sweep_s=0.0,
        )  # fmt: skip

    def _start(self) -> Steps:
        """(Re)start: a higher epoch; the checkpoint from the progress rows (rule 11), or the one that is
        there."""
        self.epoch += 1
        self.lanes = self.world.rng.randint(1, self.world.max_lanes)
        layout = build_initial_layout(routes(self.branch), self.lanes).encode()
        rows = yield from self.world.target.take_over(self, self.unit, self.epoch, layout, self.lanes)
        self.stopped = self.ended = False
        held = [entry for unit, entry in self.world.target.held if unit == self.unit]
        untried = list_untried_keys(held, min(row.offset for row in rows))
        self.trial_at = 0.0 if untried else None
        if self.world.rules.resumes_from_progress:
            self.checkpoint = min(row.offset for row in rows) + 1
            if (
                self.world.rng.random() < 0.2
            ):  # an attempt may begin after it: what it lacks is read from Kafka
                self.checkpoint = min(self.checkpoint + 2, max(self.checkpoint, len(self.topic.records) - 1))

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
        self.key_sweeps = {}
        self.starting = self._start()

    def retry(self) -> None:
        """Another slot tries again while the old attempt still runs."""
        if self.live is not None and not self.live.finished:
            self.zombies.append(self.live)
            self.live = Attempt(self, self.checkpoint, self.batch_end)

    def stops(self) -> list[str]:
        """Return why the table is stopped, as often as the topic says so."""
        events = [msgspec.json.decode(record.value() or b"{}") for record in self.topic.records]
        return [event["stop"]["reason"] for event in events if event.get("stop")]

    @property
    def idle(self) -> bool:
        if self.ended:
            return self.starting is None and self.looked_at == len(self.topic.records)
        caught_up = self.checkpoint >= len(self.topic.records) and self.trial_at is None
        return self.starting is None and self.live is None and caught_up

    def step(self, rng: random.Random) -> None:
        self.zombies = [attempt for attempt in self.zombies if attempt.actors]
        if self.zombies and rng.random() < 0.3:
            rng.choice(self.zombies).step(rng)
        elif self.starting is not None:
            try:
                next(self.starting)
            except StopIteration:
                self.starting = None
        elif self.stopped:
            if not self.ended or rng.random() < (0.05 if self.looked_at == len(self.topic.records) else 0.3):
                self.restart(kill=False)
        elif self.live is None:
            self.batch_end = min(
                len(self.topic.records), self.checkpoint + rng.randint(1, self.world.max_batch)
            )
            is_due = self.trial_at is not None and self.world.target.now_s >= self.trial_at
            if self.batch_end > self.checkpoint or is_due:
                self.trial_at = None
                self.live = Attempt(self, self.checkpoint, self.batch_end)
        elif self.live.failed:
            self.live = Attempt(self, self.checkpoint, self.batch_end)
        elif self.live.finished:
            self.checkpoint, self.live = self.batch_end, None
        else:
            self.live.step(rng)
