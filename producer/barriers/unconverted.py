"""Values that a statement may have changed by its session's settings (producer/statements/conversions.py): such a table is stopped."""

from __future__ import annotations

from producer.binlog_format.log_event import SessionSettings
from producer.definitions.places import place_of
from producer.source import DefinitionProver
from producer.sources.changes import Barrier
from producer.statements import ddl
from producer.statements.conversions import DoubtedValues, doubt_of
from producer.statements.ddl import TableDdl
from producer.stops import by_conversion
from producer.tables import TableName
from schemas.table.model import Table


def doubt_of_statement(barrier: Barrier, before: Table, after: Table) -> DoubtedValues | None:
    """Return what a statement, which led from `before` to `after`, may have changed; None: nothing by its session's settings."""
    if barrier.settings == SessionSettings() or not isinstance(barrier.statement, TableDdl):
        return None
    _, tokens = ddl.read(barrier.sql, barrier.db, escapes=barrier.escapes)
    return doubt_of(tokens, barrier.settings, before, after)


def require_unconverted(
    definitions: DefinitionProver, name: TableName, barrier: Barrier, doubt: DoubtedValues | None
) -> None:
    """Raise TableStoppedError where the source has rows that may be changed as `doubt` says."""
    if doubt is not None and definitions.converted(place_of(barrier), name, doubt):
        raise by_conversion(name, barrier, doubt.why)
