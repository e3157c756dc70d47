"""Chunks of a table's snapshot: their requests, the reader's answers, and the places of the log between which they are read; pure data.

What becomes of them is in producer/snapshot/chunks.py; a source reads them, and Kafka's events are made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.sources.binlog.mysql_gtids import GtidSet
from schemas.table.model import Key, Row, Table
from schemas.wire.event import Chunk
from schemas.wire.position import LogPoint


class LogMark(NamedTuple):
    """A transaction of the stream: where it starts, and its GTID (MySQL; else None)."""

    point: LogPoint
    gtid: str | None


class LowWatermark(NamedTuple):
    """The low watermark of a SELECT, which surely saw everything before `point` (MariaDB), or the transactions `gtids` (MySQL)."""

    point: LogPoint | None
    gtids: GtidSet | None

    def has_seen(self, mark: LogMark) -> bool:
        if self.gtids is not None:
            return mark.gtid is not None and mark.gtid in self.gtids
        return self.point is not None and mark.point < self.point

    def has_seen_all_before(self, at: LogPoint, delivered: GtidSet | None) -> bool:
        """Tell whether everything before `at`, where the stream has delivered `delivered`, was seen."""
        if self.gtids is not None:
            return delivered is not None and self.gtids.covers(delivered)
        return self.point is not None and self.point >= at


class ReadChunk(NamedTuple):
    request: int
    table: Table
    after: Key | None
    limit: int
    not_before: float
    where: str | None = None


class ChunkRead(NamedTuple):
    """`rows` in key order, all of `(after, …]` if fewer than the limit."""

    request: int
    rows: Sequence[Row]
    low: LowWatermark
    high: LogPoint


class ChunkFailed(NamedTuple):
    """The chunk could not be read now (connection lost, table changed under the SELECT); it is tried again."""

    request: int
    reason: str


class ChunkRefused(NamedTuple):
    """The source does not take the condition of the chunk's rows, and never will."""

    request: int
    reason: str


class EmitChunk(NamedTuple):
    """`rows` are what is left of the chunk; `at`: where the stream stands, the position of rows and marker."""

    table: Table
    rows: tuple[Row, ...]
    at: LogPoint
    number: int
    after: Key | None
    upto: Key | None
    repeated: bool

    def build_end_marker(self, first_row: int) -> Chunk:
        """Return the end marker of the chunk whose first row has position row `first_row`."""
        return Chunk(
            number=self.number,
            after=self.after,
            upto=self.upto,
            first_row=first_row,
            rows=len(self.rows),
            last=self.upto is None,
            repeated=self.repeated,
        )
