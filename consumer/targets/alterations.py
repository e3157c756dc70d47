"""Changes of a target table in neutral terms, which a dialect renders as its own statements. Values
only.

They result from a comparison of the table as it *is* with the desired table, so nothing is left to do
when they are carried out again after a crash. Columns and indexes are those of the real table
(schemas.table.model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from consumer.errors import TableChangedError
from schemas.table.model import Column, Table, UniqueIndex


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column. Existing rows get `fill`, a wire value; None is NULL, or the column's default."""

    column: Column
    fill: object = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A change of a column's type, collation or nullability, under the same name.

    `lossless`: every value of the old type is a value of the new one. Otherwise a copy rewrites the
    rows anyway, and the statement may convert values in any way, but must not fail for them.
    """

    now: Column
    desired: Column
    lossless: bool


@dataclass(frozen=True, slots=True)
class AddUnique:
    index: UniqueIndex


@dataclass(frozen=True, slots=True)
class DropUnique:
    index: UniqueIndex


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """A change of the primary key to `desired`."""

    now: UniqueIndex
    desired: UniqueIndex


Alteration = AddColumn | DropColumn | RenameColumn | ChangeColumn | AddUnique | DropUnique | ChangeKey


@dataclass(frozen=True, slots=True)
class AlterTable:
    """A change of the present `table` by `steps`, in their order.

    A dialect may put them into one statement.
    """

    table: Table
    steps: Sequence[Alteration]


@dataclass(frozen=True, slots=True)
class DropTable:
    table: Table


def list_new_names(change: AlterTable) -> list[str]:
    """Return the names that columns get by a change."""
    added = [step.column.name for step in change.steps if isinstance(step, AddColumn)]
    return added + [step.new for step in change.steps if isinstance(step, RenameColumn)]


def apply_alterations(change: AlterTable) -> Table:
    """Return the table after all steps. Consecutive renames are one step, so names may be swapped."""
    table = change.table
    for renames, steps in group_steps(change):
        table = table.with_renamed_columns(renames)
        for step in steps:
            table = _STEPS[type(step)](table, step)
    return table


def group_steps(change: AlterTable) -> Iterator[tuple[dict[str, str], list[Alteration]]]:
    """Yield groups of consecutive steps: (renames as old name → new name, no steps), or (no renames,
    other steps).
    """
    for renames, group in groupby(change.steps, lambda step: isinstance(step, RenameColumn)):
        steps = list(group)
        if renames:
            yield {step.old: step.new for step in steps if isinstance(step, RenameColumn)}, []
        else:
            yield {}, steps


def require_same_columns(table: Table, columns: Iterable[str]) -> None:
    """Raise TableChangedError unless the table still has the columns for which its change was planned."""
    if (now := sorted(columns)) != sorted(table.column_names):
        raise TableChangedError(
            f"target table {table.db}.{table.name} was meanwhile changed by another session (its columns "
            f"are {', '.join(now) or 'missing'}): nothing was done, the change is planned again"
        )


def _add_column(table: Table, step: AddColumn) -> Table:
    return replace(table, columns=(*table.columns, step.column))


def _drop_column(table: Table, step: DropColumn) -> Table:
    """Return the table without a column, and without the indexes that contain it, which must not be
    relied on any more.
    """
    columns = tuple(column for column in table.columns if column.name != step.name)
    return replace(
        table,
        columns=columns,
        unique=tuple(index for index in table.unique if step.name not in index.columns),
    )


def _change_column(table: Table, step: ChangeColumn) -> Table:
    columns = (step.desired if column.name == step.desired.name else column for column in table.columns)
    return replace(table, columns=tuple(columns))


def _with_unique(table: Table, step: AddUnique) -> Table:
    return replace(table, unique=(*table.unique, step.index))


def _drop_unique(table: Table, step: DropUnique) -> Table:
    """Return the table without an index of this name and these columns; if no name matches, without
    those of its columns.

    The source's name of an index may differ.
    """
    same = [index for index in table.unique if index.columns == step.index.columns]
    dropped = [index for index in same if index.name == step.index.name] or same
    return replace(table, unique=tuple(index for index in table.unique if index not in dropped))


def _with_key(table: Table, step: ChangeKey) -> Table:
    return replace(table, key=step.desired)


_STEPS: dict[type[Alteration], Callable[[Table, Any], Table]] = {
    AddColumn: _add_column,
    DropColumn: _drop_column,
    ChangeColumn: _change_column,
    AddUnique: _with_unique,
    DropUnique: _drop_unique,
    ChangeKey: _with_key,
}
