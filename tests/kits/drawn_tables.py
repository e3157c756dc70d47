"""A few tables of one source and what drawn steps (tests/kits/drawn_steps.py) make of them, as statements.

A step for which nothing is there does nothing, nor does a statement that the server refuses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.kits.changed_tables import OneActionHistory
from tests.kits.drawn_steps import (
    Alter,
    Create,
    Drop,
    Exchange,
    Instead,
    Partitions,
    Rename,
    Rows,
    Step,
    Swap,
)

FORM = "(id INT PRIMARY KEY, v VARCHAR(10), n INT, version INT NOT NULL) CHARACTER SET utf8mb4"
PARTS = {"p0": 4, "p1": 7, "p2": 100}
"""Partition → keys below which are in it, of a table in partitions at first."""
Said = tuple[str, Callable[[], None]]
"""(statement, what to do once the server has taken it)."""


@dataclass
class Shape(OneActionHistory):
    """A table. `parts`: its partitions by their order; none: it has none."""

    parts: dict[str, int] = field(default_factory=dict)

    def like(self, name: str, *, whole: bool = True) -> Shape:
        """Return a table of another name with the same columns; `whole`: also with its indexes and
        partitions."""
        indexes, parts = (list(self.indexes), dict(self.parts)) if whole else ([], {})
        return replace(self, name=name, columns=dict(self.columns), indexes=indexes, parts=parts)


class Tables:
    """Tables of one history. `captured`: names that capture takes; the last name is of one that it does
    not."""

    def __init__(self, number: int) -> None:
        self.captured = tuple(f"h{number}{letter}" for letter in "abpz")
        self.names = (*self.captured, f"x{number}")
        self.there = {name: Shape(name, random.Random(0)) for name in self.names if not name.endswith("z")}
        self.there[self.names[2]].parts = dict(PARTS)
        self._version = self._parts = 0

    def create(self) -> Iterator[str]:
        for name, shape in self.there.items():
            yield f"CREATE TABLE {name} {FORM}{_partitioned(shape)}"
            yield f"INSERT INTO {name} VALUES (1, 'one', 1, 0), (5, 'five', 5, 0), (8, NULL, NULL, 0)"

    def reported(self, step: Step) -> Iterator[Said]:
        """Yield the statements of a step; each is run before the next one is made."""
        if isinstance(step, Create):
            yield from self._created(step)
            return
        name = _of(sorted(self.there), step.table)
        if name is None:
            return
        shape = self.there[name]
        match step:
            case Rows(luck=luck) | Alter(luck=luck):
                yield self._changed(shape, luck, alter=isinstance(step, Alter))
            case Drop():
                yield f"DROP TABLE {name}", lambda: self._gone(name)
            case Partitions() | Exchange():
                yield from self._partitions(step)
            case _:
                yield from self._renamed(name, step)

    def _changed(self, shape: Shape, luck: int, *, alter: bool) -> Said:
        shape.rng, shape.version = random.Random(luck), self._version
        text = shape.statement(1.0 if alter else 0.0)
        self._version = shape.version
        return text, shape.done

    def _gone(self, name: str) -> None:
        del self.there[name]

    def _free(self, which: int) -> str | None:
        return _of([name for name in self.names if name not in self.there], which)

    def _created(self, step: Create) -> Iterator[Said]:
        of = _of(sorted(self.there), step.of)
        anew = step.how == "or replace"
        name = _of(sorted(self.there), step.table) if anew else self._free(step.table)
        if name is None or of is None or name == of:
            return
        text, shape = f"CREATE TABLE {name} {FORM}", Shape(name, random.Random(0))
        if step.how in ("like", "or replace"):
            text, shape = (
                f"CREATE {'OR REPLACE ' if anew else ''}TABLE {name} LIKE {of}",
                self.there[of].like(name),
            )
        elif step.how == "select":
            text = f"CREATE TABLE {name} (PRIMARY KEY (id)) SELECT * FROM {of}"
            shape = self.there[of].like(name, whole=False)
        yield text, lambda: self.there.update({name: shape})

    def _renamed(self, name: str, step: Step) -> Iterator[Said]:
        free = self._free(step.to if isinstance(step, Rename | Instead) else 0)
        other = _of(sorted(set(self.there) - {name}), step.other if isinstance(step, Instead | Swap) else 0)
        match step:
            case Rename() if free is not None:
                text = (
                    f"ALTER TABLE {name} RENAME TO {free}"
                    if step.by_alter
                    else f"RENAME TABLE {name} TO {free}"
                )
                yield text, lambda: self._moved({name: free})
            case Instead() if free is not None and other is not None:
                yield (
                    f"RENAME TABLE {name} TO {free}, {other} TO {name}",
                    lambda: self._moved({name: free, other: name}),
                )
            case Swap() if other is not None:
                text = f"RENAME TABLE {name} TO tmp, {other} TO {name}, tmp TO {other}"
                yield text, lambda: self._moved({name: other, other: name})
            case _:
                return

    def _moved(self, names: dict[str, str]) -> None:
        moved = {new: self.there.pop(old) for old, new in names.items()}
        for name, shape in moved.items():
            shape.name = name
        self.there |= moved

    def _partitions(self, step: Partitions | Exchange) -> Iterator[Said]:
        name = _of(sorted(each for each, shape in self.there.items() if shape.parts), step.table)
        if name is None:
            return
        shape = self.there[name]
        part = _of(list(shape.parts), step.which) or ""
        if isinstance(step, Exchange):
            yield from self._exchanged(shape, part, step)
            return
        self._parts += 1
        new, alter = f"n{self._parts}", f"ALTER TABLE {name}"
        last = max(shape.parts.values())
        match step.what:
            case "add":
                added = f"ADD PARTITION (PARTITION {new} VALUES LESS THAN ({last + 10}))"
                yield f"{alter} {added}", lambda: shape.parts.update({new: last + 10})
            case "drop" if len(shape.parts) > 1:
                yield f"{alter} DROP PARTITION {part}", lambda: (shape.parts.pop(part), None)[1]
            case "truncate":
                yield f"{alter} TRUNCATE PARTITION {part}", lambda: None
            case "remove":
                yield f"{alter} REMOVE PARTITIONING", shape.parts.clear
            case "merge" if len(shape.parts) > 1:
                first, second, *more = shape.parts
                bound = shape.parts[second]
                text = (
                    f"REORGANIZE PARTITION {first}, {second} INTO (PARTITION {new} "
                    f"VALUES LESS THAN ({bound}))"
                )
                yield (
                    f"{alter} {text}",
                    lambda: _put(shape.parts, {new: bound} | {each: shape.parts[each] for each in more}),
                )
            case _:
                return

    def _exchanged(self, shape: Shape, part: str, step: Exchange) -> Iterator[Said]:
        other = _of(sorted(set(self.names) - {shape.name}), step.other)
        if other is None:
            return
        if other in self.there:
            yield f"DROP TABLE {other}", lambda: self._gone(other)
        yield f"CREATE TABLE {other} LIKE {shape.name}", lambda: self.there.update({other: shape.like(other)})
        if other not in self.there:
            return
        yield f"ALTER TABLE {other} REMOVE PARTITIONING", self.there[other].parts.clear
        self._version += 1
        yield f"INSERT INTO {other} (id, version) VALUES ({step.key}, {self._version})", lambda: None
        yield f"ALTER TABLE {shape.name} EXCHANGE PARTITION {part} WITH TABLE {other}", lambda: None


def _put(parts: dict[str, int], new: dict[str, int]) -> None:
    parts.clear()
    parts.update(new)


def _partitioned(shape: Shape) -> str:
    each = ", ".join(f"PARTITION {name} VALUES LESS THAN ({bound})" for name, bound in shape.parts.items())
    return f" PARTITION BY RANGE (id) ({each})" if each else ""


def _of(names: list[str], which: int) -> str | None:
    return names[which % len(names)] if names else None
