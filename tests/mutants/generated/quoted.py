"""Compares the quoted mutants with the generated ones.

`python -m tests.mutants.generated --quoted TSV` judges generated mutants of the statements that quoted ones
change, and writes a line for each quoted one: its relation to the generated ones, its change, and their keys
with verdicts. Relations:

- same: a generated change makes the same program, and is killed.
- statement: generated changes of the same statement are killed.
- survived: all generated changes of that statement survive, or no unit test calls them.
- none: no operator changes that statement.
- stale: the product no longer has its text.
- outside: the file is not one of the packages with generated mutants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from tests.mutants.generated import PACKAGES, ROOT
from tests.mutants.generated.places import Key, Place
from tests.mutants.generated.sample import Judged
from tests.mutants.mutant import Mutant

MOST = 4
"""So many places of a statement are judged, until one is killed."""


@dataclass(frozen=True)
class Relation:
    """A quoted mutant and the generated places that are like it."""

    mutant: Mutant
    same: tuple[Place, ...]
    statement: tuple[Place, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """What has to be judged."""
        return self.same or self.statement[:MOST]

    def find_next(self, verdicts: dict[Key, Judged]) -> Place | None:
        """Return the next place to judge; None if one is killed, or none is left."""
        judged = [verdicts.get(place.key) for place in self.places]
        if any(each and each.verdict in ("killed", "error") for each in judged):
            return None
        return next((place for place in self.places if place.key not in verdicts), None)

    def format_line(self, verdicts: dict[Key, Judged]) -> str:
        """Return the table's line."""
        judged = [(place.key, verdicts[place.key].verdict) for place in self.places if place.key in verdicts]
        shown = "; ".join(f"{key} {verdict}" for key, verdict in judged)
        return "\t".join((self._name_kind({verdict for _, verdict in judged}), self.mutant.name, shown))

    def _name_kind(self, verdicts: set[str]) -> str:
        if self.mutant.old not in _read(self.mutant.file):
            return "stale"
        if not self.mutant.file.startswith(PACKAGES):
            return "outside"
        if self.same:
            return "same" if verdicts & {"killed", "error"} else "survived"
        if not self.statement:
            return "none"
        return "statement" if verdicts & {"killed", "error"} else "survived"


def relate(mutants: Iterable[Mutant], places: Iterable[Place]) -> Iterator[Relation]:
    """Yield what each quoted mutant is to the generated ones."""
    by_file: dict[str, list[Place]] = {}
    for place in places:
        by_file.setdefault(place.key.file, []).append(place)
    for mutant in mutants:
        source = _read(mutant.file)
        if mutant.old not in source:
            yield Relation(mutant, (), ())
            continue
        start, end = _find_change(source, mutant)
        first, last = _find_statement(source, start, end)
        near = [
            each
            for each in by_file.get(mutant.file, ())
            if first <= each.change.start and each.change.end <= last
        ]
        wanted = _dump(source.replace(mutant.old, mutant.new)) if near else ""
        same = tuple(each for each in near if _dump(each.mutate(source)) == wanted)
        yield Relation(mutant, same, tuple(near))


@cache
def _read(file: str) -> str:
    return (ROOT / file).read_text()


def _dump(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return source


def _find_change(source: str, mutant: Mutant) -> tuple[int, int]:
    """Return the first and last offset of the mutant's difference; an insertion has one character."""
    begin = source.index(mutant.old)
    before = _count_equal(mutant.old, mutant.new)
    behind = _count_equal(mutant.old[before:][::-1], mutant.new[before:][::-1])
    end = len(mutant.old) - behind
    text = mutant.old[before:end]
    lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    start = begin + before + (lead if text.strip() else 0)
    return start, max(start + 1, begin + end - (trail if text.strip() else 0))


def _count_equal(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _find_statement(source: str, start: int, end: int) -> tuple[int, int]:
    """Return the offsets of the innermost statement around the change, or of its head."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    best = (0, len(source))
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        first, last = offsets[node.lineno - 1], offsets[node.end_lineno or node.lineno]
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and end <= offsets[body[0].lineno - 1]:
            last = offsets[body[0].lineno - 1]
        if first <= start and end <= last and last - first < best[1] - best[0]:
            best = (first, last)
    return best


def write_table(path: Path, relations: Iterable[Relation], verdicts: dict[Key, Judged]) -> None:
    """Write the table."""
    lines = [
        "relation\tquoted mutant\tgenerated mutants",
        *(each.format_line(verdicts) for each in relations),
    ]
    path.write_text("\n".join(lines) + "\n")
