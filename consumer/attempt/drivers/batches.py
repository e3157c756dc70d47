"""The driver of attempts on whole-batch targets (consumer.targets.batches). The attempt's code is the
same as with sessions, but there are no threads.

Each transaction of the attempt is one commit here. Duplicates, gaps, definitions, barriers, quarantine
and fencing work as with sessions. There is one lane. It runs only if one commit for all changes was
refused: it halves them until the refused event is alone. The caller determines how often there is a
commit: one for the slices that it passes, within the lane's limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, assert_never

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.attempt import Attempt
from consumer.attempt.drivers.driver import AttemptDriver, AttemptInputs, Connections
from consumer.attempt.effects import HandlerTable, Machine, T
from consumer.attempt.evolution.in_target import build_unaltered_state
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.spec import DefinitionCache, UnitSpec
from consumer.errors import FencedError, TargetConfigError
from consumer.ordering.model import QuarantineEntry
from consumer.targets.batches import (
    BatchFenced,
    BatchTarget,
    ProgressChange,
    RowsChange,
    TableCleared,
    TableDefined,
)
from consumer.targets.shared.keyed_reads import find_under_keys
from schemas.table.model import Key

REPLACED_BY_LATER = "a later change of the key replaced this entry"
"""Why an entry is in the history that `DropQuarantined` removed."""


class SingleThreadSignals:
    """Signals of a driver that advances one generator at a time, so nothing waits and nothing runs
    concurrently.
    """

    mutex: AbstractContextManager[object] = nullcontext()

    def wake_lane(self, lane: int | None) -> None:
        """Do nothing, because nothing waits."""


def make_single_thread_signals(_lanes: int) -> SingleThreadSignals:
    return SingleThreadSignals()


class BatchDriver(AttemptDriver[BatchTarget]):
    """Carries out the effects of one attempt.

    It advances the lane, if there is one, whenever the attempt waits for it.
    """

    def __init__(
        self,
        spec: UnitSpec,
        connections: Connections[BatchTarget],
        inputs: AttemptInputs,
        tables: DefinitionCache,
    ) -> None:
        if spec.lanes != 1:
            raise ValueError(f"a target of whole batches has one lane, not {spec.lanes}")
        super().__init__(spec, connections, inputs, tables)
        self._lane: Iterator[None] = iter(())
        self._listed: Iterator[Sequence[Key]] | None = None

    def make_attempt(self) -> Attempt:
        """Return the attempt, for `run_machine`."""
        return Attempt(self._spec, make_single_thread_signals)

    def run_machine(self, machine: Machine[T]) -> T:
        """Drive `machine` to its end, and return its result."""
        return self._drive_machine(machine)

    # --- the target

    def _commit_transaction(self, effect: fx.Transact) -> None:
        plain = replace(effect, operations=[self._simplify_operation(each) for each in effect.operations])
        outcome = self._connections.get_connection(0).apply_changes(self._spec.unit, *build_commit(plain))
        if isinstance(outcome, BatchFenced):
            raise FencedError(
                f"another worker now owns {self._spec.unit.topic} of pipeline {self._spec.unit.pipeline}: "
                f"expected {list(effect.guards)}, the target has {outcome.seen}"
            )

    def _simplify_operation(self, operation: ops.Operation) -> ops.Operation:
        """Return an operation as a commit can express it.

        Raises TargetConfigError if the table would have to be altered.
        """
        if isinstance(operation, ops.FollowDefinition):
            return ops.WriteUnit(
                build_unaltered_state(self._spec, self._connections.get_connection(0), operation)
            )
        return operation

    def _list_keys(self, effect: fx.ListKeys) -> Sequence[Key]:
        """Return the next page of the target's keys, in any order."""
        self._require_assignment()
        if effect.after is None or self._listed is None:
            self._listed = iter(
                self._connections.get_connection(0).yield_keys(self._spec.unit, effect.table, effect.where)
            )
        return next(self._listed, ())

    def _look_up_keys(self, effect: fx.LookUpKeys) -> Sequence[Key]:
        target = self._connections.get_connection(0)
        return find_under_keys(lambda some: target.look_up(effect.table, some), effect.keys)

    def _read_sharers(self, _effect: fx.ReadSharers) -> Sequence[str]:
        return []

    def _own_connection(self, _effect: fx.OwnConnection) -> None:
        return None

    # --- the lane

    def _start_lanes(self, effect: fx.StartLanes) -> None:
        self._lane = self._drive_lane(effect.lanes)

    def _await(self, effect: fx.Await) -> None:
        self._advance_lane(effect)

    def _join_lanes(self, _effect: fx.JoinLanes) -> None:
        self._advance_lane(None)

    def _sleep(self, effect: fx.Sleep) -> None:
        time.sleep(effect.seconds)

    def _drive_lane(self, group: LaneGroup) -> Iterator[None]:
        """Drive the lane. It stops at each `yield`, where it waits for the attempt."""
        machine = group.run_lane(0)
        try:
            effect = next(machine)
            while True:
                while isinstance(effect, fx.Await) and not effect.ready():
                    yield
                try:
                    result = None if isinstance(effect, fx.Await) else self.handlers.carry_out(self, effect)
                except Exception as error:  # noqa: BLE001  # the lane handles it
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001  # raised in the attempt
            group.record_lane_error(error)

    def _advance_lane(self, awaited: fx.Await | None) -> None:
        """Run the lane until it waits for the attempt or has ended.

        Raises RuntimeError if the attempt cannot continue then.
        """
        if awaited is not None and awaited.ready():
            return
        waits = next(self._lane, self._lane) is not self._lane
        if waits if awaited is None else not awaited.ready():
            raise RuntimeError("the attempt and its lane wait for each other")

    handlers: ClassVar[HandlerTable[BatchDriver]] = HandlerTable(
        *AttemptDriver.shared_handlers,
        fx.Transact.bind_handler(_commit_transaction),
        fx.ListKeys.bind_handler(_list_keys),
        fx.LookUpKeys.bind_handler(_look_up_keys),
        fx.FindKeptKeys.refuse("a target of whole batches keeps no rows that the source removed"),
        fx.FindKeptRows.refuse("a target of whole batches keeps no rows that the source removed"),
        fx.ReadSharers.bind_handler(_read_sharers),
        fx.OwnConnection.bind_handler(_own_connection),
        fx.AlterTarget.refuse("a target of whole batches is not altered"),
        fx.EndConnection.refuse("a target of whole batches is not altered"),
        fx.StartLanes.bind_handler(_start_lanes),
        fx.JoinLanes.bind_handler(_join_lanes),
        fx.Await.bind_handler(_await),
        fx.Sleep.bind_handler(_sleep),
    )


