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
from contextlib import AbstractContextManager
from typing import ClassVar, assert_never

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.attempt import Attempt
from consumer.attempt.drivers.driver import AttemptDriver, AttemptInputs, Connections
from consumer.attempt.effects import HandlerTable, Machine, T
from consumer.attempt.evolution.in_target import (
    drop_target,
    follow_definition,
    list_sharing_topics,
    lose_others,
    require_rows_present,
    require_table_unchanged,
)
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.operations import PlainOperation
from consumer.attempt.spec import DefinitionCache, UnitSpec
from consumer.ordering.model import EveryChange
from consumer.targets.session import SqlSession, SqlTransaction
from consumer.targets.shared.keyed_reads import find_under_keys
from schemas.table.model import Key

KEYS_PER_FETCH = 10_000
"""Number of the target's keys that are fetched at a time."""


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


class _DrivenLane(threading.local):
    """The lane of which the present thread drives the machine; None in the thread of the attempt itself."""

    number: int | None = None

    def begin_lane(self, number: int) -> None:
        self.number = number


class ThreadDriver(AttemptDriver[SqlSession]):
    """Carries out the effects of one attempt, with a thread for each lane."""

    def __init__(
        self,
        spec: UnitSpec,
        connections: Connections[SqlSession],
        inputs: AttemptInputs,
        tables: DefinitionCache,
    ) -> None:
        super().__init__(spec, connections, inputs, tables)
        self._signals = ThreadSignals(0)
        self._lane = _DrivenLane()
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
            return self._drive_machine(machine)
        finally:
            if self._group is not None:
                self._group.stop()
                self._join_threads()

    # --- the target

    def _run_transaction(self, effect: fx.Transact) -> None:
        session = self._connections.get_connection(effect.number)
        with (
            self._watch_transaction(effect.number, session),
            session.begin_transaction(self._spec.unit, effect.guards, effect.lock_wait_s) as transaction,
        ):
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
                        raise NotImplementedError(
                            "definitions are published only to topics: in a database the table shows its own"
                        )
                    case _:
                        carry_out_operation(transaction, operation, effect.displaced)

    def _watch_transaction(self, number: int, connection: SqlSession) -> AbstractContextManager[None]:
        return self._inputs.watch_transaction(self._spec, number, connection)

    def _list_keys(self, effect: fx.ListKeys) -> Sequence[Key]:
        self._require_assignment()
        return self._connections.get_connection(0).fetch_rows(
            effect.table, effect.after, KEYS_PER_FETCH, effect.where, upto=effect.upto
        )

    def _look_up_keys(self, effect: fx.LookUpKeys) -> Sequence[Key]:
        self._require_assignment()
        session = self._connections.get_connection(0)
        return find_under_keys(lambda some: session.fetch_keys(effect.table, some), effect.keys)

    def _find_kept_keys(self, effect: fx.FindKeptKeys) -> Sequence[str]:
        session = self._connections.get_connection(0)
        return session.find_kept_keys(self._spec.unit, effect.table, effect.keys)

    def _find_kept_rows(self, _effect: fx.FindKeptRows) -> bool:
        return self._connections.get_connection(0).has_kept_rows(self._spec.unit)

    def _read_sharers(self, effect: fx.ReadSharers) -> Sequence[str]:
        session = self._connections.get_connection(0)
        states = session.read_unit_states(self._spec.unit.pipeline)
        return list_sharing_topics(self._spec, states, effect.source, session.table_names)

    def _own_connection(self, _effect: fx.OwnConnection) -> int | None:
        session = self._connections.get_connection(0)
        return None if session.transactional_ddl else session.get_connection_id()

    def _alter_target(self, effect: fx.AlterTarget) -> None:
        self._connections.get_connection(0).alter_table(effect.change, connection=effect.connection)

    def _end_connection(self, effect: fx.EndConnection) -> None:
        self._connections.get_connection(0).end_connection(effect.connection)

    # --- lanes

    def _start_lanes(self, effect: fx.StartLanes) -> None:
        group = self._group = effect.lanes
        self._threads = [
            threading.Thread(target=self._run_lane, args=(group, number), name=f"lane-{number}", daemon=True)
            for number in range(group.count)
        ]
        for thread in self._threads:
            thread.start()

    def _run_lane(self, group: LaneGroup, number: int) -> None:
        self._lane.begin_lane(number)
        try:
            self._drive_machine(group.run_lane(number))
        except BaseException as error:  # noqa: BLE001  # passed to the attempt's thread, whatever it is
            group.record_lane_error(error)

    def _join_lanes(self, _effect: fx.JoinLanes) -> None:
        self._join_threads()

    def _join_threads(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._group, self._threads = None, []

    def _await(self, effect: fx.Await) -> None:
        self._signals.wait_until(self._lane.number, effect.ready)

    def _sleep(self, effect: fx.Sleep) -> None:
        lane, group = self._lane.number, self._group
        if lane is None or group is None:
            time.sleep(effect.seconds)
        else:
            self._signals.wait_until(lane, lambda: group.stopping, effect.seconds)

    handlers: ClassVar[HandlerTable[ThreadDriver]] = HandlerTable(
        *AttemptDriver.shared_handlers,
        fx.Transact.bind_handler(_run_transaction),
        fx.ListKeys.bind_handler(_list_keys),
        fx.LookUpKeys.bind_handler(_look_up_keys),
        fx.FindKeptKeys.bind_handler(_find_kept_keys),
        fx.FindKeptRows.bind_handler(_find_kept_rows),
        fx.ReadSharers.bind_handler(_read_sharers),
        fx.OwnConnection.bind_handler(_own_connection),
        fx.AlterTarget.bind_handler(_alter_target),
        fx.EndConnection.bind_handler(_end_connection),
        fx.StartLanes.bind_handler(_start_lanes),
        fx.JoinLanes.bind_handler(_join_lanes),
        fx.Await.bind_handler(_await),
        fx.Sleep.bind_handler(_sleep),
    )


def carry_out_operation(transaction: SqlTransaction, operation: PlainOperation, displaced: list[int]) -> None:
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
        case ops.DropQuarantined():
            transaction.drop_held(operation.ids)
        case ops.SupersedeDisplaced():
            transaction.supersede_displaced(operation.table, operation.before, operation.why)
        case ops.RecordKeptRows():
            transaction.record_kept_rows(operation.kept)
        case ops.ForgetKeptRows():
            transaction.forget_kept_rows()
        case ops.WriteProgress():
            transaction.write_progress(operation.rows)
        case ops.WriteUnit():
            transaction.write_unit(operation.state)
        case ops.ReplaceLaneRows():
            transaction.replace_lanes(operation.rows)
        case _:
            assert_never(operation)
