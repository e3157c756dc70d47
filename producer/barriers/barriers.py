"""Determines the effects of a statement in the log on captured tables, and sends the resulting events
and definitions.

A statement is a barrier: everything before it is acknowledged and the position is stored before its
events are sent, and these are acknowledged before the next row. So the definition that a stored position
names is always the active one there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog

from producer.barriers.new_tables import NewTableCapture
from producer.decoders.row_codec import TransactionContext
from producer.definitions.requests import UnprovenDefinition, build_definition_place
from producer.errors import TableStoppedError
from producer.kafka.control_events import encode_removed_rows, encode_truncate
from producer.ports import EventWriter
from producer.sources.changes import Barrier
from producer.sources.protocols import DefinitionProver
from producer.start.repeated_events import send_definition
from producer.start.started import StartedCapture
from producer.start.startup import explain_unproven
from producer.statements.columns import (
    compute_column_changes,
    is_computed_from_left_out,
    is_left_out_only,
)
from producer.statements.conversions import DoubtedValues, find_alter_doubt, find_swap_doubt
from producer.statements.ddl import DmlStatement, TableDdl, UnknownStatement
from producer.statements.judgement import StatementVerdict
from producer.statements.shadows import ShadowTables
from producer.statements.statement import Statement
from producer.statements.tokens import cut_row_values
from producer.stops import build_conversion_stop, build_statement_stop, build_swap_stop, build_unseen_stop
from producer.tables import CapturedTables, TableName, TableState, format_table_name
from schemas.findings import format_copy_remedy
from schemas.table.model import Table, is_same_definition
from schemas.table.online_ddl import NO_TOOLS
from schemas.wire.copies import RemovedRows
from schemas.wire.position import Position

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class BarrierHandler:
    """Processes barriers.

    `selected`: the source's patterns. `changed`: called with every captured table with changed rows or
    form. `on_recreated_table`: called with a table that stopped as dropped, and that a statement has created
    again; only a copy brings its rows. `explain_old_agents`: see producer.ports.Ports.
    """

    started: StartedCapture
    writer: EventWriter
    definitions: DefinitionProver
    selected: Callable[[str, str], bool]
    changed: Callable[[TableState, TransactionContext], None]
    new_tables: NewTableCapture
    on_recreated_table: Callable[[TableName, Barrier], None] = lambda name, barrier: None
    shadows: ShadowTables = field(default_factory=lambda: ShadowTables(NO_TOOLS))
    explain_old_agents: Callable[[], str] = lambda: ""

    @property
    def captured(self) -> CapturedTables:
        return self.started.captured

    def note_barrier(self, barrier: Barrier) -> None:
        """Note a statement before anything is asked about it."""
        if barrier.verdicts is None:
            at = build_definition_place(barrier).point
            self.shadows.note_statement(barrier.statement, at, self.captured.tables)

    def carry_out(
        self, barrier: Barrier, verdicts: Iterable[StatementVerdict], transaction: TransactionContext
    ) -> tuple[int, TableStoppedError | None]:
        """Send the events of the statement.

        Return how many positions they took, and the stop of the tables that it stops.
        """
        row, stops = barrier.row, []
        for verdict in verdicts:
            if verdict.table in self.captured.stopped:
                self._handle_stopped_table(barrier, verdict)
                continue
            try:
                row += self._apply_verdict(barrier, verdict, transaction, row)
            except TableStoppedError as error:
                stops.append(error)
        taken = row - barrier.row
        _log.info(
            "statement read",
            source=self.captured.source,
            sql=_hide_statement_values(barrier.statement),
            events=taken,
        )
        return taken, TableStoppedError.merge_errors(stops)

    # --- one table

    def _handle_stopped_table(self, barrier: Barrier, verdict: StatementVerdict) -> None:
        """Send nothing for a stopped table, but report one that was dropped and has been created again."""
        kind, name = barrier.statement.kind, verdict.table
        makes = isinstance(kind, TableDdl) and (
            kind.action in ("create", "rename") or verdict.rows == "replaced"
        )
        dropped = self.captured.stopped[name].stop.cause in ("dropped", "unseen")
        if makes and dropped and verdict.rows != "gone" and self.selected(*name):
            _log.info("table recreated", source=self.captured.source, table=format_table_name(name))
            self.on_recreated_table(name, barrier)

    def _apply_verdict(
        self, barrier: Barrier, verdict: StatementVerdict, transaction: TransactionContext, row: int
    ) -> int:
        kind, name = barrier.statement.kind, verdict.table
        state = self.captured.tables.get(name)
        position = (self.started.context.epoch, transaction.file_number, transaction.pos, row)
        if verdict.rows == "removed" and state is None:
            return 0
        if state is not None and self._may_remove_rows(barrier, verdict):
            if not (why := self.explain_old_agents()):
                return self._send_removed_rows(state, barrier, transaction, row)
            verdict = replace(verdict, rows="emptied", why=why)
        begins = self.started.begins.get(name)
        if begins is not None and position <= begins:  # the start has sent the definition after it
            return 1 if position == begins and verdict.rows != "gone" else 0
        action = kind.action if isinstance(kind, TableDdl) else ""
        if action == "truncate" and not verdict.logged:
            return self._send_truncate(state, barrier, transaction, row)
        if state is not None and isinstance(kind, TableDdl):
            moved = self._handle_tool_swap(state, barrier, kind, transaction, position)
            if moved is not None:
                return moved
        if (
            verdict.rows != "kept"
            and name in self.captured.known
            and verdict.must_stop(same_definition=False)
        ):
            raise build_statement_stop(barrier, verdict)
        if state is None:
            return self.new_tables.take_up_named_table(barrier, verdict, transaction, position)
        if action == "create" and verdict.definition == "kept":  # IF NOT EXISTS, and it exists
            return 0
        # If a table existed when capture began, and is created later in the log, the start has its
        # definition.
        if action in ("create", "rename") and state.defined_at[3] >= 0 and state.defined_at != position:
            raise build_statement_stop(barrier, StatementVerdict(name, "replaced", "changed"))
        if not verdict.holds_under(None) and not verdict.holds_under(
            self.definitions.find_partitioning(build_definition_place(barrier), name)
        ):
            raise build_statement_stop(barrier, StatementVerdict(name, "unknown"))
        return self._send_definition(state, barrier, verdict, transaction, position)

    def _may_remove_rows(self, barrier: Barrier, verdict: StatementVerdict) -> bool:
        """Return whether the statement may remove rows of the table, but does nothing else to them."""
        return verdict.removes_under("") or (
            verdict.removes_under(None)
            and verdict.removes_under(
                self.definitions.find_partitioning(build_definition_place(barrier), verdict.table)
            )
        )

    def _send_truncate(
        self, state: TableState | None, barrier: Barrier, transaction: TransactionContext, row: int
    ) -> int:
        if state is None:
            return 0
        record = encode_truncate(
            state.table, self.started.context, state.topic.tail, transaction,
            row=row, ddl=barrier.statement.sql,
        )  # fmt: skip
        return self._send_rows_event(state, transaction, record)

    def _send_rows_event(
        self,
        state: TableState,
        transaction: TransactionContext,
        record: tuple[bytes, bytes],
        on_sent: Callable[[int], None] | None = None,
    ) -> int:
        """Send the event of a statement that removed rows; `on_sent` receives its offset."""
        state.topic.raise_ceiling()
        self.writer.send(state.topic.name, *record, on_sent)
        self.changed(state, transaction)
        return 1

    def _send_removed_rows(
        self, state: TableState, barrier: Barrier, transaction: TransactionContext, row: int
    ) -> int:
        """Send that a statement removed rows, and note the debt.

        The event is also sent where a copy that the topic already has began after it: readers drop it
        then, and a debt that is noted twice costs a key sweep, while a forgotten one leaves rows.
        """
        sql, epoch = barrier.statement.sql, self.started.context.epoch
        record = encode_removed_rows(
            state.table, self.started.context, state.topic.tail, transaction, row=row, ddl=sql
        )

        def note_debt(offset: int) -> None:
            removed = RemovedRows.build_from_statement(
                (epoch, transaction.file, transaction.pos), sql,
                offset=offset, since_ms=barrier.header.ts_ms,
                position=(epoch, transaction.file_number, transaction.pos, row),
            )  # fmt: skip
            self.started.copies.note_removed_rows(state.name, removed)

        return self._send_rows_event(state, transaction, record, note_debt)

    def _send_definition(
        self,
        state: TableState,
        barrier: Barrier,
        verdict: StatementVerdict,
        transaction: TransactionContext,
        position: Position,
    ) -> int:
        """Send the table's new definition, with the effect on its rows as far as it is known."""
        table = (
            state.table if verdict.keeps_definition else self._resolve_definition(state, position, barrier)
        )
        statement = barrier.statement
        columns = compute_column_changes([statement], state.table, table)
        same = is_same_definition(state.table, table)
        if columns is None and is_computed_from_left_out(table):
            same = False  # the definition does not show whether the columns that it lacks are as before
        keeps_published = is_left_out_only(columns, state.table, table)
        if not keeps_published and verdict.must_stop(same_definition=same):
            raise build_statement_stop(barrier, verdict)
        self._require_unconverted(state.name, barrier, find_alter_doubt(statement, state.table, table))
        state.set_definition(table, position)
        effect = "kept" if keeps_published else verdict.get_effect(same_definition=same)
        send_definition(
            self.writer,
            self.started.context,
            state,
            transaction,
            statement.sql,
            effect=effect,
            columns=columns,
        )
        self.changed(state, transaction)
        return 1

    def _handle_tool_swap(
        self,
        state: TableState,
        barrier: Barrier,
        kind: TableDdl,
        transaction: TransactionContext,
        position: Position,
    ) -> int | None:
        """Process the last steps of gh-ost or pt-online-schema-change on a captured table.

        None: the statement is not one.
        """
        place = build_definition_place(barrier)
        if kind.action == "create" and self.shadows.is_away(state.name):
            raise build_statement_stop(barrier, StatementVerdict(state.name, "replaced", "changed"))
        if kind.action != "rename":
            return None
        move, shadow = self.shadows.classify_move(state.name, kind, place.point)
        if move == "half":
            _log.warning(
                "renamed table not replaced",
                source=self.captured.source,
                table=format_table_name(state.name),
                sql=barrier.statement.sql[:500],
            )
            raise build_swap_stop(
                state.name,
                barrier,
                (
                    "only one of the two renamed tables has a name that gh-ost or pt-online-schema-change "
                    "gives"
                ),
            )
        if move == "away":
            _log.info(
                "table missing",
                source=self.captured.source,
                table=format_table_name(state.name),
                sql=barrier.statement.sql[:500],
            )
            return 0
        if shadow is None:
            return None
        table = self._resolve_definition(state, position, barrier)
        swapped = self.shadows.judge_swap(shadow, place.point, state.table, table)
        if swapped.refused:
            raise build_swap_stop(
                state.name,
                barrier,
                f"{format_table_name(shadow)} took its place: {swapped.refused}",
            )
        self._require_unconverted(state.name, barrier, find_swap_doubt(state.table, table))
        state.set_definition(table, position)
        send_definition(
            self.writer,
            self.started.context,
            state,
            transaction,
            barrier.statement.sql,
            effect=swapped.effect,
            columns=swapped.columns,
        )
        self.changed(state, transaction)
        return 1

    def _require_unconverted(self, name: TableName, barrier: Barrier, doubt: DoubtedValues | None) -> None:
        """Raise TableStoppedError if the source has rows that may have been changed as `doubt` describes
        (producer/statements/conversions.py).
        """
        place = build_definition_place(barrier)
        if doubt is not None and self.definitions.may_have_converted(place, name, doubt):
            raise build_conversion_stop(name, barrier, doubt.why)

    def _resolve_definition(self, state: TableState, position: Position, barrier: Barrier) -> Table:
        """Return the table's definition from `position` on: from the topic if the topic has it already,
        otherwise as the catalog proves it.

        Raises TableStoppedError if nothing is proven, if the statement made the table unfit, and if the
        catalog does not show the table.
        """
        if position in state.ahead:
            return state.ahead[position]
        name, place = state.name, build_definition_place(barrier)
        proof = self.definitions.prove_definition(place, name)
        if isinstance(proof, UnprovenDefinition):
            reason = explain_unproven(name, place.file, place.pos, proof)
            raise TableStoppedError(frozenset([name]), "definition", reason, format_copy_remedy(*name))
        if proof.table is None and proof.problem is None:
            raise build_unseen_stop(name)  # the log has no later statement on it, so it was not dropped
        table = self.new_tables.learn_definition(name, proof)
        if table is None:
            raise self._build_unfit_stop(name, barrier)
        return table

    def _build_unfit_stop(self, name: TableName, barrier: Barrier) -> TableStoppedError:
        """Return the stop of a captured table that the statement made unfit."""
        problem = self.started.errors.pop(name)
        reason = (
            f"{format_table_name(name)} cannot be captured since "
            f"{barrier.statement.sql[:200]}: {problem.what}"
        )
        first = f"{problem.action}, then " if problem.action else ""
        return TableStoppedError(frozenset([name]), "unfit", reason, f"{first}{format_copy_remedy(*name)}")


def _hide_statement_values(statement: Statement) -> str:
    """Return the statement for a log message, without values of rows."""
    changes_rows = isinstance(statement.kind, DmlStatement | UnknownStatement)
    return (cut_row_values(statement.sql) if changes_rows else statement.sql)[:500]
