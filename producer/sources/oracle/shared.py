"""A log from which other materialized views are refreshed, too: which of its rows are read, and when a view of our own is refreshed. Pure.

**Nothing of the product leads here yet**: such a log is refused until `make test-oracle` has shown that a server keeps to what follows (R5 of
docs/adr/0028). Played are these rules in tests/sim/test_oracle_shared_log.py, and on stand (a).

A refresh at a time t stamps the rows that nobody has stamped by then (SNAPTIME$$), and purges those up to the oldest of the last refreshes of all
views. So two views are registered as rowlock's, and refreshed in turn: at any time rows up to the older one's time may be gone, and all of
these are acknowledged; what stands behind it, up to the newer one's time, is read. Only when Kafka has all of that is the older one refreshed,
and becomes the newer one. Nothing is deleted by capture. Where it was killed, these two times say where it was.

Times are whole seconds. Another view's refresh may stamp rows with the newer one's time as long as that second is not over: so the last look at
the rows comes behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.sources.oracle.sql import SqlStatement, TableName, select_log_rows

_SECONDS = "'YYYY-MM-DD HH24:MI:SS'"
SELECT_SERVER_TIME = f"SELECT TO_CHAR(SYSDATE, {_SECONDS}) FROM DUAL"
"""The time of a refresh that begins now, or an earlier one."""
REFRESH = "BEGIN DBMS_MVIEW.REFRESH(:1, 'F'); END;"


class OwnViews(NamedTuple):
    """Our two views of a table. `older`: the one that is refreshed next; `low`, `high`: times of the last refreshes of the older and the newer one."""

    older: str
    low: str
    high: str


def parse_own_views(rows: Sequence[tuple[str, str]]) -> OwnViews:
    """Return what rows of `refreshed` say. Raises ValueError: they are not two."""
    if len(rows) != 2:
        raise ValueError(f"of the two views that hold the log's rows for rowlock, {len(rows)} are registered")
    (low, older), (high, _) = sorted((time, name) for name, time in rows)
    return OwnViews(older, low, high)


def choose_view_to_refresh(views: OwnViews, now: str) -> str | None:
    """Return the view that may be refreshed once Kafka has all rows of `stamped`; None: none may be yet.

    `now`: asked before those were read.
    """
    return views.older if now > views.high else None


def select_view_refreshes(table: TableName, views: Sequence[str]) -> SqlStatement:
    """Rows: name of a view of ours, time of its last refresh by the log's table of consumers."""
    return (
        f"SELECT R.NAME, TO_CHAR(B.MVIEW_LAST_REFRESH_TIME, {_SECONDS}) FROM ALL_BASE_TABLE_MVIEWS B "
        "JOIN ALL_REGISTERED_MVIEWS R ON R.MVIEW_ID = B.MVIEW_ID WHERE B.OWNER = :1 AND B.MASTER = :2 AND R.NAME IN (:3, :4)"
    ), [*table, *views]


def select_stamped_log_rows(
    log: TableName, expressions: Sequence[str], extra: Sequence[str], limit: int, views: OwnViews
) -> SqlStatement:
    """Return the SELECT of the first rows of a log that may not be purged, and are stamped, as `log_rows` has them."""
    text, _ = select_log_rows(log, expressions, extra, limit)
    head, _, tail = text.partition(" ORDER BY ")
    between = f'l."SNAPTIME$$" > TO_DATE(:1, {_SECONDS}) AND l."SNAPTIME$$" <= TO_DATE(:2, {_SECONDS})'
    return f"{head} WHERE {between} ORDER BY {tail}", [views.low, views.high]
