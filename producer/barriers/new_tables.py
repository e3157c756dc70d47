"""Begins to capture new tables: when a statement or their rows reveal them, or later, once their
definition can be proven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from producer.decoders.row_codec import TransactionContext
from producer.definitions.requests import (
    DefinitionPlace,
    ProvenDefinition,
    UnprovenDefinition,
    build_definition_place,
)
from producer.errors import TableStoppedError
from producer.ports import EventWriter
from producer.sources.changes import Barrier
from producer.sources.protocols import DefinitionProver
from producer.start.repeated_events import send_definition
from producer.start.started import StartedCapture
from producer.start.startup import WAITS, explain_unproven
from producer.start.table_topics import TableTopics
from producer.statements.ddl import TableDdl
from producer.statements.judgement import StatementVerdict
from producer.statements.statement import Statement
from producer.stops import explain_unseen_table
from producer.tables import TableName, TableState, format_table_name
from schemas.findings import format_copy_remedy
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.position import LogPoint, Position

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class NewTableCapture:
    """Begins the capture of new tables.

    `selected`: the source's patterns. `changed`: called with every table that is added. `snapshots`:
    whether the source's tables get a snapshot, so that a table can be added late.
    """

    started: StartedCapture
    writer: EventWriter
    topics: TableTopics
    selected: Callable[[str, str], bool]
    changed: Callable[[TableState, TransactionContext], None]
    definitions: DefinitionProver
    snapshots: bool

    def take_up_named_table(
        self, barrier: Barrier, verdict: StatementVerdict, transaction: TransactionContext, position: Position
    ) -> int:
        """Begin to capture a table that a statement names, if it exists and is fit now.

        Return how many positions that took.
        """
        if verdict.rows == "gone":
            self.started.errors.pop(verdict.table, None)
        if verdict.rows == "gone" or not self.selected(*verdict.table):
            return 0
        place, sql = build_definition_place(barrier), barrier.statement.sql
        if _comes_with_rows(barrier.statement, verdict) and not self.snapshots:
            reason = (
                f"{format_table_name(verdict.table)} was created with rows that "
                f"capture has not read: {sql[:200]}"
            )
            self._pass_over(verdict.table, place.point, reason, "rows-replaced")
            return 0
        table = self._prove_definition(verdict.table, place, rows=False)
        if table is None:
            return 0
        self._take_up(verdict.table, table, position, transaction, sql)
        return 1

    def take_up_unknown_table(self, name: TableName, transaction: TransactionContext) -> TableState | None:
        """Begin to capture a table that has rows without a statement that created it.

        None: it cannot be captured (any more).
        """
        topic = self.started.captured.get_topic(name)
        at = (self.started.context.epoch, transaction.file_number, transaction.pos)
        position = (*at, topic.compute_definition_row(at))
        if topic.tail.last is not None and position <= topic.tail.last:
            self._pass_over(
                name, at[1:],
                (f"the log has rows of {format_table_name(name)} at {transaction.file}:{transaction.pos} "
"before any statement that creates the table, so readers would get its definition too "
"late"),
            )  # fmt: skip
            return None
        place = DefinitionPlace(transaction.file, transaction.pos, transaction.gtid)
        table = self._prove_definition(name, place, rows=True)
        return None if table is None else self._take_up(name, table, position, transaction, None)

    def learn_definition(self, name: TableName, proof: ProvenDefinition) -> Table | None:
        """Return the proven definition; if there is none, remember the reason and return None."""
        errors = self.started.errors
        if proof.table is not None:
            errors.pop(name, None)
        else:
            errors[name] = proof.problem or explain_unseen_table(name)
            _log.error(
                "table skipped",
                source=self.started.captured.source,
                table=format_table_name(name),
                reason=str(errors[name]),
            )
        return proof.table

    def _prove_definition(self, name: TableName, place: DefinitionPlace, *, rows: bool) -> Table | None:
        """Return the definition that the catalog proves at `place`.

        None: there is none that can be captured, or the table has to wait.

        `rows`: the log has rows of the table there. Raises TableStoppedError if they would be lost.
        """
        proof = self.definitions.prove_definition(place, name)
        if not isinstance(proof, UnprovenDefinition):
            return self.learn_definition(name, proof)
        if rows or self.snapshots:
            self._pass_over(name, proof.last, explain_unproven(name, place.file, place.pos, proof))
        return None

    def _pass_over(self, name: TableName, until: LogPoint, reason: str, cause: str = "definition") -> None:
        """Let a table without events wait for `until`: its snapshot brings its rows.

        Without snapshots, raise TableStoppedError.
        """
        captured, errors = self.started.captured, self.started.errors
        if not self.snapshots:
            self.topics.open_topic(name)
            captured.known.add(name)
            raise TableStoppedError(frozenset([name]), cause, reason, format_copy_remedy(*name))
        self.started.late[name] = until
        errors[name] = Problem(reason, WAITS)
        _log.warning("table waits", source=captured.source, table=format_table_name(name), reason=reason)

    def _take_up(
        self,
        name: TableName,
        table: Table,
        position: Position,
        transaction: TransactionContext,
        sql: str | None,
    ) -> TableState:
        captured = self.started.captured
        state = TableState(name, self.topics.open_topic(name), table, position)
        captured.tables[name] = state
        captured.known.add(name)
        self.started.errors.pop(name, None)
        passed_over = self.started.late.pop(name, None) is not None or sql is None
        self.writer.drain()
        end = max(state.topic.end, self.writer.offsets.get(state.topic.name, -1) + 1)
        copy_mark = self.started.get_copy_mark(name)
        send_definition(self.writer, self.started.context, state, transaction, sql, copy=copy_mark)
        self.writer.drain()
        if passed_over and state.definition_offset != end:
            raise _build_taken_up_twice_stop(state)
        self.changed(state, transaction)
        _log.info("table added", source=captured.source, table=format_table_name(name))
        return state


def _build_taken_up_twice_stop(state: TableState) -> TableStoppedError:
    """Return the stop of a table that two capture processes added at different places of the log.

    The earlier process had not ended, and added it at an earlier place after this start had read the
    topic. Its events count for readers; this process skipped the changes that followed.
    """
    reason = (
        f"two capture processes began to capture {format_table_name(state.name)} at different "
        "positions of the log, because the earlier process had not ended: changes between the "
        "two positions may be missing"
    )
    return TableStoppedError(frozenset([state.name]), "definition", reason, format_copy_remedy(*state.name))


def _comes_with_rows(statement: Statement, verdict: StatementVerdict) -> bool:
    """Return whether the table that a statement created has rows without events: it had another name, or was
    a partition.
    """
    action = statement.kind.action if isinstance(statement.kind, TableDdl) else ""
    return action == "rename" or (action == "alter" and verdict.rows == "replaced")
