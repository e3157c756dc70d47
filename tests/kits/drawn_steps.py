"""Steps of histories of a few tables of one source, drawn by Hypothesis: rows, columns, partitions, and
tables that come, go and change places.

Tables are drawn as numbers, taken modulo what is there:
tests/kits/drawn_tables.py makes statements of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


@dataclass(frozen=True)
class Rows:
    table: int
    luck: int


@dataclass(frozen=True)
class Alter:
    table: int
    luck: int


@dataclass(frozen=True)
class Drop:
    table: int


@dataclass(frozen=True)
class Create:
    """Of a table that is not there; `or replace` (MariaDB): of one that is."""

    table: int
    how: Literal["", "like", "select", "or replace"]
    of: int


@dataclass(frozen=True)
class Rename:
    table: int
    to: int
    by_alter: bool


@dataclass(frozen=True)
class Instead:
    """One statement renames a table to a name that is free, and another one to its name."""

    table: int
    other: int
    to: int


@dataclass(frozen=True)
class Swap:
    table: int
    other: int


@dataclass(frozen=True)
class Partitions:
    table: int
    what: Literal["add", "drop", "truncate", "merge", "remove"]
    which: int


@dataclass(frozen=True)
class Exchange:
    """A partition changes places with a table that is made for it."""

    table: int
    other: int
    which: int
    key: int


Step = Rows | Alter | Drop | Create | Rename | Instead | Swap | Partitions | Exchange


@dataclass(frozen=True)
class Stretch:
    """`behind`: while capture is away; `live`: while it runs; `applied`: whether units apply in the middle;
    `killed`: how capture ends."""

    behind: tuple[Step, ...]
    live: tuple[Step, ...]
    applied: bool
    killed: bool


Drawn = tuple[Stretch, ...]

_AT = st.integers(0, 11)
_LUCK = st.integers(0, 2**32 - 1)
_STEPS: dict[type[Step], tuple[int, st.SearchStrategy[Step]]] = {
    Rows: (24, st.builds(Rows, _AT, _LUCK)),
    Alter: (5, st.builds(Alter, _AT, _LUCK)),
    Drop: (1, st.builds(Drop, _AT)),
    Create: (2, st.builds(Create, _AT, st.sampled_from(("", "like", "select", "or replace")), _AT)),
    Rename: (1, st.builds(Rename, _AT, _AT, st.booleans())),
    Instead: (1, st.builds(Instead, _AT, _AT, _AT)),
    Swap: (1, st.builds(Swap, _AT, _AT)),
    Partitions: (2, st.builds(Partitions, _AT,
     st.sampled_from(("add", "drop", "truncate", "merge", "remove")), _AT)),
    Exchange: (1, st.builds(Exchange, _AT, _AT, _AT, st.integers(1, 9))),
}  # fmt: skip
"""Step → how often of all, and its parts."""
_KINDS = tuple(kind for kind, (often, _) in _STEPS.items() for _ in range(often))


@st.composite
def steps(draw: st.DrawFn, least: int, most: int) -> tuple[Step, ...]:
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=least, max_size=most))
    return tuple(draw(_STEPS[kind][1]) for kind in kinds)


def histories() -> st.SearchStrategy[Drawn]:
    stretch = st.builds(Stretch, steps(0, 6), steps(16, 30), st.booleans(), st.booleans())
    return st.lists(stretch, min_size=3, max_size=3).map(tuple)


def drawn(seed: int, count: int) -> list[Drawn]:
    """Return histories, the same ones for the same seed: one system plays them all at once."""
    found: list[Drawn] = []

    @hypothesis.seed(seed)
    @settings(max_examples=count + 1, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))  # fmt: skip  # noqa: E501
    @given(histories())
    def collect(history: Drawn) -> None:
        found.append(history)

    collect()
    return found[1 : count + 1]  # Hypothesis begins with the least of all
