"""The effects of a statement in the log on captured tables: the events that follow from it, and the definitions in force.

A barrier: everything before the statement is acknowledged and the position is stored before its events are sent, and
these are acknowledged before the next row. So the definition that a stored position names is always the one in force there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from producer.barriers.new_tables import NewTables
from producer.barriers.unconverted import doubt_of_statement, require_unconverted
from producer.decoders.row_codec import TransactionContext
from producer.definitions.places import Unproven, place_of
from producer.errors import TableStoppedError
from producer.kafka.control_events import encode_truncate
from producer.ports import EventWriter
from producer.resume.repeats import send_definition
from producer.resume.started import Started
from producer.resume.startup import unproven
from producer.source import DefinitionProver
from producer.sources.changes import Barrier
from producer.statements.columns import changes, said
from producer.statements.conversions import doubt_of_swap
from producer.statements.ddl import TableDdl
from producer.statements.judgement import StatementVerdict
from producer.statements.shadows import Executed, ShadowTables
from producer.stops import by_statement, by_swap
from producer.tables import Captured, TableName, TableState, dotted
from schemas.findings import copy_again
from schemas.table.model import Table, same_definition
from schemas.table.online_ddl import NO_TOOLS
from schemas.wire.event import ColumnChanges
from schemas.wire.position import Position

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class Barriers:
    """Deals with `Barrier`s. `selected`: the source's patterns; `changed` is told of every captured table whose rows or form change.

    `made_again` is told of a table that stopped as dropped, and that a statement has made again: only a copy brings its rows.
    """

    started: Started
    writer: EventWriter
    definitions: DefinitionProver
    selected: Callable[[str, str], bool]
    changed: Callable[[TableState, TransactionContext], None]
    new_tables: NewTables
    made_again: Callable[[TableName, Barrier], None] = lambda name, barrier: None
    shadows: ShadowTables = field(default_factory=lambda: ShadowTables(NO_TOOLS))

    @property
    def captured(self) -> Captured:
        return self.started.captured

    def note(self, barrier: Barrier) -> None:
        """Learn of a statement before anything is asked about it."""
        if barrier.verdicts is None:
            done = Executed(
                barrier.statement, barrier.sql, barrier.db, place_of(barrier).point, barrier.escapes
            )
            self.shadows.note(done, self.captured.tables)

    def carry_out(
        self, barrier: Barrier, verdicts: Iterable[StatementVerdict], transaction: TransactionContext
    ) -> tuple[int, TableStoppedError | None]:
        """Send the events of the statement; returns how many positions they took, and which tables it stops."""
        row, stops = barrier.row, []
        for verdict in verdicts:
            if verdict.table in self.captured.stopped:
                self._behind_stop(barrier, verdict)
                continue
            try:
                row += self._one(barrier, verdict, transaction, row)
            except TableStoppedError as error:
                stops.append(error)
        return row - barrier.row, TableStoppedError.of(stops)

    # --- one table

    def _behind_stop(self, barrier: Barrier, verdict: StatementVerdict) -> None:
        """Nothing of a stopped table is sent; but one that was dropped may be there again."""
        statement, name = barrier.statement, verdict.table
        makes = isinstance(statement, TableDdl) and statement.action in ("create", "rename")
        dropped = self.captured.stopped[name].stop.cause == "dropped"
        if makes and dropped and verdict.rows != "gone" and self.selected(*name):
            _log.info("table is there again", source=self.captured.source, table=dotted(name))
            self.made_again(name, barrier)

    def _one(
        self, barrier: Barrier, verdict: StatementVerdict, transaction: TransactionContext, row: int
    ) -> int:
        statement, name = barrier.statement, verdict.table
        state = self.captured.tables.get(name)
        position = (self.started.context.epoch, transaction.file_number, transaction.pos, row)
        begins = self.started.begins.get(name)
        if begins is not None and position <= begins:  # the start has sent the definition that it leads to
            return 1 if position == begins and verdict.rows != "gone" else 0
        action = statement.action if isinstance(statement, TableDdl) else ""
        if action == "truncate" and not verdict.logged:
            return self._truncate(state, barrier, transaction, row)
        if state is not None and isinstance(statement, TableDdl):
            moved = self._by_tool(state, barrier, statement, transaction, position)
            if moved is not None:
                return moved
        if verdict.rows != "kept" and name in self.captured.known and verdict.stops(same_definition=False):
            raise by_statement(barrier, verdict)
        if state is None:
            return self.new_tables.appeared(barrier, verdict, transaction, position)
        if action == "create" and verdict.definition == "kept":  # IF NOT EXISTS, and it does
            return 0
        # Of a table that was there when capture began, and is made later in the log, the start has the definition.
        if action in ("create", "rename") and state.defined_at[3] >= 0 and state.defined_at != position:
            raise by_statement(barrier, StatementVerdict(name, "replaced", "changed"))
        if (
            verdict.needs == "no list"
            and self.definitions.partitioning(place_of(barrier), name) not in NOT_LIST
        ):
            raise by_statement(barrier, StatementVerdict(name, "unknown"))
        return self._alter(state, barrier, verdict, transaction, position)

    def _truncate(
        self, state: TableState | None, barrier: Barrier, transaction: TransactionContext, row: int
    ) -> int:
        if state is None:
            return 0
        key, value = encode_truncate(
            state.table, self.started.context, state.topic.tail, transaction, row=row, ddl=barrier.sql
        )
        state.topic.raise_ceiling()
        self.writer.send(state.topic.name, key, value)
        self.changed(state, transaction)
        return 1

    def _alter(
        self,
        state: TableState,
        barrier: Barrier,
        verdict: StatementVerdict,
        transaction: TransactionContext,
        position: Position,
    ) -> int:
        """The table is there already: send its definition, with what happened to rows as far as it is known."""
        table = state.table if verdict.keeps_definition else self._definition(state, position, barrier)
        same = same_definition(state.table, table)
        if verdict.stops(same_definition=same):
            raise by_statement(barrier, verdict)
        columns = _columns(barrier, state.table, table)
        doubt = doubt_of_statement(barrier, state.table, table)
        require_unconverted(self.definitions, state.name, barrier, doubt)
        state.define(table, position)
        effect = verdict.effect(same_definition=same)
        send_definition(
            self.writer, self.started.context, state, transaction, barrier.sql, effect=effect, columns=columns
        )
        self.changed(state, transaction)
        return 1

    def _by_tool(
        self,
        state: TableState,
        barrier: Barrier,
        statement: TableDdl,
        transaction: TransactionContext,
        position: Position,
    ) -> int | None:
        """Deal with what gh-ost or pt-online-schema-change does to a captured table in the end; None: it is nothing of that."""
        place = place_of(barrier)
        if statement.action == "create" and self.shadows.is_away(state.name):
            raise by_statement(barrier, StatementVerdict(state.name, "replaced", "changed"))
        if statement.action != "rename":
            return None
        move, shadow = self.shadows.move(state.name, statement, place.point)
        if move == "half":
            _log.warning(
                "half a swap", source=self.captured.source, table=dotted(state.name), sql=barrier.sql[:500]
            )
            raise by_swap(
                state.name, barrier, "only one side of that is named like a table of gh-ost or pt-osc"
            )
        if move == "away":
            _log.info(
                "table is away", source=self.captured.source, table=dotted(state.name), sql=barrier.sql[:500]
            )
            return 0
        if shadow is None:
            return None
        table = self._definition(state, position, barrier)
        swapped = self.shadows.swapped(shadow, place.point, state.table, table)
        if swapped.refused:
            raise by_swap(
                state.name, barrier, f"of {dotted(shadow)}, which took its place, {swapped.refused}"
            )
        require_unconverted(self.definitions, state.name, barrier, doubt_of_swap(state.table, table))
        state.define(table, position)
        send_definition(
            self.writer,
            self.started.context,
            state,
            transaction,
            barrier.sql,
            effect=swapped.effect,
            columns=swapped.columns,
        )
        self.changed(state, transaction)
        return 1

    def _definition(self, state: TableState, position: Position, barrier: Barrier) -> Table:
        """Return the table from `position` on: from the topic if it is there already, else what the catalogue proves of it.

        Raises TableStoppedError where nothing is proven, where the statement made it unfit, and where it was dropped behind it.
        """
        if position in state.ahead:
            return state.ahead[position]
        name, place = state.name, place_of(barrier)
        proof = self.definitions.at(place, name)
        if isinstance(proof, Unproven):
            reason = unproven(name, place.file, place.pos, proof)
            raise TableStoppedError(frozenset([name]), "definition", reason, copy_again(*name))
        table = self.new_tables.learn(name, proof)
        if table is None:
            raise self._lost(name, barrier)
        return table

    def _lost(self, name: TableName, barrier: Barrier) -> TableStoppedError:
        """Return why a captured table is stopped that the statement made unfit, or that was dropped behind it."""
        seen, colon, remedy = self.started.errors.pop(name, "").rpartition(": ")
        if not colon:
            return by_statement(barrier, StatementVerdict(name, "gone"))
        reason = f"{dotted(name)} cannot be captured since {barrier.sql[:200]}: {seen}"
        return TableStoppedError(frozenset([name]), "unfit", reason, f"{remedy}, then {copy_again(*name)}")


def _columns(barrier: Barrier, before: Table, after: Table) -> ColumnChanges | None:
    """Return what the statement says of columns, as far as it is of columns alone and all of it is known."""
    actions = said(barrier.sql, barrier.db, escapes=barrier.escapes)
    return None if actions is None else changes([actions], before, after)


#: Kinds of partitioning under which maintenance keeps every row; "": none.
NOT_LIST = frozenset(["", "RANGE", "RANGE COLUMNS", "HASH", "LINEAR HASH", "KEY", "LINEAR KEY"])
