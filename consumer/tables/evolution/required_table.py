"""The target table that a unit requires: by its new definition, and together with the other units that
write it.

Without I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.errors import UnitStoppedError
from consumer.tables.evolution.widening import join_types
from consumer.tables.router import SchemaChangePolicy
from schemas.table.model import Column, Table, UniqueIndex
from schemas.wire.event import ColumnChanges


@dataclass(frozen=True, slots=True)
class TargetGoal:
    """The target table that a unit's new definition requires."""

    desired: Table
    """The new definition in target terms."""
    before: Table
    """The active definition in target terms."""
    policy: SchemaChangePolicy
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    others: Sequence[Table] = ()
    """The active definitions of the other units that write the table."""
    rewrite: bool = False
    """Whether every row follows again."""
    statements_done: bool = False
    """Whether the steps were carried out; steps that can be done only once are not planned again."""
    with_unique_indexes: bool = True
    """If False, the target refused unique indexes. New ones are left out, and those of a column that
    becomes a long text or bytes are dropped: MySQL has no unique index over such a column (error 1170)."""

    @property
    def unwritten_names(self) -> list[str]:
        """Columns that the unit wrote and no longer writes, by their present names."""
        there = set(self.desired.column_names)
        return [name for name in map(self.get_new_name, self.before.column_names) if name not in there]

    @property
    def readded_names(self) -> set[str]:
        """Columns that the source has dropped and added under one name."""
        return set(self.columns.dropped).intersection(self.columns.added)

    @property
    def replaced_names(self) -> set[str]:
        """Those of them that the target still has to drop and add.

        Their indexes are dropped with them and added again.
        """
        return set() if self.statements_done or self.rewrite else self.readded_names

    def get_new_name(self, name: str) -> str:
        return self.columns.renamed.get(name, name)

    def is_shared(self, name: str) -> bool:
        return any(name in other.column_names for other in self.others)


def join_tables(goal: TargetGoal) -> Table:
    """Return the table that can hold the rows of all units. A column that one unit lacks may be NULL."""
    tables = [goal.desired, *goal.others]
    if len(tables) == 1:
        return goal.desired
    for other in goal.others:
        if set(other.key.columns) != set(goal.desired.key.columns):
            raise UnitStoppedError(
                f"{goal.desired.db}.{goal.desired.name}: this source's key is "
                f"({', '.join(goal.desired.key.columns)}), but another source that writes the table has "
                f"({', '.join(other.key.columns)})",
                "change the other sources alike, or route this one to a table of its own",
            )
    columns = tuple(_join_columns(column, tables) for column in goal.desired.columns)
    unique = tuple(
        index
        for index in goal.desired.unique
        if all(any(is_same_index(index, theirs) for theirs in other.unique) for other in goal.others)
    )
    return replace(goal.desired, columns=columns, unique=unique)


def _join_columns(column: Column, tables: Sequence[Table]) -> Column:
    type_, nullable = column.type, column.nullable
    for table in tables[1:]:
        if column.name not in table.column_names:
            nullable = True
            continue
        other = table.get_column(column.name)
        wide = join_types(type_, other.type)
        if wide is None:
            raise UnitStoppedError(
                f"{table.db}.{table.name}: column {column.name} is {column.type.kind} here and "
                f"{other.type.kind} for another source that writes this table",
                "change the other sources alike, or route this one to a table of its own",
            )
        type_, nullable = wide, nullable or other.nullable
    return replace(column, type=type_, nullable=nullable)


def is_same_index(desired: UniqueIndex, real: UniqueIndex) -> bool:
    """Return whether a real index serves as the required one. It may compare more of a value, never less."""
    if set(desired.columns) != set(real.columns):
        return False
    prefixes = {part.column: part.prefix for part in desired.parts}
    return all(
        part.prefix is None or (prefixes[part.column] or part.prefix + 1) <= part.prefix
        for part in real.parts
    )
