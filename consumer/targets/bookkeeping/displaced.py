"""Statements on `rowlock_displaced`, which contains displaced rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.ordering.model import ApplyUnit
from consumer.targets.bookkeeping.tables import OF_UNIT, BookkeepingTables
from consumer.targets.shared.displaced_rows import MARKED
from consumer.targets.sql import Fragment, render_placeholders

_COLUMNS = ("pipeline", "topic", "table_name", "row_data", "displaced_by")


@dataclass(frozen=True, slots=True)
class DisplacedStatements:
    """Statements on displaced rows. `table`: the table's quoted name, for a dialect's own statements."""

    tables: BookkeepingTables

    @property
    def table(self) -> str:
        return self.tables.qualify_name("rowlock_displaced")

    @property
    def place(self) -> str:
        """The table with the columns that an INSERT fills."""
        return f"{self.table} ({', '.join(_COLUMNS)})"

    def build_insert(self, rows: int) -> str:
        return self.tables.build_insert("rowlock_displaced", _COLUMNS, rows)

    def build_select(self, unit: ApplyUnit) -> Fragment:
        """Select (id, table, displaced_by) of the rows that are not superseded."""
        text = f"SELECT id, table_name, displaced_by FROM {self.tables.qualify_name('rowlock_displaced')} WHERE {OF_UNIT} AND displaced_by NOT LIKE %s ORDER BY id"
        return text, [unit.pipeline, unit.topic, MARKED]

    def build_count(self, pipeline: str, *, superseded: bool = False) -> Fragment:
        """Count the rows of a pipeline by topic: the table has only its key's index, and is mostly empty."""
        like = "LIKE" if superseded else "NOT LIKE"
        text = f"SELECT topic, COUNT(*) FROM {self.tables.qualify_name('rowlock_displaced')} WHERE pipeline = %s AND displaced_by {like} %s GROUP BY topic"
        return text, [pipeline, MARKED]

    def build_mark(self, by: str, ids: Sequence[int]) -> Fragment:
        """Update `displaced_by` of rows by their ids."""
        text = f"UPDATE {self.tables.qualify_name('rowlock_displaced')} SET displaced_by = %s WHERE id IN {render_placeholders(len(ids))}"
        return text, [by, *ids]
