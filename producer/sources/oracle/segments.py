"""The places where Oracle keeps a table's rows, and what they tell that no log does. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple


class TableSegments(NamedTuple):
    """The place where a table and its partitions are kept, and the statements by which it may have changed.

    `id`: OBJECT_ID, another one when it was dropped and made again; `data`: DATA_OBJECT_IDs of its segments, others when rows were put there
    or taken away otherwise than by DML; `ddl`: time of the last DDL of it or of its log (a grant counts); `log_id`: OBJECT_ID of the log;
    `load`: SCN of the last direct-path load, "" without one; `altered`: TIMESTAMP of the table and of its log, which only statements move
    that may change columns; "": a record of before does not say. `came`: those of `data` that are not the numbers of their own partition (or
    table), as they are when it is made: it was filled, emptied or moved by a statement; `parts`: DATA_OBJECT_ID of each partition and the time
    of its own last DDL (a record has but the last of these times); `times`: of the last DDL of the table, of each partition and of the log.
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
        """The time of the last DDL of a partition; "": it is not known, or there is none."""
        return max((time for _, time in self.parts), default="")


def explain_replaced_rows(before: TableSegments, now: TableSegments) -> str | None:
    """Return by what rows may have come or gone that the log does not have; None: by nothing that can be seen."""
    if now.id != before.id:
        return "was dropped and made again"
    if now.log_id != before.log_id:
        return "has another log now"
    if before.data - now.data:
        return "was truncated or moved, or one of its partitions was"
    if now.came - before.data:
        return "got a partition with rows (EXCHANGE PARTITION)"
    if now.load != before.load:
        return "was loaded by direct path"
    last = before.last_part
    if last and any(time > last for data, time in now.parts if data in before.data):
        return "had a statement on a partition, which may have been out and in again (EXCHANGE PARTITION)"
    if not now.data and now.ddl != before.ddl:
        return "had a statement, which may have been a TRUNCATE: it has no segment (index-organized) that would tell"
    return None


def may_have_other_columns(before: TableSegments, now: TableSegments) -> bool:
    """Tell whether a statement on the table, or on its log, may have changed columns."""
    return before.altered != now.altered if before.altered else before.ddl != now.ddl


_CLOCKS_S = 60
"""Seconds that another instance's clock may be ahead. A time further ahead is of before the clocks were set back."""


def is_over(now: TableSegments, fresh: str) -> bool:
    """Tell whether the second of a table's last statement is over: until then another one would leave no other time.

    `fresh`: two seconds before the times were read.
    """
    ahead = (datetime.fromisoformat(fresh) + timedelta(seconds=2 + _CLOCKS_S)).isoformat()
    return not any(fresh <= time <= ahead for time in now.times)
