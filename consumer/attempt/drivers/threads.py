"""The driver of attempts with sessions: it provides connections to the target, Kafka's records, and one
thread for each lane.

A lane's thread is a daemon and is joined before the attempt ends, also when the attempt ends with an
error that nothing handles. One mutex guards the state that lanes share; each lane sleeps on a condition
of that mutex.
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
from consumer.attempt.effects import AttemptEffect, Machine, T
from consumer.attempt.evolution.in_target import (
    drop_target,
    follow_definition,
    list_sharing_topics,
    lose_others,
    require_rows_present,
    require_table_unchanged,
    resolve_target_place,
)
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.operations import PlainOperation
from consumer.attempt.spec import DefinitionCache, UnitSpec, load_active_definition, resolve_definition
from consumer.ordering.model import EveryChange
from consumer.tables.target_checks import explain_changed_table
from consumer.targets.base import Session, TargetTransaction
from consumer.targets.shared.keyed_reads import find_under_keys
from schemas.table.model import Key

KEYS_PER_FETCH = 5000
"""Number of the target's keys that are fetched at a time."""


class Sessions(Protocol):
    """The connections of a worker process to one target, numbered like the lanes that use them."""

    def get_connection(self, number: int) -> Session:
        """Return the session of a lane, connecting if needed. Raises TransientError."""

    def drop_if_broken(self, number: int) -> None:
        """Drop the session if its connection is broken. Called after an error."""

    def drop_connection(self, number: int) -> None:
        """Close the session, so that `get_connection` opens a new one."""


class ThreadSignals:
    """The mutex and the conditions by which an attempt and its lanes, each in its own thread, share state."""

    def __init__(self, lanes: int) -> None:
        self.mutex = mutex = threading.Lock()
        self._lanes = [threading.Condition(mutex) for _ in range(lanes)]
        self._attempt = threading.Condition(mutex)

    def wake_lane(self, lane: int | None) -> None:
        self._get_condition(lane).notify()

    def wait_until(self, lane: int | None, ready: Callable[[], bool], timeout: float | None = None) -> None:
        """Sleep until `ready()`, which is called with the mutex held, or until `timeout` seconds have
        passed.
        """
        with self.mutex:
            self._get_condition(lane).wait_for(ready, timeout)

    def _get_condition(self, lane: int | None) -> threading.Condition:
        return self._attempt if lane is None else self._lanes[lane]


