"""TABLE_MAP events: which columns, in which binary form, the row events behind them have.

Format: MySQL's `Table_map_event` (libs/mysql/binlog/event/rows_event.h), optional metadata included.
"""

from __future__ import annotations

import msgspec


class ColumnMap(msgspec.Struct, frozen=True, kw_only=True):
    """One column as the log stores it. The last five fields are known with binlog_row_metadata=FULL only."""

    type: int  # real type: ENUM and SET are told apart from STRING
    metadata: int  # type-specific, see columns.py
    nullable: bool
    unsigned: bool | None = None  # also with MINIMAL metadata
    charset: int | None = None  # collation id
    name: str | None = None
    members: tuple[bytes, ...] | None = None
    primary: bool = False


class TableMap(msgspec.Struct, frozen=True, kw_only=True):
    """`layout`: the body without table id and flags; equal layouts may share a codec."""

    table_id: int
    db: str
    name: str
    columns: tuple[ColumnMap, ...]
    layout: bytes

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names, with binlog_row_metadata=FULL; else None."""
        names = tuple(column.name for column in self.columns)
        return None if None in names else names  # type: ignore[return-value]


class TableMapCache:
    """Parsed TABLE_MAPs by their raw body: servers send the same bytes before nearly every row event."""

    def __init__(self, limit: int = 4096) -> None:
        self._parsed: dict[bytes, TableMap] = {}
        self._limit = limit

    def get(self, body: bytes) -> TableMap:
        """Return the parsed `body`. Raises UndecodableRow."""
        found = self._parsed.get(body)
        if found is None:
            if len(self._parsed) >= self._limit:
                self._parsed.clear()
            found = self._parsed[body] = parse_table_map(body)
        return found


def parse_table_map(body: bytes) -> TableMap:
    """Parse the body of a TABLE_MAP event. Raises UndecodableRow."""
    raise NotImplementedError
