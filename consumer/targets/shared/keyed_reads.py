"""Reads of rows by key and by page, common to all dialects apart from quoting and the encoding of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from consumer.errors import RefusedError
from consumer.ordering.model import TargetTable
from consumer.targets.sql import Fragment, Quote, qualify_table, render_after_key, render_up_to_key
from schemas.table.model import Key
from schemas.table.names import EXACT, NameRules
from schemas.values.packed import PackedSelect


class KeyedReads:
    """The key and page methods of a `consumer.targets.dialect_components.TargetCatalog`."""

    quote: Quote
    column_names = EXACT
    render_after_key = staticmethod(render_after_key)
    render_up_to_key = staticmethod(render_up_to_key)

    @property
    def table_names(self) -> NameRules:
        return EXACT

    def quote_table_name(self, table: TargetTable) -> str:
        return qualify_table(self.quote, table.schema, table.name)

    def select_packed_rows(self, table: TargetTable) -> tuple[str, PackedSelect] | None:
        """Return None: rows are not read packed."""
        return None

    def build_key_params(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Sequence[object]]:
        """Return each key's values as parameters for "=" and IN."""
        return keys

    def order_params(self, table: TargetTable, key: Key) -> Sequence[object]:
        """Return the key's values as parameters for "<" and ">", in the order of the key's index."""
        return self.build_key_params(table, [key])[0]

    def list_key_columns(self, table: TargetTable) -> tuple[str, ...]:
        return tuple(map(self.quote, table.table.key.columns))

    def build_filter(self, table: TargetTable, values: dict[str, str] | None) -> list[Fragment]:
        return [(f"{self.quote(column)} = %s", [value]) for column, value in (values or {}).items()]

    def build_page_conditions(
        self,
        table: TargetTable,
        after: Key | None,
        upto: Key | None = None,
        where: Mapping[str, str] | None = None,
    ) -> list[Fragment]:
        bounds = ((self.render_after_key, after), (self.render_up_to_key, upto))
        return [
            render(*self._list_compared(table, key, where or {})) for render, key in bounds if key is not None
        ]

    def _list_compared(
        self, table: TargetTable, key: Key, where: Mapping[str, str]
    ) -> tuple[Sequence[str], Sequence[object]]:
        """Return the columns to compare with the key, and their parameters.

        Columns with the value that the filter requires are left out: a server would begin each page's scan
        of the index at that value, and read all former pages again.
        """
        names, columns = table.table.key.columns, self.list_key_columns(table)
        params = self.order_params(table, key)
        fixed = [name in where and where[name] == value for name, value in zip(names, key, strict=True)]
        at = [i for i in range(len(names)) if i == len(names) - 1 or not fixed[i]]
        return [columns[i] for i in at], [params[i] for i in at]

    def build_page_order(self, table: TargetTable) -> str:
        return ", ".join(self.list_key_columns(table))


T = TypeVar("T")


def find_under_keys(look: Callable[[Sequence[Key]], Sequence[T]], keys: Sequence[Key]) -> list[T]:
    """Return what `look` finds under `keys`; a key that the target refuses (a zero date in PostgreSQL)
    has no row.

    `look` raises RefusedError for all keys of a call that includes such a one.
    """
    try:
        return list(look(keys))
    except RefusedError:
        if len(keys) == 1:
            return []
    half = len(keys) // 2  # halving isolates the refused key, so that it hides no other
    return find_under_keys(look, keys[:half]) + find_under_keys(look, keys[half:])
