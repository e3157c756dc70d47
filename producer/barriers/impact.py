"""Finds the captured tables that a statement in the log affects, and the effect on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from producer.definitions.requests import build_definition_place
from producer.sources.changes import Barrier
from producer.sources.protocols import ImpactFinder
from producer.statements.ddl import DmlStatement, SchemaDrop, TableDdl, TriggerCreation
from producer.statements.judgement import StatementVerdict, judge_statement
from producer.statements.tokens import Token, cut_row_values
from producer.tables import CapturedTables
from schemas.table.names import NameRules

_log = structlog.get_logger("capture")
_HIDDEN = (
    "the session has temporary tables, and one of them may have the name of the table: do "
    "not give temporary tables the names of captured tables"
)


@dataclass(slots=True)
class StatementImpact:
    """Judges the effect of statements on captured tables. `selected`: the source's patterns.

    `reaches`: finds the tables that a change logged as a statement may write.
    """

    captured: CapturedTables
    selected: Callable[[str, str], bool]
    names: NameRules
    reaches: ImpactFinder

    def list_affected_tables(self, barrier: Barrier) -> list[StatementVerdict]:
        """Return the effect of the statement on captured tables, and on tables to capture from now on."""
        statement, kind = barrier.statement, barrier.statement.kind
        known, names = self.captured.known, self.names
        if barrier.verdicts is not None:
            return [each for each in barrier.verdicts if self.selected(*each.table) or each.table in known]
        if isinstance(kind, TriggerCreation):
            return []
        if isinstance(kind, DmlStatement):
            return self._list_written_tables(barrier)
        if isinstance(kind, TableDdl):
            verdicts = [
                replace(each, table=names.normalize_table(each.table)) for each in judge_statement(statement)
            ]
            if kind.action == "truncate" and statement.query.temporary:
                verdicts = [
                    StatementVerdict(each.table, "unknown", logged=True, why=_HIDDEN) for each in verdicts
                ]
            found = [each for each in verdicts if self.selected(*each.table) or each.table in known]
            return found + self._list_written_tables(barrier) if kind.action == "create" else found
        if isinstance(kind, SchemaDrop):
            return [
                StatementVerdict(name, "gone", "changed")
                for name in sorted(known)
                if name[0] == names.fold_name(kind.db)
            ]
        return [StatementVerdict(name, "unknown") for name in sorted(known)]

    def _list_written_tables(self, barrier: Barrier) -> list[StatementVerdict]:
        """Return the captured tables that a change logged as a statement may have changed."""
        statement = barrier.statement
        if not isinstance(statement.kind, DmlStatement) and not _has_select(statement.tokens):
            return []
        impact = self.reaches.find_impact(build_definition_place(barrier), statement, self.captured.known)
        tables = self.captured.known if impact.tables is None else self.captured.known & impact.tables
        going = tables - self.captured.stopped.keys()
        if impact.tables is None and going:
            _log.error(
                "statement may affect every table",
                source=self.captured.source,
                sql=cut_row_values(statement.sql)[:500],
                reason=impact.why,
            )
        return [StatementVerdict(name, "unknown", logged=True, why=impact.why) for name in sorted(going)]


def _has_select(tokens: Sequence[Token]) -> bool:
    """Return whether CREATE TABLE takes its rows from a query, which may call functions.

    With row logging its text has no query.
    """
    words = [token.upper for token in tokens]
    return "SELECT" in words or any(words[at : at + 2] == ["VALUES", "ROW"] for at in range(len(words)))
