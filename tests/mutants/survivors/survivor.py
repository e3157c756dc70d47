"""What a fresh mutant that may survive is."""

from __future__ import annotations

from typing import NamedTuple


class Survivor(NamedTuple):
    """`old` of `file` becomes `new`, as `tests.mutants.fresh` draws it."""

    file: str
    old: str
    new: str
    why: str


class Limit(NamedTuple):
    """A freely chosen number that is the whole value of `name` in `file`: one more is as good. `why`: what it
    bounds."""

    file: str
    name: str
    why: str
