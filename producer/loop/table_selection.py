"""Selects the tables of the source that are captured now."""

from __future__ import annotations

from collections.abc import Sequence

from producer.start.started import StartedCapture
from producer.tables import TableName
from schemas.io.mysql_catalog import is_selected
from schemas.table.names import NameRules
from schemas.table.online_ddl import NO_TOOLS, ToolNames, find_tool_tables


class TableChoice:
    """Selects tables by the configuration's patterns (`tables`) and by their state.

    Tables of `tools` for a known table are not selected.
    """

    def __init__(
        self, tables: Sequence[str], names: NameRules, started: StartedCapture, tools: ToolNames = NO_TOOLS
    ) -> None:
        self._tools = tools
        self._patterns = names.fold_patterns(tables)
        self._names = names
        self._captured = started.captured
        self._left_out = started.errors
        self._late = started.late

    def is_selected(self, db: str, table: str) -> bool:
        """Return whether the configuration selects the table, and it is not a tool's table."""
        return is_selected(self._patterns, db, table) and not self._is_tool_table((db, table))

    def _is_tool_table(self, name: TableName) -> bool:
        known = (self._captured.known, self._left_out, self._late)
        return any(find_tool_tables([name], self._tools, self._patterns, tables) for tables in known)

    def is_captured(self, db: str, table: str) -> bool:
        """Return whether rows of the table are published, as far as this is known before its first row."""
        name = self._names.normalize_table((db, table))
        state = self._captured.tables.get(name)
        if state is not None:
            return state.ignored is None
        return (
            name not in self._left_out
            and name not in self._captured.stopped
            and name not in self._late
            and self.is_selected(*name)
        )
