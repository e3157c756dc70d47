"""Changes of a target table, in neutral terms: what a dialect renders as its own statements. Values only.

They are made by comparing the table as it *is* with the table as it shall be, so carrying them out again after a crash finds
nothing left to do. Columns and indexes are those of the real table (schemas.table.model).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.table.model import Column, Table, UniqueIndex


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Rows that are there get `fill`: None is NULL, or what the column's default is; a wire value is given to them."""

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
    """`now` becomes `wanted`, under the same name: type, collation, whether NULL is taken. `lossless`: every value of the old type is one
    of the new; else rows are rewritten by a copy anyway, and the statement may convert as it likes, but not fail for their values."""

    now: Column
    wanted: Column
    lossless: bool


@dataclass(frozen=True, slots=True)
class AddUnique:
    index: UniqueIndex


@dataclass(frozen=True, slots=True)
class DropUnique:
    index: UniqueIndex


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """The primary key becomes `wanted`."""

    now: UniqueIndex
    wanted: UniqueIndex


Alteration = AddColumn | DropColumn | RenameColumn | ChangeColumn | AddUnique | DropUnique | ChangeKey


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`table`: as it is now. The steps, in order; a dialect may put them into one statement."""

    table: Table
    steps: Sequence[Alteration]


@dataclass(frozen=True, slots=True)
class DropTable:
    table: Table
