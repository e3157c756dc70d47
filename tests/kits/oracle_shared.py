"""Capture of a log that others are refreshed from, too, by the rules of tests/kits/oracle_shared_rules.py:
what the product does not do yet.

Each round is what a process that was just started would do: all that it knows is in the topic, and in the
times of its two views.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from producer.sources.oracle.forms import list_log_expressions, make_key_extractor, make_log_row_converter
from producer.sources.oracle.mlog import LoggedChange, LogPlace, parse_log_rows
from producer.sources.oracle.session import OracleSession
from producer.sources.oracle.table_checks import LoggedTable
from producer.tables import TableName
from tests.kits import oracle_shared_rules as shared

OWN = ("ROWLOCK_A", "ROWLOCK_B")
_ALL = 1 << 20


class Acknowledged(NamedTuple):
    """What Kafka has: changes in their order."""

    changes: list[LoggedChange]

    def places(self) -> list[LogPlace]:
        return [place for change in self.changes for place in change.places]


class SharedCapture:
    def __init__(self, session: OracleSession, logged: LoggedTable, topic: Acknowledged) -> None:
        self._session, self._logged, self._topic = session, logged, topic
        self._table: TableName = (logged.table.db, logged.table.name)

    def now(self) -> str:
        return str(self._session.fetch_rows(shared.SELECT_SERVER_TIME)[0][0])

    def views(self) -> shared.OwnViews:
        rows = self._session.fetch_rows(*shared.select_view_refreshes(self._table, OWN))
        return shared.parse_own_views([(name, time) for name, time in rows])

    def publish(self, views: shared.OwnViews) -> None:
        """Bring what Kafka does not have, and await that it has it."""
        logged = self._logged
        raw = self._session.fetch_rows(
            *shared.select_stamped_log_rows(
                logged.log, list_log_expressions(logged), sorted(logged.extra), _ALL, views
            )
        )
        known = {place.sequence for place in self._topic.places()}  # a stamp moves rows on stand (a)
        rows = [row for row in map(make_log_row_converter(logged), raw) if row.sequence not in known]
        self._topic.changes.extend(parse_log_rows(rows, make_key_extractor(logged), whole=True).changes)

    def refresh(self, view: str) -> None:
        self._session.change_many(shared.REFRESH, [(view,)])

    def round(self) -> None:
        now, views = self.now(), self.views()
        self.publish(views)
        if (view := shared.choose_view_to_refresh(views, now)) is not None:
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


# --- rules that are switched off


def _before_the_acknowledgement(self: SharedCapture) -> None:
    now, views = self.now(), self.views()
    if (view := shared.choose_view_to_refresh(views, now)) is not None:
        self.refresh(view)
    self.publish(views)


def _within_the_second(views: shared.OwnViews, now: str) -> str | None:
    return views.older


def _the_newer_one(views: shared.OwnViews, now: str) -> str | None:
    (newer,) = set(OWN) - {views.older}
    return newer if now > views.high else None


def _clock_behind_the_rows(self: SharedCapture) -> None:
    views = self.views()
    self.publish(views)
    if (view := shared.choose_view_to_refresh(views, self.now())) is not None:
        self.refresh(view)


def _one_view(self: SharedCapture) -> None:
    """Refresh both views together when Kafka has all that was there a moment ago: rows that were committed
    since then are purged unread."""
    self.publish(self.views()._replace(high="4000-01-02 00:00:00"))
    for name in OWN:
        self.refresh(name)


#: Rule → where it stands, its name, what stands there instead.
SWITCHED_OFF: dict[str, tuple[Any, str, Any]] = {
    "refreshed when Kafka has all": (SharedCapture, "round", _before_the_acknowledgement),
    "the last look is behind the second": (shared, "choose_view_to_refresh", _within_the_second),
    "in turn": (shared, "choose_view_to_refresh", _the_newer_one),
    "the clock is asked before the rows": (SharedCapture, "round", _clock_behind_the_rows),
    "two views": (SharedCapture, "round", _one_view),
}
