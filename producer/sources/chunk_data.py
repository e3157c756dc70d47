"""Chunks of a table's snapshot, as data: requests, the reader's answers, and the log positions between
which they are read.

A source reads them, producer/snapshot/chunks.py processes them, and producer/kafka makes events of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.table.model import Key, Row, Table
from schemas.wire.event import Chunk
from schemas.wire.position import LogPoint


class LogMark(NamedTuple):
    """A transaction of the stream: its start, and its GTID (MySQL; otherwise None)."""

    point: LogPoint
    gtid: str | None


class LowWatermark(NamedTuple):
    """The low watermark of a SELECT: everything that it certainly saw.

    On MariaDB that is everything before `point`, on MySQL the transactions `gtids`.
    """

    point: LogPoint | None
    gtids: GtidSet | None

    def has_seen(self, mark: LogMark) -> bool:
        if self.gtids is not None:
            return mark.gtid is not None and mark.gtid in self.gtids
        return self.point is not None and mark.point < self.point

    def has_seen_all_before(self, at: LogPoint, delivered: GtidSet | None) -> bool:
        """Return whether the SELECT saw everything before `at`, where the stream has delivered
        `delivered`.
        """
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
    """The rows of a chunk, in key order. Fewer rows than the limit are all rows of `(after, …]`."""

    request: int
    rows: Sequence[Row]
    low: LowWatermark
    high: LogPoint


class ChunkFailed(NamedTuple):
    """The chunk could not be read now (connection lost, table changed under the SELECT); it is read
    again.
    """

    request: int
    reason: str


class ChunkRefused(NamedTuple):
    """The source rejects the condition on the chunk's rows; a retry would not help."""

    request: int
    reason: str


class EmitChunk(NamedTuple):
    """A chunk to be published.

    `rows`: those that are left of it; `at`: the stream's place, the position of rows and marker.
    """

    table: Table
    rows: tuple[Row, ...]
    at: LogPoint
    number: int
    after: Key | None
    upto: Key | None
    repeated: bool

    def build_end_marker(self, first_row: int) -> Chunk:
        """Return the end marker of the chunk; its first row has the position row `first_row`."""
        return Chunk(
            number=self.number,
            after=self.after,
            upto=self.upto,
            first_row=first_row,
            rows=len(self.rows),
            last=self.upto is None,
            repeated=self.repeated,
        )
