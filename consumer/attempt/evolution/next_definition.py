"""Handles events about the table itself, and activates definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer.attempt.attempt_state import AttemptState, choose_layout
from consumer.attempt.copies.removal import keeps_any_row
from consumer.attempt.effects import Machine, PrepareDefinition, ReadTable, ask_driver
from consumer.attempt.evolution.in_target import resolve_target
from consumer.attempt.evolution.machine import build_copy_stop
from consumer.attempt.operations import (
    MarkSharersIncomplete,
    Operation,
    PublishDefinition,
    RequireRowsPresent,
    RequireTableUnchanged,
    WriteUnit,
)
from consumer.attempt.transactions import retry_transient
from consumer.errors import (
    CopyNeededError,
    MissingGrantError,
    RefusedError,
    TargetConfigError,
    UnitStoppedError,
)
from consumer.ordering.model import LaneProgress, UnitState
from consumer.ordering.progress import LaneMark, advance_row, relay_rows
from consumer.tables.evolution.decisions import AdoptDefinition, KeepDefinition, SourceTableDropped
from consumer.tables.stored import StoredDefinition, compute_stable_since
from consumer.tables.target_checks import is_target_changed
from schemas.table.model import Table
from schemas.wire.event import EventEnvelope


class DefinitionSwitch:
    """The change from the active definition to the next one, for the unit of an attempt."""

    def __init__(self, attempt: AttemptState) -> None:
        self._attempt = attempt

    def apply_table_event(self, event: EventEnvelope, mark: LaneMark) -> Machine[None]:
        """Handle an event about the table itself (a definition, a stop, a dropped table)."""
        attempt = self._attempt
        active, table = attempt.active_definition, event.definition
        verdict = yield from attempt.changes.judge_event(event)
        if isinstance(verdict, KeepDefinition) and verdict.completed_table is None:
            return
        yield from attempt.drain()
        if isinstance(verdict, SourceTableDropped) and active is not None:
            yield from attempt.changes.handle_dropped_table(active, mark)
        if table is None or not isinstance(verdict, KeepDefinition | AdoptDefinition):
            raise build_copy_stop(verdict, event, f"{attempt.spec.unit.topic} offset {mark[0]}")
        yield from attempt.close()
        try:
            yield from self.adopt_definition(table, verdict, mark)
        except (MissingGrantError, CopyNeededError):
            raise
        except (UnitStoppedError, TargetConfigError, RefusedError) as error:
            why = str(error)  # a copy that begins after it helps if the change was undone since
            raise CopyNeededError(why, cause="definition", after=mark[0], instead=error) from error

    def adopt_definition(
        self, table: Table, verdict: KeepDefinition | AdoptDefinition, mark: LaneMark
    ) -> Machine[None]:
        """Activate a definition. No lane is busy."""
        attempt = self._attempt
        before = attempt.changes.before
        lanes = [advance_row(row, mark) for row in attempt.progress.rows]
        if before is None or isinstance(verdict, KeepDefinition):
            if before is not None:
                stored = replace(before, table=table)
            else:  # rows that an earlier unit of the topic has kept
                kept = yield from keeps_any_row(resolve_target(attempt.spec, table), None)
                stored = StoredDefinition(table, columns_stable_since=mark[0], has_kept_rows=kept)
            yield from self.activate_definition(stored, lanes, first=before is None)
        elif (
            resolve_target(attempt.spec, table).topic is not None
        ):  # nothing is altered: a record informs the topic's readers
            since = compute_stable_since(before, verdict.columns, mark[0], rewrite=verdict.rewrite)
            stored = replace(before.build_successor(table), columns_stable_since=since)
            yield from self.activate_definition(stored, lanes, first=verdict.rewrite)
        elif verdict.rewrite and (
            is_target_changed(before, resolve_target(attempt.spec, table))  # a new table to this unit
            or (yield from retry_transient(lambda: ask_driver(ReadTable(table)))) is None
        ):
            stored = replace(before.build_successor(table), columns_stable_since=mark[0])
            yield from self.activate_definition(stored, lanes, first=True)
        else:
            yield from attempt.changes.adopt_definition(before, table, verdict, mark)
            yield from attempt.begin_attempt()

    def activate_definition(
        self, stored: StoredDefinition, lanes: Sequence[LaneProgress], *, first: bool
    ) -> Machine[None]:
        """Store the definition with its layout, with all lanes at `lanes`, and begin the attempt again.

        `first`: every row follows it, and the target table may have to be created.
        """
        attempt = self._attempt
        shared = not attempt.spec.batches and bool(resolve_target(attempt.spec, stored.table).added)
        yield from attempt.close()
        yield from retry_transient(lambda: self._write_definition(stored, lanes, first=first, shared=shared))
        yield from attempt.begin_attempt()

    def _write_definition(
        self, stored: StoredDefinition, lanes: Sequence[LaneProgress], *, first: bool, shared: bool
    ) -> Machine[None]:
        """Write the definition that fits the present target table.

        Raises TransientError, also if another unit has altered the table since it was read: nothing is
        activated then.
        """
        attempt = self._attempt
        if first and shared:  # before the table exists again: a crash must not lose this mark
            yield from attempt.progress.try_guarded([MarkSharersIncomplete(stored.table)])
        active = yield from ask_driver(PrepareDefinition(stored, first))
        rows = relay_rows(lanes, choose_layout(attempt.spec, active))
        operations: list[Operation] = []
        if shared:
            operations.append(
                RequireTableUnchanged(stored.table, active.real) if first else RequireRowsPresent()
            )
        operations.append(WriteUnit(UnitState(definition=active.text, ddl=None, stopped=None)))
        if active.target.topic is not None:
            operations.append(PublishDefinition(active.target, active.source, anew=first))
        yield from attempt.progress.replace_lanes(rows, operations)
