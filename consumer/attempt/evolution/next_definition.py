"""An event that says something of the table itself: what follows from it, and how a definition comes into force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer.attempt.effects import (
    Define,
    LoseOthers,
    Machine,
    NotLost,
    Operation,
    Prepare,
    ReadTable,
    WriteUnit,
    ask,
)
from consumer.attempt.evolution.in_target import routed_table
from consumer.attempt.evolution.machine import stop_of
from consumer.attempt.standing import Standing, wanted_layout
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
    """The definition that follows the one in force, for the unit that `standing` is of."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def define(self, event: Event, mark: Mark) -> Machine[None]:
        """Do what follows from an event that says something of the table itself."""
        standing = self._standing
        in_force, table = standing.in_force, event.definition
        verdict = yield from standing.changes.judge(event)
        if isinstance(verdict, Pass) and verdict.learnt is None:
            return
        yield from standing.drain()
        if isinstance(verdict, Gone) and in_force is not None:
            yield from standing.changes.gone(in_force, mark)
        if table is None or not isinstance(verdict, Pass | Adopt):
            raise stop_of(verdict, event, f"{standing.spec.unit.topic} offset {mark[0]}")
        yield from standing.close()
        try:
            yield from self.adopt(table, verdict, mark)
        except (MissingGrantError, CopyNeededError):
            raise
        except (UnitStoppedError, TargetConfigError, RefusedError) as error:
            why = str(error)  # a copy that begins behind it helps, for what was altered back since
            raise CopyNeededError(why, cause="definition", after=mark[0], instead=error) from error

    def adopt(self, table: Table, verdict: Pass | Adopt, mark: Mark) -> Machine[None]:
        """Put a definition in force; no lane is busy."""
        standing = self._standing
        before = standing.changes.before
        lanes = [advanced(row, mark) for row in standing.progress.rows]
        if before is None or isinstance(verdict, Pass):
            stored = Stored(table, since=mark[0]) if before is None else replace(before, table=table)
            yield from self.put_in_force(stored, lanes, first=before is None)
        elif routed_table(standing.spec, table).topic is not None:  # nothing is altered: its readers are told
            since = since_behind(before, verdict.columns, mark[0], rewrite=verdict.rewrite)
            stored = replace(before.followed_by(table), since=since)
            yield from self.put_in_force(stored, lanes, first=verdict.rewrite)
        elif verdict.rewrite and (yield from retried(lambda: ask(ReadTable(table)))) is None:
            stored = replace(before.followed_by(table), since=mark[0])
            yield from self.put_in_force(stored, lanes, first=True)
        else:
            yield from standing.changes.adopt(before, table, verdict, mark)
            yield from standing.begin()

    def put_in_force(self, stored: Stored, lanes: Sequence[LaneProgress], *, first: bool) -> Machine[None]:
        """Store the definition with the layout that follows from it, all lanes standing as `lanes`; and begin anew.

        `first`: every row comes behind it, and the target table may have to be made.
        """
        standing = self._standing
        shared = not standing.spec.batches and bool(routed_table(standing.spec, stored.table).added)
        if first and shared:  # before the table is there again: a crash in between leaves nothing unsaid
            yield from standing.progress.guarded([LoseOthers(stored.table)])
        in_force: InForce = yield from retried(lambda: ask(Prepare(stored, first)))
        rows = relaid(lanes, wanted_layout(standing.spec, in_force))
        state = UnitState(definition=in_force.text, ddl=None, stopped=None)
        yield from standing.close()
        operations: list[Operation] = (
            [WriteUnit(state)] if first or not shared else [NotLost(), WriteUnit(state)]
        )
        if in_force.target.topic is not None:
            operations.append(Define(in_force.target, in_force.source, anew=first))
        yield from retried(lambda: standing.progress.relayout(rows, operations))
        yield from standing.begin()
