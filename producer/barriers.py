"""The effects of a statement in the log on captured tables: the events that follow from it, and the definitions in force.

A barrier: everything before the statement is acknowledged and the position is stored before its events are sent, and
these are acknowledged before the next row. So the definition that a stored position names is always the one in force there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from producer.binlog_format.log_event import SessionSettings
from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.definitions.places import Place, Unproven
from producer.errors import TableStoppedError
from producer.kafka.control_events import encode_truncate
from producer.kafka.topics import EVENTS
from producer.ports import EventWriter, TopicMaker
from producer.resume.repeats import send_definition
from producer.resume.started import Started
from producer.resume.startup import WAITS, unproven
from producer.source import DefinitionProver, StatementReach
from producer.sources.changes import Barrier
from producer.statements import ddl
from producer.statements.columns import changes, said
from producer.statements.conversions import DoubtedValues, doubt_of, doubt_of_swap
from producer.statements.ddl import Dml, SchemaDrop, TableDdl, Trigger
from producer.statements.judgement import StatementVerdict, judge
from producer.statements.shadows import Executed, ShadowTables
from producer.stops import by_conversion, by_statement, by_swap
from producer.tables import Captured, TableName, TableState, dotted
from schemas.findings import copy_again
from schemas.table.model import Table, same_definition
from schemas.table.names import Names
from schemas.table.online_ddl import NO_TOOLS
from schemas.wire.event import ColumnChanges
from schemas.wire.position import LogPoint, Position

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class Barriers:
    """Deals with `Barrier`s. `selected`: the source's patterns; `changed` is told of every table whose rows or form change.

    `snapshots`: whether the source's tables are snapshotted, so that a table can be taken up late. `made_again` is told of a table
    that stopped as dropped, and that a statement has made again: only a copy brings its rows.
    """

    context: SourceContext
    captured: Captured
    writer: EventWriter
    topics: TopicMaker
    selected: Callable[[str, str], bool]
    errors: dict[TableName, str]
    changed: Callable[[TableState, TransactionContext], None]
    definitions: DefinitionProver
    started: Started
    snapshots: bool
    names: Names
    reaches: StatementReach
    made_again: Callable[[TableName, Barrier], None] = lambda name, barrier: None
    shadows: ShadowTables = field(default_factory=lambda: ShadowTables(NO_TOOLS))

    def note(self, barrier: Barrier) -> None:
        """Learn of a statement before anything is asked about it."""
        if barrier.verdicts is None:
            done = Executed(
                barrier.statement, barrier.sql, barrier.db, _place(barrier).point, barrier.escapes
            )
            self.shadows.note(done, self.captured.tables)

    def concerned(self, barrier: Barrier) -> list[StatementVerdict]:
        """Return what the statement does to captured tables, and to tables to capture from now on."""
        statement = barrier.statement
        known, names = self.captured.known, self.names
        if barrier.verdicts is not None:
            return [each for each in barrier.verdicts if self.selected(*each.table) or each.table in known]
        if isinstance(statement, Trigger):
            return []
        if isinstance(statement, Dml):
            return self._written(barrier)
        if isinstance(statement, TableDdl):
            verdicts = [
                replace(each, table=names.same(each.table))
                for each in judge(barrier.sql, barrier.db, escapes=barrier.escapes)
            ]
            if statement.action == "truncate" and barrier.temporary:
                verdicts = [
                    StatementVerdict(each.table, "unknown", logged=True, why=_HIDDEN) for each in verdicts
                ]
            found = [each for each in verdicts if self.selected(*each.table) or each.table in known]
            return found + self._written(barrier) if statement.action == "create" else found
        if isinstance(statement, SchemaDrop):
            return [
                StatementVerdict(name, "gone", "changed")
                for name in sorted(known)
                if name[0] == names.fold(statement.db)
            ]
        return [StatementVerdict(name, "unknown") for name in sorted(known)]

    def _written(self, barrier: Barrier) -> list[StatementVerdict]:
        """Return which captured tables a change that is logged as a statement may have changed."""
        statement, tokens = ddl.read(barrier.sql, barrier.db, escapes=barrier.escapes)
        if not isinstance(statement, Dml) and not _selects(tokens):
            return []
        reach = self.reaches.of(_place(barrier), tokens, self.names.fold(barrier.db), self.captured.known)
        tables = self.captured.known if reach.tables is None else self.captured.known & reach.tables
        going = tables - self.captured.stopped.keys()
        if reach.tables is None and going:
            _log.error(
                "every table is meant",
                source=self.captured.source,
                sql=ddl.without_values(barrier.sql)[:500],
                reason=reach.why,
            )
        return [StatementVerdict(name, "unknown", logged=True, why=reach.why) for name in sorted(going)]

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

    def first_sight(self, name: TableName, transaction: TransactionContext) -> TableState | None:
        """Take up a table whose rows appear without a statement that made it; None: it cannot be captured (any more)."""
        topic = self.captured.topic(name)
        at = (self.context.epoch, transaction.file_number, transaction.pos)
        position = (*at, topic.definition_row(at))
        if topic.tail.last is not None and position <= topic.tail.last:
            self._pass_over(
                name, at[1:],
                f"rows of {dotted(name)} appear at {transaction.file}:{transaction.pos} without a statement that made it, "
                "where its definition would be too late for readers",
            )  # fmt: skip
            return None
        place = Place(transaction.file, transaction.pos, transaction.gtid)
        table = self._definition(name, position, None, place, rows=True)
        return None if table is None else self._take_up(name, table, position, transaction, None)

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
        position = (self.context.epoch, transaction.file_number, transaction.pos, row)
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
            return self._appeared(barrier, verdict, transaction, position)
        if action == "create" and verdict.definition == "kept":  # IF NOT EXISTS, and it does
            return 0
        # Of a table that was there when capture began, and is made later in the log, the start has the definition.
        if action in ("create", "rename") and state.defined_at[3] >= 0 and state.defined_at != position:
            raise by_statement(barrier, StatementVerdict(name, "replaced", "changed"))
        if (
            verdict.needs == "no list"
            and self.definitions.partitioning(_place(barrier), name) not in NOT_LIST
        ):
            raise by_statement(barrier, StatementVerdict(name, "unknown"))
        return self._alter(state, barrier, verdict, transaction, position)

    def _appeared(
        self, barrier: Barrier, verdict: StatementVerdict, transaction: TransactionContext, position: Position
    ) -> int:
        """Take up a table that is not captured, if it is there and fit now."""
        if verdict.rows == "gone":
            self.errors.pop(verdict.table, None)
        if verdict.rows == "gone" or not self.selected(*verdict.table):
            return 0
        if _moves(barrier.statement) and not self.snapshots:
            reason = f"{dotted(verdict.table)} came with rows that capture has not seen: {barrier.sql[:200]}"
            self._pass_over(verdict.table, _place(barrier).point, reason, "rows-replaced")
            return 0
        table = self._definition(verdict.table, position, None, _place(barrier))
        if table is None:
            return 0
        self._take_up(verdict.table, table, position, transaction, barrier.sql)
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
        self,
        state: TableState,
        barrier: Barrier,
        verdict: StatementVerdict,
        transaction: TransactionContext,
        position: Position,
    ) -> int:
        """The table is there already: send its definition, with what happened to rows as far as it is known."""
        table: Table | None = state.table
        if not verdict.keeps_definition:
            table = self._definition(state.name, position, state, _place(barrier))
        if table is None:
            raise self._lost(state.name, barrier)
        same = same_definition(state.table, table)
        if verdict.stops(same_definition=same):
            raise by_statement(barrier, verdict)
        columns = _columns(barrier, state.table, table)
        _require_unconverted(self.definitions, state.name, barrier, _doubt(barrier, state.table, table))
        state.define(table, position)
        effect = verdict.effect(same_definition=same)
        send_definition(
            self.writer, self.context, state, transaction, barrier.sql, effect=effect, columns=columns
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
        place = _place(barrier)
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
        table = self._definition(state.name, position, state, place)
        if table is None:
            raise self._lost(state.name, barrier)
        swapped = self.shadows.swapped(shadow, place.point, state.table, table)
        if swapped.refused:
            raise by_swap(
                state.name, barrier, f"of {dotted(shadow)}, which took its place, {swapped.refused}"
            )
        _require_unconverted(self.definitions, state.name, barrier, doubt_of_swap(state.table, table))
        state.define(table, position)
        send_definition(
            self.writer,
            self.context,
            state,
            transaction,
            barrier.sql,
            effect=swapped.effect,
            columns=swapped.columns,
        )
        self.changed(state, transaction)
        return 1

    def _lost(self, name: TableName, barrier: Barrier) -> TableStoppedError:
        """Return why a captured table is stopped that the statement made unfit, or that was dropped behind it."""
        seen, colon, remedy = self.errors.pop(name, "").rpartition(": ")
        if not colon:
            return by_statement(barrier, StatementVerdict(name, "gone"))
        reason = f"{dotted(name)} cannot be captured since {barrier.sql[:200]}: {seen}"
        return TableStoppedError(frozenset([name]), "unfit", reason, f"{remedy}, then {copy_again(*name)}")

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
        self.captured.known.add(name)
        self.errors.pop(name, None)
        passed_over = self.started.late.pop(name, None) is not None or sql is None
        self.writer.drain()
        end = max(state.topic.end, self.writer.offsets.get(state.topic.name, -1) + 1)
        again = self.started.again(name)
        send_definition(self.writer, self.context, state, transaction, sql, copy=again)
        self.writer.drain()
        if passed_over and state.definition_offset != end:
            raise _taken_up_twice(state)
        self.changed(state, transaction)
        _log.info("table added", source=self.captured.source, table=dotted(name))
        return state

    # --- definitions

    def _definition(
        self,
        name: TableName,
        position: Position,
        state: TableState | None,
        place: Place,
        *,
        rows: bool = False,
    ) -> Table | None:
        """The table from `position` on: from the topic if it is there already, else what the catalogue proves of it.

        `rows`: of the table stand there. None: there is none that can be captured, or it has to wait. Raises
        TableStoppedError for a captured table of which nothing is proven, and where rows would be lost.
        """
        if state is not None and position in state.ahead:
            return state.ahead[position]
        proof = self.definitions.at(place, name)
        if isinstance(proof, Unproven):
            reason = unproven(name, place.file, place.pos, proof)
            if state is not None:
                raise TableStoppedError(frozenset([name]), "definition", reason, copy_again(*name))
            if rows or self.snapshots:
                self._pass_over(name, proof.last, reason)
            return None
        if proof.table is not None:
            self.errors.pop(name, None)
        elif proof.reason is not None:
            self.errors[name] = proof.reason
            _log.error("table left out", source=self.captured.source, table=dotted(name), reason=proof.reason)
        return proof.table

    def _pass_over(self, name: TableName, until: LogPoint, reason: str, cause: str = "definition") -> None:
        """Have a table of which nothing is published wait for `until`: its snapshot brings its rows. Without one it stops."""
        refusal = self.captured.refusal(name)
        if refusal is not None:
            self.errors[name] = refusal
            return
        if not self.snapshots:
            self.topics.ensure([self.captured.topic_of(name)], EVENTS)
            self.captured.known.add(name)
            raise TableStoppedError(frozenset([name]), cause, reason, copy_again(*name))
        self.started.late[name] = until
        self.errors[name] = f"{reason}: {WAITS}"
        _log.warning("table waits", source=self.captured.source, table=dotted(name), reason=reason)


def _taken_up_twice(state: TableState) -> TableStoppedError:
    """Return the stop of a table that a predecessor, which has not ended, took up at an earlier place after our start had
    read the topic. What it published counts for readers; what followed we have passed over."""
    reason = (
        f"{dotted(state.name)} was taken up at two places of the log, by an earlier capture process that had not ended and by its "
        "successor: changes between them may be missing"
    )
    return TableStoppedError(frozenset([state.name]), "definition", reason, copy_again(*state.name))


def _moves(statement: object) -> bool:
    return isinstance(statement, TableDdl) and statement.action == "rename"


def _columns(barrier: Barrier, before: Table, after: Table) -> ColumnChanges | None:
    """Return what the statement says of columns, as far as it is of columns alone and all of it is known."""
    actions = said(barrier.sql, barrier.db, escapes=barrier.escapes)
    return None if actions is None else changes([actions], before, after)


def _require_unconverted(
    definitions: DefinitionProver, name: TableName, barrier: Barrier, doubt: DoubtedValues | None
) -> None:
    """Stop the table where its session's settings may have made other values of what a statement copied."""
    if doubt is not None and definitions.converted(_place(barrier), name, doubt):
        raise by_conversion(name, barrier, doubt.why)


def _doubt(barrier: Barrier, before: Table, after: Table) -> DoubtedValues | None:
    if barrier.settings == SessionSettings() or not isinstance(barrier.statement, TableDdl):
        return None
    _, tokens = ddl.read(barrier.sql, barrier.db, escapes=barrier.escapes)
    return doubt_of(tokens, barrier.settings, before, after)


def _selects(tokens: Sequence[ddl.Token]) -> bool:
    """Tell whether CREATE TABLE takes its rows from a query, which may call functions. Where rows are logged, its text has none."""
    words = [token.upper for token in tokens]
    return "SELECT" in words or any(words[at : at + 2] == ["VALUES", "ROW"] for at in range(len(words)))


_HIDDEN = "the session has temporary tables, and one of them may hide the table: no session should give one a captured table's name"
#: Kinds of partitioning under which maintenance keeps every row; "": none.
NOT_LIST = frozenset(["", "RANGE", "RANGE COLUMNS", "HASH", "LINEAR HASH", "KEY", "LINEAR KEY"])


def _place(barrier: Barrier) -> Place:
    return Place(barrier.header.file, barrier.start, barrier.header.gtid)
