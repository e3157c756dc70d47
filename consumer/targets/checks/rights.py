"""The rights that the user of a target needs, and those it lacks, reported by `check` before a run
would fail for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The rights that apply needs on a target table.
ROW_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

TablePlace = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """The rights that a pipeline needs in a target."""

    books_schema: str
    books: Mapping[str, tuple[str, ...]]
    """Bookkeeping table → rights on it."""
    tables: tuple[TablePlace, ...]
    """Tables that its routes write."""
    create: bool
    """Whether rowlock creates missing tables."""
    alter: frozenset[TablePlace] = frozenset()
    """Tables that rowlock alters like the source's (schema_changes)."""
    drop: frozenset[TablePlace] = frozenset()
    """Tables that rowlock drops together with the source's (on_drop)."""

    def list_tables_in_schema(self, schema: str) -> list[str]:
        """Return the names of the target tables in `schema`, sorted."""
        return sorted({table for place, table in self.tables if place == schema})

    def list_schemas(self) -> list[str]:
        return sorted({self.books_schema, *(schema for schema, _ in self.tables)})


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that the user lacks."""

    message: str
    """What the user may not do."""
    statement: str
    """The statement that grants it."""
    hides: frozenset[TablePlace] = frozenset()
    """Tables with a definition that cannot be read without it, so that nothing else can be checked
    about them.
    """
