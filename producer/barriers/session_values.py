"""Stops tables with values that a statement may have changed by its session's settings
(producer/statements/conversions.py).
"""

from __future__ import annotations

from producer.binlog_format.log_event import SessionSettings
from producer.definitions.requests import build_definition_place
from producer.sources.changes import Barrier
from producer.sources.protocols import DefinitionProver
from producer.statements import ddl
from producer.statements.conversions import DoubtedValues, find_alter_doubt
from producer.statements.ddl import TableDdl
from producer.stops import build_conversion_stop
from producer.tables import TableName
from schemas.table.model import Table


def find_statement_doubt(barrier: Barrier, before: Table, after: Table) -> DoubtedValues | None:
    """Return the values that a statement may have changed because of its session's settings; None: no
    values. The statement changed the table from `before` to `after`.
    """
    if barrier.settings == SessionSettings() or not isinstance(barrier.statement, TableDdl):
        return None
    _, tokens = ddl.classify_with_tokens(barrier.sql, barrier.db, escapes=barrier.escapes)
    return find_alter_doubt(tokens, barrier.settings, before, after)


def require_unconverted(
    definitions: DefinitionProver, name: TableName, barrier: Barrier, doubt: DoubtedValues | None
) -> None:
    """Raise TableStoppedError if the source has rows that may have been changed as `doubt` describes."""
    if doubt is not None and definitions.may_have_converted(build_definition_place(barrier), name, doubt):
        raise build_conversion_stop(name, barrier, doubt.why)
