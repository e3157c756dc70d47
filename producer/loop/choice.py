"""The choice of tables: those of the source that are captured now."""

from __future__ import annotations

from collections.abc import Sequence

from producer.resume.started import Started
from producer.tables import TableName
from schemas.io.mysql_catalog import is_selected
from schemas.table.names import Names
from schemas.table.online_ddl import NO_TOOLS, ToolNames, of_tools


class TableChoice:
    """By the configuration's patterns (`tables`), by what became of a table, and not those of `tools` for a table that is known."""

    def __init__(
        self, tables: Sequence[str], names: Names, started: Started, tools: ToolNames = NO_TOOLS
    ) -> None:
        self._tools = tools
        self._patterns = names.patterns(tables)
        self._names = names
        self._captured = started.captured
        self._left_out = started.errors
        self._late = started.late

    def selected(self, db: str, table: str) -> bool:
        """Tell whether the configuration names the table, and it is no tool's."""
        return is_selected(self._patterns, db, table) and not self._of_tool((db, table))

    def _of_tool(self, name: TableName) -> bool:
        known = (self._captured.known, self._left_out, self._late)
        return any(of_tools([name], self._tools, self._patterns, tables) for tables in known)

    def captured(self, db: str, table: str) -> bool:
        """Tell whether rows of the table are published, as far as it is known before its first one."""
        name = self._names.same((db, table))
        state = self._captured.tables.get(name)
        if state is not None:
            return state.ignored is None
        return (
            name not in self._left_out
            and name not in self._captured.stopped
            and name not in self._late
            and self.selected(*name)
        )
