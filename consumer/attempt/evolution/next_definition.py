"""An event that says something of the table itself: what follows from it, and how a definition comes into force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer.attempt.attempt_state import AttemptState, wanted_layout
from consumer.attempt.effects import Machine, Prepare, ReadTable, ask
from consumer.attempt.evolution.in_target import routed_table
from consumer.attempt.evolution.machine import stop_of
from consumer.attempt.operations import Define, LoseOthers, NotLost, Operation, StillAsRead, WriteUnit
from consumer.attempt.transactions import retried
from consumer.errors import (
    CopyNeededError,
    MissingGrantError,
    RefusedError,
    TargetConfigError,
    UnitStoppedError,
)
from consumer.ordering.model import LaneProgress, UnitState
from consumer.ordering.progress import Mark, advanced, relaid
from consumer.tables.definition import InForce
from consumer.tables.evolution.decisions import Adopt, Gone, Pass
from consumer.tables.stored import Stored, since_behind
from schemas.table.model import Table
from schemas.wire.event import Event


class NextDefinition:
    """The definition that follows the one in force, for the unit of an attempt."""

    def __init__(self, attempt: AttemptState) -> None:
        self._attempt = attempt

    def define(self, event: Event, mark: Mark) -> Machine[None]:
        """Do what follows from an event that says something of the table itself."""
        attempt = self._attempt
        in_force, table = attempt.in_force, event.definition
        verdict = yield from attempt.changes.judge(event)
        if isinstance(verdict, Pass) and verdict.learnt is None:
            return
        yield from attempt.drain()
        if isinstance(verdict, Gone) and in_force is not None:
            yield from attempt.changes.gone(in_force, mark)
        if table is None or not isinstance(verdict, Pass | Adopt):
            raise stop_of(verdict, event, f"{attempt.spec.unit.topic} offset {mark[0]}")
        yield from attempt.close()
        try:
            yield from self.adopt(table, verdict, mark)
        except (MissingGrantError, CopyNeededError):
            raise
        except (UnitStoppedError, TargetConfigError, RefusedError) as error:
            why = str(error)  # a copy that begins behind it helps, for what was altered back since
            raise CopyNeededError(why, cause="definition", after=mark[0], instead=error) from error

    def adopt(self, table: Table, verdict: Pass | Adopt, mark: Mark) -> Machine[None]:
        """Put a definition in force; no lane is busy."""
        attempt = self._attempt
        before = attempt.changes.before
        lanes = [advanced(row, mark) for row in attempt.progress.rows]
        if before is None or isinstance(verdict, Pass):
            stored = Stored(table, since=mark[0]) if before is None else replace(before, table=table)
            yield from self.put_in_force(stored, lanes, first=before is None)
        elif routed_table(attempt.spec, table).topic is not None:  # nothing is altered: its readers are told
            since = since_behind(before, verdict.columns, mark[0], rewrite=verdict.rewrite)
            stored = replace(before.followed_by(table), since=since)
            yield from self.put_in_force(stored, lanes, first=verdict.rewrite)
        elif verdict.rewrite and (yield from retried(lambda: ask(ReadTable(table)))) is None:
            stored = replace(before.followed_by(table), since=mark[0])
            yield from self.put_in_force(stored, lanes, first=True)
        else:
            yield from attempt.changes.adopt(before, table, verdict, mark)
            yield from attempt.begin()

    def put_in_force(self, stored: Stored, lanes: Sequence[LaneProgress], *, first: bool) -> Machine[None]:
        """Store the definition with the layout that follows from it, all lanes standing as `lanes`; and begin anew.

        `first`: every row comes behind it, and the target table may have to be made.
        """
        attempt = self._attempt
        shared = not attempt.spec.batches and bool(routed_table(attempt.spec, stored.table).added)
        yield from attempt.close()
        yield from retried(lambda: self._write(stored, lanes, first=first, shared=shared))
        yield from attempt.begin()

    def _write(
        self, stored: Stored, lanes: Sequence[LaneProgress], *, first: bool, shared: bool
    ) -> Machine[None]:
        """Write the definition that the target table as it is now leads to. Raises TransientError, also where another unit has changed that table
        since it was read: nothing is in force then."""
        attempt = self._attempt
        if first and shared:  # before the table is there again: a crash in between leaves nothing unsaid
            yield from attempt.progress.tried([LoseOthers(stored.table)])
        in_force: InForce = yield from ask(Prepare(stored, first))
        rows = relaid(lanes, wanted_layout(attempt.spec, in_force))
        operations: list[Operation] = []
        if shared:
            operations.append(StillAsRead(stored.table, in_force.real) if first else NotLost())
        operations.append(WriteUnit(UnitState(definition=in_force.text, ddl=None, stopped=None)))
        if in_force.target.topic is not None:
            operations.append(Define(in_force.target, in_force.source, anew=first))
        yield from attempt.progress.relayout(rows, operations)
