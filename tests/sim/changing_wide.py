"""Statements of several actions, with names that columns had once, and with types of other values: the wider
half of what sources of tests/sim/changing.py do to their tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from msgspec.structs import replace

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, Value
from schemas.wire.event import ColumnChanges

TEXT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
NAMES = ("a", "b", "c", "d", "a_2", "b_2", "u_2")


@dataclass
class Wide:
    """What a statement does, action by action; each is of other columns than those before it. `given`:
    columns that it makes or defines anew."""

    table: Table
    rng: random.Random
    many: bool
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    given: dict[str, Column] = field(default_factory=dict)
    fills: dict[str, Value] = field(default_factory=dict)

    def some(self) -> str | None:
        """A column that nothing is said of yet."""
        reported = {*self.renamed, *self.dropped, *self.modified, "id", "u"}
        names = [each for each in self.table.column_names if each not in reported]
        return self.rng.choice(names) if names else None

    def free(self) -> str | None:
        """A name that no column has behind the statement."""
        missing = {*self.renamed, *self.dropped}
        there = {each for each in self.table.column_names if each not in missing} | {
            *self.renamed.values(),
            *self.added,
        }
        names = [each for each in NAMES if each not in there]
        return self.rng.choice(names) if names else None

    def type(self, name: str = "") -> ColumnType:
        """Several sources of one table have one kind for one name: no column holds two, and the last one
        would wait for a person."""
        if (name[:1] in "ac") if self.many else self.rng.random() < 0.5:
            return ColumnType(kind=Kind.VARCHAR, length=3, **TEXT)  # type: ignore[arg-type]
        return ColumnType(kind=Kind.INT, bits=16)

    def add(self) -> None:
        name = self.free()
        if name is not None:
            self.make(name)

    def make(self, name: str) -> None:
        type_, luck = self.type(name), self.rng.random()
        plain: Value = 7 if type_.kind is Kind.INT else "f"
        empty: Value = 0 if type_.kind is Kind.INT else ""
        value = None if luck < 0.5 else plain if luck < 0.8 else empty
        default = str(plain) if 0.5 <= luck < 0.8 else None
        self.given[name] = Column(name=name, type=type_, nullable=luck < 0.7, default=default)
        if luck >= 0.8:
            self.given[name] = replace(self.given[name], nullable=False)
        self.added.append(name)
        self.fills[name] = value

    def drop(self) -> None:
        name = self.some()
        if name is not None and len(self.table.columns) - len(self.dropped) > 3:
            self.dropped.append(name)

    def again(self) -> None:
        name = self.some()
        if name is not None and name not in self.renamed.values() and name not in self.added:
            self.dropped.append(name)
            self.make(name)

    def rename(self) -> None:
        name, new = self.some(), self.free()
        if name is not None and new is not None:
            self.renamed[name] = new

    def widen(self) -> None:
        name = self.some()
        if name is None:
            return
        column = self.table.get_column(name)
        type_ = column.type
        wide = (
            replace(type_, length=type_.length + 2)
            if type_.kind is Kind.VARCHAR
            else replace(type_, bits=min(64, type_.bits * 2))
        )
        self.modified.append(name)
        self.given[name] = replace(column, type=wide, nullable=column.nullable or self.rng.random() < 0.3)

    def retype(self) -> None:
        """Every row has another value then."""
        name = self.some()
        if name is None or self.many:
            return
        other = Kind.INT if self.table.get_column(name).type.kind is Kind.VARCHAR else Kind.VARCHAR
        type_ = self.type()
        while type_.kind is not other:
            type_ = self.type()
        self.modified.append(name)
        self.given[name] = Column(name=name, type=type_)
        self.fills[name] = 5 if other is Kind.INT else "r"

    def changes(self) -> ColumnChanges:
        return ColumnChanges(
            renamed=self.renamed,
            added=tuple(self.added),
            dropped=tuple(self.dropped),
            modified=tuple(self.modified),
        )


def wide(rng: random.Random, table: Table, *, many: bool) -> Wide:
    """Draw a statement; it may come out as none."""
    found = Wide(table, rng, many)
    actions = [found.add, found.add, found.drop, found.again, found.widen, found.retype, found.retype]
    actions += [] if many else [found.rename, found.rename]
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(actions)()
    return found


def unique_change(rng: random.Random, table: Table) -> tuple[UniqueIndex | None, str]:
    """Return the unique index that comes, and the name of the one that goes."""
    if table.unique:
        return None, table.unique[0].name
    return (UniqueIndex(name="u", parts=(IndexPart(column="u"),)) if "u" in table.column_names else None), ""
