"""Rights that the user of a target needs, and those it lacks: what `check` says before a run would fail for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: What apply does with the rows of a target table.
ROW_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

TablePlace = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """The rights that a pipeline needs in a target. `books`: bookkeeping table → rights on it; `tables`: what its routes write.

    `create`: rowlock makes the tables that are missing. `alter`: tables that it changes as the source's are (schema_changes), `drop`:
    those that go with the source's (on_drop).
    """

    books_schema: str
    books: Mapping[str, tuple[str, ...]]
    tables: tuple[TablePlace, ...]
    create: bool
    alter: frozenset[TablePlace] = frozenset()
    drop: frozenset[TablePlace] = frozenset()

    def list_tables_in_schema(self, schema: str) -> list[str]:
        """Return the names of the target tables in `schema`, sorted."""
        return sorted({table for place, table in self.tables if place == schema})

    def list_schemas(self) -> list[str]:
        return sorted({self.books_schema, *(schema for schema, _ in self.tables)})


@dataclass(frozen=True, slots=True)
class MissingRight:
    """`message`: what the user may not do; `statement`: what gives it the right.

    `hides`: tables whose definition cannot be read without it, so that nothing else can be judged about them.
    """

    message: str
    statement: str
    hides: frozenset[TablePlace] = frozenset()
