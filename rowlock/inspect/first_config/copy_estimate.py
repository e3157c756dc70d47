"""The first copy that `rowlock run` makes: its size, and its duration by measured rates. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.inspect.first_config.table_choice import ListedTable

COPIED_ROWS_PER_S = 21_900
"""Rows a second of a copy without a limit, MariaDB → PostgreSQL, one million rows of seven columns, on two
cores that ran everything (docs/benchmarks.md, "A copy of one table beside a live load", 2026-11-25).
"""
START_S = 4.0
"""Seconds from a first start to the first row, on the same machine (docs/benchmarks.md, "From the start of
`rowlock run` to the first row", 2026-11-23).
"""


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """The size of a first copy, by the server's estimates."""

    tables: int
    rows: int
    bytes: int

    @classmethod
    def from_tables(cls, tables: Iterable[ListedTable]) -> CopyEstimate:
        listed = list(tables)
        return cls(len(listed), sum(each.rows for each in listed), sum(each.bytes for each in listed))

    @property
    def duration_s(self) -> float:
        return START_S + self.rows / COPIED_ROWS_PER_S
