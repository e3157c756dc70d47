"""The names that a route's `rename` gives to columns in a history of tests/sim/changing.py, and a person who
changes them."""

from __future__ import annotations

import random
from dataclasses import replace

from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition

Renamed = tuple[tuple[str, str], ...]
MAPS: tuple[Renamed, ...] = (
    (),
    (("a", "a_2"),),
    (("a", "x"), ("b", "y"), ("c", "z")),
    (("c", "a_2"), ("a_2", "w")),
    (("id", "key"), ("a", "x")),
    (("a", "u"), ("u", "a")),
    (("d", "x"), ("u", "u_2")),
)
"""Names that no column has at the source, that one may get there, of the key, and exchanged ones."""


class Renames:
    """The present names, and those that follow."""

    def __init__(self, seed: int, *, many: bool) -> None:
        """`many`: several sources write the table. The real servers refuse a key without values, which the
        modelled one takes, so no column of the key gets another name there."""
        self._rng = random.Random(seed)
        self._maps = [each for each in MAPS if not (many and "id" in dict(each))]
        self._now = self._rng.choice(self._maps)
        self._resolved = 0

    def is_changed(self) -> bool:
        """Draw whether a person changes the names now; if so, draw the next ones."""
        changed = self._rng.random() < 0.4
        if changed:
            self._now = self._rng.choice(self._maps)
        return changed

    def build_routes(self, routes: tuple[TableRoute, ...]) -> tuple[TableRoute, ...]:
        self._routes = tuple(replace(route, renames=self._now) for route in routes)
        return self._routes

    def resolve(self) -> tuple[TableRoute, ...]:
        """Give each renamed column a name that no other column ever has."""
        self._resolved += 1
        self._now = tuple((name, f"{name}_new{self._resolved}") for name, _ in self._now)
        return self.build_routes(self._routes)

    def find_wrong(self, stored: StoredDefinition) -> str:
        """Return which column is not written to the name that the route gives it; "": none."""
        now = dict(self._now)
        for name in stored.table.column_names:
            if stored.get_target_name(name) != now.get(name, name):
                return f"{name} is written to {stored.get_target_name(name)}, the route has {now.get(name)}"
        return ""
