"""What a statement in the log does to captured tables: the events that follow from it, and the definitions in force.

A barrier: everything before the statement is acknowledged and the position is stored before its events are sent, and
these are acknowledged before the next row. So the definition that a stored position names is always the one in force there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from producer.catalog import Catalog
from producer.codec import SourceContext, TransactionContext
from producer.codec_control import encode_truncate
from producer.ddl import SchemaDrop, TableDdl
from producer.errors import StreamStoppedError
from producer.kafka_writer import KafkaWriter
from producer.start import send_definition
from producer.tables import Captured, TableName, TableState, dotted
from producer.topics import EVENTS, Topics
from producer.transactions import Barrier
from schemas.errors import SchemaError
from schemas.findings import START_OVER
from schemas.position import Position
from schemas.table import Table

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class Barriers:
    """Deals with `Barrier`s. `selected`: the source's patterns; `changed` is told of every table whose rows or form change."""

    context: SourceContext
    captured: Captured
    writer: KafkaWriter
    topics: Topics
    catalog: Callable[[], Catalog]
    selected: Callable[[str, str], bool]
    errors: dict[TableName, str]
    changed: Callable[[TableState, TransactionContext], None]

    def concerned(self, barrier: Barrier) -> list[TableName]:
        """Return the captured tables, or tables to capture from now on, that the statement may concern."""
        statement = barrier.statement
        if isinstance(statement, TableDdl):
            return [name for name in dict.fromkeys(statement.tables) if self.selected(*name)]
        names = self.captured.in_schema(statement.db)
        if isinstance(statement, SchemaDrop):
            return names
        with_new = [name for name in self._names() if name[0] == statement.db and self.selected(*name)]
        return list(dict.fromkeys([*names, *with_new]))

    def carry_out(self, barrier: Barrier, names: Iterable[TableName], transaction: TransactionContext) -> int:
        """Send the events of the statement; returns how many positions they took."""
        row = barrier.row
        for name in names:
            row += self._one(barrier, name, transaction, row)
        return row - barrier.row

    def first_sight(self, name: TableName, transaction: TransactionContext) -> TableState | None:
        """Take up a table whose rows appear without a statement that made it; None: it cannot be captured (any more)."""
        topic = self.captured.topic(name)
        at = (self.context.epoch, transaction.file_number, transaction.pos)
        position = (*at, topic.definition_row(at))
        if topic.tail.last is not None and position <= topic.tail.last:
            raise StreamStoppedError(
                f"rows of {dotted(name)} appear at {transaction.file}:{transaction.pos} without a statement that made it, "
                f"where its definition would be too late for readers: {START_OVER}"
            )
        table = self._definition(name, position, None)
        return None if table is None else self._take_up(name, table, position, transaction, None)

    # --- one table

    def _one(self, barrier: Barrier, name: TableName, transaction: TransactionContext, row: int) -> int:
        statement, state = barrier.statement, self.captured.tables.get(name)
        position = (self.context.epoch, transaction.file_number, transaction.pos, row)
        if isinstance(statement, TableDdl) and statement.action == "truncate":
            return self._truncate(state, barrier, transaction, row)
        if state is not None:
            return self._alter(state, barrier, transaction, position)
        table = self._definition(name, position, None)
        if table is None:
            return 0
        self._take_up(name, table, position, transaction, barrier.sql)
        return 1

    def _truncate(
        self, state: TableState | None, barrier: Barrier, transaction: TransactionContext, row: int
    ) -> int:
        if state is None:
            return 0
        key, value = encode_truncate(
            state.table, self.context, state.topic.tail, transaction, row=row, ddl=barrier.sql
        )
        state.topic.raise_ceiling()
        self.writer.send(state.topic.name, key, value)
        self.changed(state, transaction)
        return 1

    def _alter(
        self, state: TableState, barrier: Barrier, transaction: TransactionContext, position: Position
    ) -> int:
        """The table is there already: send its definition unless the statement surely changed nothing."""
        table = self._definition(state.name, position, state)
        unsure = not isinstance(barrier.statement, TableDdl) or _if_not_exists(barrier)
        if unsure and table == state.table:
            return 0
        state.ignored = None if table is not None else f"gone or unfit since {barrier.sql[:200]}"
        state.define(table or state.table, position)
        send_definition(self.writer, self.context, state, transaction, barrier.sql)
        self.changed(state, transaction)
        return 1

    def _take_up(
        self,
        name: TableName,
        table: Table,
        position: Position,
        transaction: TransactionContext,
        sql: str | None,
    ) -> TableState:
        self.topics.ensure([self.captured.topic_of(name)], EVENTS)
        state = TableState(name, self.captured.topic(name), table, position)
        self.captured.tables[name] = state
        send_definition(self.writer, self.context, state, transaction, sql)
        self.writer.drain()
        self.changed(state, transaction)
        _log.info("table added", source=self.captured.source, table=dotted(name))
        return state

    # --- definitions

    def _definition(self, name: TableName, position: Position, state: TableState | None) -> Table | None:
        """The table from `position` on: from the topic if it is there already, else from the catalogue as it is now."""
        if state is not None and position in state.ahead:
            return state.ahead[position]
        catalog = self.catalog()
        try:
            table = catalog.table(name)
            reason = catalog.unfit(name) if table is not None else "there is no such table now"
        except SchemaError as error:
            table, reason = None, str(error)
        if reason is None:
            self.errors.pop(name, None)
            return table
        if table is not None or "no such table" not in reason:
            self.errors[name] = reason
            _log.error("table left out", source=self.captured.source, table=dotted(name), reason=reason)
        return None

    def _names(self) -> list[TableName]:
        return self.catalog().table_names(["*.*"])


def _if_not_exists(barrier: Barrier) -> bool:
    statement = barrier.statement
    creates = isinstance(statement, TableDdl) and statement.action == "create"
    return creates and "EXISTS" in barrier.sql.upper() and "REPLACE" not in barrier.sql.upper()
