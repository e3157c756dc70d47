"""Capture of a log that others are refreshed from, too, by the rules of producer/sources/oracle/shared.py: what the product does not do yet.

Each round is what a process that was just started would do: all that it knows is in the topic, and in the times of its two views.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from producer.oracle.session import OracleSession
from producer.sources.oracle import shared
from producer.sources.oracle.catalogue import Logged
from producer.sources.oracle.forms import key_of, log_expressions, log_row_of
from producer.sources.oracle.mlog import LoggedChange, LogPlace, read
from producer.tables import TableName

OWN = ("ROWLOCK_A", "ROWLOCK_B")
_ALL = 1 << 20


class Acknowledged(NamedTuple):
    """What Kafka has: changes in their order."""

    changes: list[LoggedChange]

    def places(self) -> list[LogPlace]:
        return [place for change in self.changes for place in change.places]


class SharedCapture:
    def __init__(self, session: OracleSession, logged: Logged, topic: Acknowledged) -> None:
        self._session, self._logged, self._topic = session, logged, topic
        self._table: TableName = (logged.table.db, logged.table.name)

    def now(self) -> str:
        return str(self._session.rows(shared.NOW)[0][0])

    def views(self) -> shared.OwnViews:
        rows = self._session.rows(*shared.refreshed(self._table, OWN))
        return shared.own_views([(name, time) for name, time in rows])

    def publish(self, views: shared.OwnViews) -> bool:
        """Bring what Kafka does not have; returns whether there was any."""
        logged = self._logged
        raw = self._session.rows(
            *shared.stamped(logged.log, log_expressions(logged), sorted(logged.extra), _ALL, views)
        )
        known = set(self._topic.places())
        rows = [row for row in map(log_row_of(logged), raw) if LogPlace(row.rowid, row.sequence) not in known]
        self._topic.changes.extend(read(rows, key_of(logged), whole=True).changes)
        return bool(rows)

    def refresh(self, view: str) -> None:
        self._session.change_many(shared.REFRESH, [(view,)])

    def round(self) -> None:
        now, views = self.now(), self.views()
        unread = self.publish(views)
        if (view := shared.to_refresh(views, now, unread=unread)) is not None:
            self.refresh(view)


def table_of(topic: Acknowledged) -> dict[Any, Any]:
    """Return what a reader of the topic holds: first column → the others."""
    rows: dict[Any, Any] = {}
    for change in topic.changes:
        if change.before is not None:
            rows.pop(change.before[0], None)
        if change.after is not None:
            rows[change.after[0]] = change.after[1:]
    return rows
