"""The captured tables that a statement in the log concerns, and what it does to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from producer.definitions.places import place_of
from producer.source import StatementReach
from producer.sources.changes import Barrier
from producer.statements import ddl
from producer.statements.ddl import Dml, SchemaDrop, TableDdl, Trigger
from producer.statements.judgement import StatementVerdict, judge
from producer.statements.tokens import Token, without_values
from producer.tables import Captured
from schemas.table.names import Names

_log = structlog.get_logger("capture")
_HIDDEN = "the session has temporary tables, and one of them may hide the table: no session should give one a captured table's name"


@dataclass(slots=True)
class StatementConcern:
    """Judges statements. `selected`: the source's patterns; `reaches`: which tables a change that is logged as a statement may write."""

    captured: Captured
    selected: Callable[[str, str], bool]
    names: Names
    reaches: StatementReach

    def of(self, barrier: Barrier) -> list[StatementVerdict]:
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
        reach = self.reaches.of(place_of(barrier), tokens, self.names.fold(barrier.db), self.captured.known)
        tables = self.captured.known if reach.tables is None else self.captured.known & reach.tables
        going = tables - self.captured.stopped.keys()
        if reach.tables is None and going:
            _log.error(
                "every table is meant",
                source=self.captured.source,
                sql=without_values(barrier.sql)[:500],
                reason=reach.why,
            )
        return [StatementVerdict(name, "unknown", logged=True, why=reach.why) for name in sorted(going)]


def _selects(tokens: Sequence[Token]) -> bool:
    """Tell whether CREATE TABLE takes its rows from a query, which may call functions. Where rows are logged, its text has none."""
    words = [token.upper for token in tokens]
    return "SELECT" in words or any(words[at : at + 2] == ["VALUES", "ROW"] for at in range(len(words)))
