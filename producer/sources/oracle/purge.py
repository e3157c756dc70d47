"""Deletes log rows that Kafka has, or that are not needed: by ROWID and SEQUENCE$$, counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from producer.errors import TableStoppedError
from producer.sources.oracle import sql
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.mlog import LogPlace, plan_purge
from producer.sources.oracle.rows import OracleRows
from producer.sources.oracle.session import OracleSession
from producer.sources.protocols import PublishedRows
from producer.tables import TableName, format_table_name
from schemas.findings import format_copy_remedy

_AT_ONCE = 1000
"""Rows of a statement, and of a transaction."""


class LogPurger:
    def __init__(self, session: OracleSession, catalog: OracleCatalog, following: FollowedTables) -> None:
        self._session, self._catalog, self._following = session, catalog, following

    def purge_published(self, published: PublishedRows) -> None:
        """Delete the rows that topics had when capture began, and remember them.

        An earlier process may have deleted some.

        The log of a stopped table stays as it is: another consumer may need it. For a topic that has
        lost events it is unknown which rows of the log they contained, so its table must not continue
        unless the log is empty.
        """
        logs = self._catalog.list_logs() if published.rows or published.cut else {}
        for name, rows in published.rows.items():
            places = [LogPlace(*row) for row in rows]
            self._following.published[name] = frozenset(place.sequence for place in places)
            if name in logs and self._following.captured(*name):
                self._delete_rows(logs[name].log, places)
        for name in published.cut:
            table = self._following.tables.get(name)
            if table is not None and name in logs:
                table.note_lost_events(self._session.fetch_rows(*sql.select_log_places(logs[name].log, 1)))

    def purge_polled(self, taken: Iterable[OracleRows]) -> Iterator[TableStoppedError]:
        """Delete what a poll has published. Yield the stops of tables with rows that were missing."""
        for rows in taken:
            logged, places = self._following.get_captured_table(rows.table), rows.places
            if logged is None or not places:
                continue
            deleted = self._delete_rows(logged.log, places)
            if deleted != len(places):
                yield _build_deleted_rows_stop(rows.table, logged.log, len(places), len(places) - deleted)

    def purge_old_rows(self) -> None:
        """Delete the rows that tables had in their logs before they were followed."""
        for table in self._following.tables.values():
            if table.old and table.logged is not None:
                self._delete_rows(table.logged.log, table.old)
                table.forget_old_rows()

    def _delete_rows(self, log: TableName, places: Collection[LogPlace]) -> int:
        statement = sql.delete_places(log)
        return sum(
            self._session.change_many(statement, batch) for batch in plan_purge(list(places), _AT_ONCE)
        )


def _build_deleted_rows_stop(
    name: TableName, log: TableName, published: int, missing: int
) -> TableStoppedError:
    """Return the stop of a table: what deleted these rows may have deleted unread ones, too."""
    return TableStoppedError(
        frozenset([name]), "log",
        (f"of {published} published rows of {format_table_name(log)}, the log of "
f"{format_table_name(name)}, {missing} were missing or moved when capture deleted them: "
"another process purges or moves the log, and may have removed rows that were never "
"captured"),
        "end that (DBMS_MVIEW.PURGE_LOG, another consumer, ALTER TABLE … MOVE), and "
        f"{format_copy_remedy(*name)}",
    )  # fmt: skip
