"""Rules for a log that other materialized views use as well: the rows of it that are read, and when
rowlock's own views are refreshed. Pure.

**The product refuses such a log** until `make test-oracle` has shown that a server follows these rules
(docs/adr/0028); then they move into the product. tests/sim/test_oracle_shared_log.py simulates them.

A refresh at a time t stamps the rows that were not stamped before (SNAPTIME$$), and purges those up to
the oldest of the last refreshes of all views. So two views are registered for rowlock and refreshed in
turn. At any time rows up to the older view's time may be deleted, and all of these are acknowledged; the
rows after it, up to the newer view's time, are read. Only when Kafka has all of them is the older view
refreshed, and becomes the newer one. Capture itself deletes nothing. After a crash these two times show
where to continue.

Times are whole seconds. The refresh of another view may stamp rows with the newer view's time until that
second is over, so the last look at the rows comes after it.
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
    """The two views of rowlock on a table. `older`: the one that is refreshed next.

    `low`, `high`: times of the last refreshes of the older and the newer one.
    """

    older: str
    low: str
    high: str


def parse_own_views(rows: Sequence[tuple[str, str]]) -> OwnViews:
    """Parse rows of `select_view_refreshes`. Raises ValueError unless there are two."""
    if len(rows) != 2:
        raise ValueError(
            "rowlock needs two registered materialized views that keep the log's rows, but "
            f"{len(rows)} are registered"
        )
    (low, older), (high, _) = sorted((time, name) for name, time in rows)
    return OwnViews(older, low, high)


def choose_view_to_refresh(views: OwnViews, now: str) -> str | None:
    """Return the view that may be refreshed once Kafka has all stamped rows.

    None: none may be refreshed yet.

    `now`: the server's time, read before those rows.
    """
    return views.older if now > views.high else None


def select_view_refreshes(table: TableName, views: Sequence[str]) -> SqlStatement:
    """Return a SELECT of (name of a view of rowlock, time of its last refresh from the log's table)."""
    return (
        f"SELECT R.NAME, TO_CHAR(B.MVIEW_LAST_REFRESH_TIME, {_SECONDS}) FROM "
        "ALL_BASE_TABLE_MVIEWS B JOIN ALL_REGISTERED_MVIEWS R ON R.MVIEW_ID = B.MVIEW_ID WHERE "
        "B.OWNER = :1 AND B.MASTER = :2 AND R.NAME IN (:3, :4)"
    ), [*table, *views]


def select_stamped_log_rows(
    log: TableName, expressions: Sequence[str], extra: Sequence[str], limit: int, views: OwnViews
) -> SqlStatement:
    """Return the SELECT of the first stamped rows of a log that may not be purged, with the columns of
    `select_log_rows`.
    """
    text, _ = select_log_rows(log, expressions, extra, limit)
    head, _, tail = text.partition(" ORDER BY ")
    between = f'l."SNAPTIME$$" > TO_DATE(:1, {_SECONDS}) AND l."SNAPTIME$$" <= TO_DATE(:2, {_SECONDS})'
    return f"{head} WHERE {between} ORDER BY {tail}", [views.low, views.high]