class ThreadDriver:
    """Carries out the effects of one attempt, with a thread for each lane."""

    def __init__(
        self, spec: UnitSpec, sessions: Sessions, records: AttemptRecords, tables: DefinitionCache
    ) -> None:
        self._spec, self._sessions, self._records, self._tables = spec, sessions, records, tables
        self._signals = ThreadSignals(0)
        self._group: LaneGroup | None = None
        self._threads: list[threading.Thread] = []

    def make_attempt(self) -> Attempt:
        """Return the attempt, for `run_machine`."""
        return Attempt(self._spec, self.make_signals)

    def make_signals(self, lanes: int) -> ThreadSignals:
        """Return the signals of the next group of lanes. A group ends before another one starts."""
        self._signals = ThreadSignals(lanes)
        return self._signals

    def run_machine(self, machine: Machine[T]) -> T:
        """Drive `machine` to its end, and return its result. The lanes that it started have ended then."""
        try:
            return self._drive_machine(machine, None)
        finally:
            if self._group is not None:
                self._group.stop()
                self._join_lanes()

    def _drive_machine(self, machine: Machine[T], lane: int | None) -> T:
        try:
            effect = next(machine)
            while True:
                try:
                    result = self._carry_out(effect, lane)
                except Exception as error:  # noqa: BLE001  # the machine handles it
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _carry_out(self, effect: AttemptEffect, lane: int | None) -> Any:
        if isinstance(effect, fx.RecordEffect):
            return self._records.carry_out_effect(effect)
        match effect:
            case fx.Transact():
                return self._run_transaction(effect)
            case fx.Await() | fx.Sleep():
                return self._wait_for_lane(effect, lane)
            case fx.OpenKeys():
                return open_keys(self._spec.scratch)
            case fx.ListKeys() | fx.LookUpKeys():
                return self._list_keys(effect)
            case fx.StartLanes():
                return self._start_lanes(effect.lanes)
            case fx.JoinLanes():
                return self._join_lanes()
            case _:
                return self._ask_target(effect)

    # --- the target

    def _ask_target(self, effect: AttemptEffect) -> Any:
        spec = self._spec
        match effect:
            case fx.BeginAttempt():
                return self._sessions.get_connection(0).begin_attempt(spec.unit, spec.epoch)
            case fx.ReadProgress():
                return self._sessions.get_connection(effect.number).read_progress(spec.unit)[0]
            case fx.ReadQuarantine():
                return self._sessions.get_connection(0).read_quarantine(spec.unit)
            case fx.CheckSession():
                self._sessions.drop_if_broken(effect.number)
            case fx.DropSession():
                self._sessions.drop_connection(effect.number)
            case fx.StopUnit():
                self._tables.pop(spec.place, None)  # the target table may differ when it goes on
                self._sessions.get_connection(0).stop_unit(spec.unit, spec.epoch, effect.why, was=spec.was)
            case fx.RestoreDefinition():
                return load_active_definition(
                    spec, self._sessions.get_connection(0), effect.text, self._tables
                )
            case fx.PrepareDefinition():
                return resolve_definition(
                    spec, self._sessions.get_connection(0), effect.stored, first=effect.first
                )
            case fx.ExplainMisfit():
                return explain_changed_table(
                    self._sessions.get_connection(0),
                    effect.stored,
                    spec.source,
                    spec.routes,
                    debezium=spec.debezium is not None,
                )
            case _:
                return self._ask_table(effect, self._sessions.get_connection(0))
        return None

    def _ask_table(self, effect: AttemptEffect, session: Session) -> Any:
        """Carry out an effect of a schema change."""
        spec = self._spec
        match effect:
            case fx.OwnConnection():
                return None if session.transactional_ddl else session.get_connection_id()
            case fx.AlterTarget():
                session.alter_table(effect.change, connection=effect.connection)
            case fx.EndConnection():
                session.end_connection(effect.connection)
            case fx.ReadTable():
                return session.read_table(*resolve_target_place(spec, effect.source))
            case fx.ReadSharers():
                return list_sharing_topics(spec, session.read_unit_states(spec.unit.pipeline), effect.source)
            case _:
                raise NotImplementedError(f"no driver carries out {effect}")
        return None

    def _run_transaction(self, effect: fx.Transact) -> None:
        session = self._sessions.get_connection(effect.number)
        with session.begin_transaction(self._spec.unit, effect.guards) as transaction:
            for operation in effect.operations:
                match operation:
                    case ops.FollowDefinition():
                        follow_definition(self._spec, session, transaction, operation)
                    case ops.DropTarget():
                        drop_target(self._spec, session, transaction, operation)
                    case ops.MarkSharersIncomplete():
                        lose_others(self._spec, session, transaction, operation)
                    case ops.RequireRowsPresent():
                        require_rows_present(self._spec, transaction)
                    case ops.RequireTableUnchanged():
                        require_table_unchanged(self._spec, session, transaction, operation)
                    case ops.PublishDefinition():
                        raise NotImplementedError("a database takes definitions from its tables")
                    case _:
                        carry_out_operation(transaction, operation, effect.displaced)

    def _list_keys(self, effect: fx.ListKeys | fx.LookUpKeys) -> Sequence[Key]:
        self._records.go_on()
        session = self._sessions.get_connection(0)
        if isinstance(effect, fx.LookUpKeys):
            return find_under_keys(lambda some: session.fetch_keys(effect.table, some), effect.keys)
        return session.fetch_rows(effect.table, effect.after, KEYS_PER_FETCH, effect.where, upto=effect.upto)

    # --- lanes

    def _start_lanes(self, group: LaneGroup) -> None:
        self._group = group
        self._threads = [
            threading.Thread(target=self._run_lane, args=(group, number), name=f"lane-{number}", daemon=True)
            for number in range(group.count)
        ]
        for thread in self._threads:
            thread.start()

    def _run_lane(self, group: LaneGroup, number: int) -> None:
        try:
            self._drive_machine(group.run_lane(number), number)
        except BaseException as error:  # noqa: BLE001  # passed to the attempt's thread, whatever it is
            group.record_lane_error(error)

    def _join_lanes(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._group, self._threads = None, []

    def _wait_for_lane(self, effect: fx.Await | fx.Sleep, lane: int | None) -> None:
        group = self._group
        if isinstance(effect, fx.Await):
            self._signals.wait_until(lane, effect.ready)
        elif lane is None or group is None:
            time.sleep(effect.seconds)
        else:
            self._signals.wait_until(lane, lambda: group.stopping, effect.seconds)


def carry_out_operation(
    transaction: TargetTransaction, operation: PlainOperation, displaced: list[int]
) -> None:
    """Carry out one operation of a transaction.

    The number of rows that a WriteChanges displaced is added to `displaced`.
    """
    match operation:
        case ops.WriteChanges():
            if isinstance(operation.net, EveryChange):
                raise NotImplementedError("a database is given net changes")
            displaced.append(transaction.apply_net_change(operation.net, displacing=operation.displacing))
        case ops.QuarantineEvents():
            transaction.write_quarantine(operation.entries)
        case ops.TruncateTarget():
            transaction.truncate_table(operation.table, operation.where)
        case ops.CloseQuarantineBefore():
            transaction.close_held_before(operation.offset, operation.why)
        case ops.CloseQuarantine():
            transaction.close_held(operation.ids, operation.why)
        case ops.SupersedeDisplaced():
            transaction.supersede_displaced(operation.table, operation.before, operation.why)
        case ops.WriteProgress():
            transaction.write_progress(operation.rows)
        case ops.WriteUnit():
            transaction.write_unit(operation.state)
        case ops.ReplaceLaneRows():
            transaction.replace_lanes(operation.rows)
        case _:
            assert_never(operation)
