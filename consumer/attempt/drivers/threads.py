"""The driver of attempts in the product: connections to the target, Kafka's records, one thread a lane.

A lane's thread is a daemon and is joined before the attempt ends, also when the attempt is thrown an error that no machine
handles. One mutex guards what the lanes share, and a condition each, on that mutex, is what they sleep on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.attempt import Attempt
from consumer.attempt.drivers.records import AttemptRecords, open_keys
from consumer.attempt.effects import Effect, Machine, T
from consumer.attempt.evolution.in_target import (
    drop_target,
    follow,
    lose_others,
    not_lost,
    routed_place,
    sharing,
    still_as_read,
)
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.operations import PlainOperation
from consumer.attempt.spec import Tables, UnitSpec, definition_in_force, prepared
from consumer.ordering.model import EveryChange
from consumer.tables.fitness import explained
from consumer.targets.base import Session, TargetTransaction
from consumer.targets.shared.lookups import found_under
from schemas.table.model import Key

KEYS = 5000
"""Keys of the target that are listed at a time."""


class Sessions(Protocol):
    """The connections of a worker process to one target; number = lane."""

    def get(self, number: int) -> Session:
        """Return the session of a lane, connecting where needed. Raises TransientError."""

    def check(self, number: int) -> None:
        """After an error: drop the session if its connection is broken."""

    def drop(self, number: int) -> None:
        """Close the session, so that `get` makes a new one."""


class ThreadSignals:
    """The mutex and the conditions by which an attempt and its lanes, each in a thread of its own, share state."""

    def __init__(self, lanes: int) -> None:
        self.mutex = mutex = threading.Lock()
        self._lanes = [threading.Condition(mutex) for _ in range(lanes)]
        self._attempt = threading.Condition(mutex)

    def wake(self, lane: int | None) -> None:
        self._condition(lane).notify()

    def wait(self, lane: int | None, ready: Callable[[], bool], timeout: float | None = None) -> None:
        """Sleep until `ready()`, which is asked with the mutex held, or until `timeout` seconds have gone by."""
        with self.mutex:
            self._condition(lane).wait_for(ready, timeout)

    def _condition(self, lane: int | None) -> threading.Condition:
        return self._attempt if lane is None else self._lanes[lane]


class ThreadDriver:
    """Carries out the effects of one attempt."""

    def __init__(self, spec: UnitSpec, sessions: Sessions, records: AttemptRecords, tables: Tables) -> None:
        self._spec, self._sessions, self._records, self._tables = spec, sessions, records, tables
        self._signals = ThreadSignals(0)
        self._group: LaneGroup | None = None
        self._threads: list[threading.Thread] = []

    def attempt(self) -> Attempt:
        """Return the machine to `run`."""
        return Attempt(self._spec, self.signals)

    def signals(self, lanes: int) -> ThreadSignals:
        """Return how the next lanes share state: one group of lanes ends before another one starts."""
        self._signals = ThreadSignals(lanes)
        return self._signals

    def run(self, machine: Machine[T]) -> T:
        """Drive `machine` to its end; the lanes that it started have ended then, too."""
        try:
            return self._drive(machine, None)
        finally:
            if self._group is not None:
                self._group.stop()
                self._join()

    def _drive(self, machine: Machine[T], lane: int | None) -> T:
        try:
            effect = next(machine)
            while True:
                try:
                    result = self._carry_out(effect, lane)
                except Exception as error:  # noqa: BLE001  # the machine decides what it means
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _carry_out(self, effect: Effect, lane: int | None) -> Any:
        if isinstance(effect, fx.OfRecords):
            return self._records.answer(effect)
        match effect:
            case fx.Transact():
                return self._transact(effect)
            case fx.Await() | fx.Sleep():
                return self._wait(effect, lane)
            case fx.OpenKeys():
                return open_keys(self._spec.scratch)
            case fx.ListKeys() | fx.LookUp():
                return self._keys(effect)
            case fx.StartLanes():
                return self._start(effect.lanes)
            case fx.JoinLanes():
                return self._join()
            case _:
                return self._ask(effect)

    # --- the target

    def _ask(self, effect: Effect) -> Any:
        spec = self._spec
        match effect:
            case fx.Begin():
                return self._sessions.get(0).begin(spec.unit, spec.epoch)
            case fx.ReadProgress():
                return self._sessions.get(effect.number).read(spec.unit)[0]
            case fx.ReadHeld():
                return self._sessions.get(0).held(spec.unit)
            case fx.CheckSession():
                self._sessions.check(effect.number)
            case fx.DropSession():
                self._sessions.drop(effect.number)
            case fx.StopUnit():
                self._tables.pop(spec.place, None)  # the target table may be another one when it goes on
                self._sessions.get(0).stop_unit(spec.unit, spec.epoch, effect.why, was=spec.was)
            case fx.Restore():
                return definition_in_force(spec, self._sessions.get(0), effect.text, self._tables)
            case fx.Prepare():
                return prepared(spec, self._sessions.get(0), effect.stored, first=effect.first)
            case fx.Explain():
                stored = effect.stored
                return explained(
                    self._sessions.get(0),
                    stored.table,
                    spec.source,
                    spec.routes,
                    stored.names,
                    debezium=spec.debezium is not None,
                )
            case _:
                return self._table(effect, self._sessions.get(0))
        return None

    def _table(self, effect: Effect, session: Session) -> Any:
        """Carry out what changes of the target table ask."""
        spec = self._spec
        match effect:
            case fx.OwnConnection():
                return None if session.transactional_ddl else session.connection()
            case fx.Alter():
                session.alter(effect.change, connection=effect.connection)
            case fx.EndConnection():
                session.end_connection(effect.connection)
            case fx.ReadTable():
                return session.read_table(*routed_place(spec, effect.source))
            case fx.ReadSharers():
                return sharing(spec, session.units(spec.unit.pipeline), effect.source)
            case _:
                raise NotImplementedError(f"no driver carries out {effect}")
        return None

    def _transact(self, effect: fx.Transact) -> None:
        session = self._sessions.get(effect.number)
        with session.transaction(self._spec.unit, effect.guards) as transaction:
            for operation in effect.operations:
                match operation:
                    case ops.FollowDefinition():
                        follow(self._spec, session, transaction, operation)
                    case ops.DropTarget():
                        drop_target(self._spec, session, transaction, operation)
                    case ops.LoseOthers():
                        lose_others(self._spec, session, transaction, operation)
                    case ops.NotLost():
                        not_lost(self._spec, transaction)
                    case ops.StillAsRead():
                        still_as_read(self._spec, session, transaction, operation)
                    case ops.Define():
                        raise NotImplementedError("a database is told of definitions by its tables")
                    case _:
                        carry_out(transaction, operation, effect.displaced)

    def _keys(self, effect: fx.ListKeys | fx.LookUp) -> Sequence[Key]:
        self._records.go_on()
        session = self._sessions.get(0)
        if isinstance(effect, fx.LookUp):
            return found_under(lambda some: session.fetch_keys(effect.table, some), effect.keys)
        return session.fetch_rows(effect.table, effect.after, KEYS, effect.where, upto=effect.upto)

    # --- lanes

    def _start(self, group: LaneGroup) -> None:
        self._group = group
        self._threads = [
            threading.Thread(target=self._lane, args=(group, number), name=f"lane-{number}", daemon=True)
            for number in range(group.count)
        ]
        for thread in self._threads:
            thread.start()

    def _lane(self, group: LaneGroup, number: int) -> None:
        try:
            self._drive(group.lane(number), number)
        except BaseException as error:  # noqa: BLE001  # handed to the attempt's thread, whatever it is
            group.failed(error)

    def _join(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._group, self._threads = None, []

    def _wait(self, effect: fx.Await | fx.Sleep, lane: int | None) -> None:
        group = self._group
        if isinstance(effect, fx.Await):
            self._signals.wait(lane, effect.ready)
        elif lane is None or group is None:
            time.sleep(effect.seconds)
        else:
            self._signals.wait(lane, lambda: group.stopping, effect.seconds)


def carry_out(transaction: TargetTransaction, operation: PlainOperation, displaced: list[int]) -> None:
    """Carry out one operation of a transaction; the number of rows that a `Write` displaced is added to `displaced`."""
    match operation:
        case ops.Write():
            if isinstance(operation.net, EveryChange):
                raise NotImplementedError("a database is given net changes")
            displaced.append(transaction.apply(operation.net, displacing=operation.displacing))
        case ops.Hold():
            transaction.hold(operation.entries)
        case ops.Truncate():
            transaction.truncate(operation.table, operation.where)
        case ops.CloseHeldBefore():
            transaction.close_held_before(operation.offset, operation.why)
        case ops.CloseHeld():
            transaction.close_held(operation.ids, operation.why)
        case ops.SupersedeDisplaced():
            transaction.supersede_displaced(operation.table, operation.before, operation.why)
        case ops.WriteProgress():
            transaction.write_progress(operation.rows)
        case ops.WriteUnit():
            transaction.write_unit(operation.state)
        case ops.Relayout():
            transaction.relayout(operation.rows)
        case _:
            assert_never(operation)