def build_commit(effect: fx.Transact) -> tuple[list[RowsChange], ProgressChange]:
    """Return the operations of a transaction as one commit. Without I/O.

    Rows are written and tables emptied in the order of the operations. Raises ValueError if a commit
    cannot express the order.
    """
    changes: list[RowsChange] = []
    held: list[QuarantineEntry] = []
    whys: dict[str, tuple[()]] = {}
    made: dict[str, Any] = {"guards": effect.guards, "rows": effect.guards}
    for operation in effect.operations:
        match operation:
            case ops.WriteChanges():
                if operation.displacing is not None:
                    raise NotImplementedError("a target of whole batches has no unique indexes")
                changes.append(operation.net)
            case ops.TruncateTarget():
                changes.append(TableCleared(operation.table, operation.where))
            case ops.PublishDefinition():
                changes.append(TableDefined(operation.table, operation.source, operation.anew))
            case ops.QuarantineEvents():
                held += operation.entries
            case ops.CloseQuarantine() | ops.DropQuarantined():
                ids = set(operation.ids)
                held = [entry for entry in held if (entry.offset, entry.part) not in ids]
                whys[operation.why if isinstance(operation, ops.CloseQuarantine) else REPLACED_BY_LATER] = ()
                made |= {"closed": [*made.get("closed", ()), *operation.ids], "why": "; ".join(whys)}
            case ops.CloseQuarantineBefore():
                if held or "closed_before" in made:
                    raise ValueError("one commit closes entries of the quarantine once, before it adds some")
                made |= {"closed_before": operation.offset, "why": operation.why}
            case ops.SupersedeDisplaced():
                made["copied"] = operation.before  # no row was ever displaced: only keys are unique there
            case ops.WriteUnit():
                made["state"] = operation.state
            case ops.WriteProgress() | ops.ReplaceLaneRows():
                made["rows"] = operation.rows
            case (
                ops.FollowDefinition()
                | ops.DropTarget()
                | ops.MarkSharersIncomplete()
                | ops.RequireRowsPresent()
                | ops.RequireTableUnchanged()
                | ops.RecordKeptRows()
                | ops.ForgetKeptRows()
            ):
                raise _build_refusal(operation)
            case _:
                assert_never(operation)
    return changes, ProgressChange(held=held, **made)


def _build_refusal(operation: ops.Operation) -> Exception:
    """Return the error of an operation that a target of whole batches does not have."""
    if isinstance(operation, ops.RecordKeptRows | ops.ForgetKeptRows):
        return NotImplementedError("a target of whole batches keeps no rows that the source removed")
    return TargetConfigError(
        "this version of rowlock cannot alter tables of this type of target",
        "alter the table by hand as the source's was altered",
    )
