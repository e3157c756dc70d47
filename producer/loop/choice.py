"""Which tables of the source are captured just now."""

from __future__ import annotations

from collections.abc import Sequence

from producer.resume.startup import Started
from schemas.io.mysql_catalog import is_selected
from schemas.table.names import Names


class TableChoice:
    """By the configuration's patterns (`tables`), and by what became of a table."""

    def __init__(self, tables: Sequence[str], names: Names, started: Started) -> None:
        self._patterns = names.patterns(tables)
        self._names = names
        self._captured = started.captured
        self._left_out = started.errors
        self._late = started.late

    def selected(self, db: str, table: str) -> bool:
        """Whether the configuration names the table."""
        return is_selected(self._patterns, db, table)

    def captured(self, db: str, table: str) -> bool:
        """Whether rows of the table are published, as far as it is known before its first one."""
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
