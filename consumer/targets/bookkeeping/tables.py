"""The bookkeeping tables: their columns, keys and rights, their CREATE statements, and their names in
statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.targets.sql import Syntax, qualify_table

#: column → neutral type; the first `keys` columns are the primary key.
_TABLES: dict[str, tuple[int, dict[str, str]]] = {
    "rowlock_progress": (
        3,
        {
            "pipeline": "name", "topic": "topic", "lane": "int", "epoch": "big", "attempt": "big",
            "topic_id": "name", "kafka_offset": "big", "position": "name", "gen": "big", "layout": "text",
            "commit_ts_ms": "big", "updated_at": "now",
        },
    ),
    "rowlock_unit": (
        2,
        {"pipeline": "name", "topic": "topic", "definition": "text?", "ddl": "text?", "stopped": "text?",
         "updated_at": "now"},
    ),
    "rowlock_quarantine": (
        4,
        {"pipeline": "name", "topic": "topic", "kafka_offset": "big", "part": "int", "table_name": "text",
         "row_key": "text", "folded_key": "text", "event": "text", "error": "text", "commit_ts_ms": "big",
         "held_at": "now"},
    ),
    "rowlock_quarantine_closed": (
        1,
        {"id": "id", "pipeline": "name", "topic": "topic", "kafka_offset": "big", "part": "int", "table_name": "text",
         "row_key": "text", "folded_key": "text", "event": "text", "error": "text", "commit_ts_ms": "big",
         "held_at": "now", "closed": "text", "closed_at": "now"},
    ),
    "rowlock_displaced": (
        1,
        {"id": "id", "pipeline": "name", "topic": "topic", "table_name": "text", "row_data": "text",
         "displaced_by": "text", "displaced_at": "now"},
    ),
}  # fmt: skip

#: The rights that sessions need on the tables, in addition to creating them.
_RIGHTS = {
    "rowlock_progress": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "rowlock_unit": ("SELECT", "INSERT", "UPDATE"),
    "rowlock_quarantine": ("SELECT", "INSERT", "DELETE"),
    "rowlock_quarantine_closed": ("INSERT",),
    "rowlock_displaced": ("SELECT", "INSERT", "UPDATE"),
}

#: The condition for the rows of an apply unit.
OF_UNIT = "pipeline = %s AND topic = %s"


@dataclass(frozen=True, slots=True)
class BookkeepingTables:
    """The bookkeeping tables in `schema`."""

    schema: str
    syntax: Syntax

    def list_names(self) -> tuple[str, ...]:
        return tuple(_TABLES)

    def list_rights(self) -> dict[str, tuple[str, ...]]:
        """Return the rights that the user needs on each table once it exists."""
        return dict(_RIGHTS)

    def qualify_name(self, name: str) -> str:
        """Return a table's quoted, qualified name."""
        return qualify_table(self.syntax.quote, self.schema, name)

    def build_create(self, name: str) -> str:
        keys, columns = _TABLES[name]
        body = [f"{column} {self.syntax.types[kind]}" for column, kind in columns.items()]
        body.append(f"PRIMARY KEY ({', '.join(list(columns)[:keys])})")
        return self.syntax.create(self.qualify_name(name), ", ".join(body))

    def build_insert(self, name: str, columns: Sequence[str], rows: int) -> str:
        return self.syntax.insert(self.qualify_name(name), columns, rows)
