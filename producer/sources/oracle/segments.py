"""The segments in which Oracle stores a table's rows, and the changes that they reveal and no log shows.

Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple


class TableSegments(NamedTuple):
    """The segments of a table and its partitions, and the times of statements that may have changed it.

    `id`: OBJECT_ID, which changes when the table is dropped and created again. `data`: DATA_OBJECT_IDs
    of its segments, which change when rows are added or removed by other means than DML. `ddl`: time of
    the last DDL of the table or of its log (a GRANT counts). `log_id`: OBJECT_ID of the log. `load`: SCN
    of the last direct-path load, "" without one. `altered`: TIMESTAMP of the table and of its log,
    changed only by statements that may change columns; "": an older record does not contain it. `came`:
    the members of `data` that differ from the number of their own partition (or table), with which they
    are created: a statement filled, emptied or moved the segment. `parts`: DATA_OBJECT_ID of each
    partition and the time of its last DDL (a record has only the latest of these times). `times`: of the
    last DDL of the table, of each partition and of the log.
    """

    id: int
    data: frozenset[int]
    ddl: str
    log_id: int
    load: str
    altered: str = ""
    came: frozenset[int] = frozenset()
    parts: frozenset[tuple[int, str]] = frozenset()
    times: frozenset[str] = frozenset()

    @property
    def last_part(self) -> str:
        """The time of the last DDL of a partition; "": it is not known, or there are no partitions."""
        return max((time for _, time in self.parts), default="")


def explain_replaced_rows(before: TableSegments, now: TableSegments) -> str | None:
    """Return how rows may have been added or removed without the log; None: there is no sign of it."""
    if now.id != before.id:
        return "was dropped and created again"
    if now.log_id != before.log_id:
        return "now has another log"
    if before.data - now.data:
        return "was truncated or moved, or one of its partitions was"
    if now.came - before.data:
        return "got a partition with rows (EXCHANGE PARTITION)"
    if now.load != before.load:
        return "was loaded by direct path"
    last = before.last_part
    if last and any(time > last for data, time in now.parts if data in before.data):
        return "had DDL on a partition, which may have been exchanged away and back (EXCHANGE PARTITION)"
    if not now.data and now.ddl != before.ddl:
        return "had DDL that may have been a TRUNCATE, which leaves no trace in an index-organized table"
    return None


def may_have_other_columns(before: TableSegments, now: TableSegments) -> bool:
    """Return whether a statement on the table, or on its log, may have changed columns."""
    return before.altered != now.altered if before.altered else before.ddl != now.ddl


_CLOCKS_S = 60
"""Seconds by which another instance's clock may be ahead. A time further ahead is from before the clocks
were set back.
"""


def is_over(now: TableSegments, fresh: str) -> bool:
    """Return whether the second of a table's last statement is over; until then another statement would
    have the same time.

    `fresh`: two seconds before the times were read.
    """
    latest = (datetime.fromisoformat(fresh) + timedelta(seconds=2 + _CLOCKS_S)).isoformat()
    return not any(fresh <= time <= latest for time in now.times)
