"""A source as the command line asks it: its tables, rows by key and by page, and how much of its log nobody has read.

What a kind of source implements whose catalogue is not MySQL's (`SourceKind.view`); Oracle is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from producer.sources.survey import ExaminedTable
from producer.tables import TableName
from schemas.table.model import Key, Row, Table


class SourceView(Protocol):
    """All methods but `close` and `ends_by` raise SourceRefusedError, TransientSourceError."""

    def close(self) -> None: ...

    def list_tables(self) -> dict[TableName, ExaminedTable]:
        """Return the tables that the source's patterns select."""
        ...

    def fetch_rows(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        """Return up to `limit` rows behind a key, in the order of the key, as wire values of the columns of `table`."""
        ...

    def fetch_keys(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        """Return the rows with exactly these keys."""
        ...

    def estimate_sizes(self, names: Sequence[TableName]) -> dict[TableName, tuple[int, int]]:
        """Return rows and bytes of tables, as the server's statistics have them."""
        ...

    def log_rows(self) -> int:
        """Return how many rows of its logs wait to be read, counted up to a limit."""
        ...

    def log_ends(self) -> Mapping[TableName, int]:
        """Return where each table's log ends just now; none of an empty one."""
        ...

    def list_unread_tables(
        self, ends: Mapping[TableName, int], left_out: Collection[TableName]
    ) -> list[TableName]:
        """Return the tables of whose log something before `ends` waits to be read, without those that are left out."""
        ...

    def ends_by(self, before: int, now: int) -> bool:
        """Tell whether a whole reading of the logs began and ended while the stored place in them went from `before` to `now`."""
        ...
