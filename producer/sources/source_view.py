"""A source for the command line: its tables, rows by key and by page, and how much of its log is unread.

Implemented by a kind of source with a catalog that differs from MySQL's (`SourceKind.view`), such as
Oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from producer.sources.survey import ExaminedTable
from producer.tables import TableName
from schemas.table.model import Key, Row, Table


class SourceView(Protocol):
    """A source for the command line.

    All methods but `close` and `ends_by` raise SourceRefusedError, TransientSourceError.
    """

    def close(self) -> None: ...

    def list_tables(self) -> dict[TableName, ExaminedTable]:
        """Return the tables that the source's patterns select."""
        ...

    def fetch_rows(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        """Return up to `limit` rows after a key, in the order of the key, as wire values of the columns
        of `table`.
        """
        ...

    def fetch_keys(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        """Return the rows with exactly these keys."""
        ...

    def estimate_sizes(self, names: Sequence[TableName]) -> dict[TableName, tuple[int, int]]:
        """Return rows and bytes of tables, from the server's statistics."""
        ...

    def read_certificate_expiry(self) -> datetime | None:
        """Return when the certificate expires that the server presents; None: without TLS. Raises OSError
        as well.
        """
        ...

    def log_rows(self) -> int:
        """Return how many rows of its logs wait to be read, counted up to a limit."""
        ...

    def log_ends(self) -> Mapping[TableName, int]:
        """Return where each table's log ends now, without empty logs."""
        ...

    def list_unread_tables(
        self, ends: Mapping[TableName, int], left_out: Collection[TableName]
    ) -> list[TableName]:
        """Return the tables with unread log rows before `ends`, except those that are left out."""
        ...

    def ends_by(self, before: int, now: int) -> bool:
        """Return whether a whole reading of the logs began and ended while the stored place in them went
        from `before` to `now`.
        """
        ...
