"""A cache of the statements that an applier derived from a TargetTable, kept while the table is in use.

An active definition is one TargetTable object; another definition of the same table is another object.
So the object's identity is the key (hashing a whole definition at each transaction would cost more than
the look-up saves).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from consumer.ordering.model import TargetTable

P = TypeVar("P")
#: Tables kept per connection; the least recently used one is evicted first.
MAX_CACHED_TABLES = 256


class TableCache(Generic[P]):
    """A cache of at most MAX_CACHED_TABLES prepared tables; it calls its second argument with each
    evicted one.
    """

    def __init__(
        self, make: Callable[[TargetTable], P], on_removed: Callable[[P], None] = lambda _: None
    ) -> None:
        self._make = make
        self._on_removed = on_removed
        self._kept: OrderedDict[int, tuple[TargetTable, P]] = OrderedDict()

    def get(self, table: TargetTable) -> P:
        found = self._kept.get(id(table))
        if found is None:  # the kept reference prevents the reuse of the table's identity
            found = self._kept[id(table)] = (table, self._make(table))
            if len(self._kept) > MAX_CACHED_TABLES:
                self._on_removed(self._kept.popitem(last=False)[1][1])
        else:
            self._kept.move_to_end(id(table))
        return found[1]

    def forget_table(self, schema: str, name: str) -> None:
        """Evict what was made for a table, for every definition of it."""
        for number, (table, made) in list(self._kept.items()):
            if (table.schema, table.name) == (schema, name):
                del self._kept[number]
                self._on_removed(made)
