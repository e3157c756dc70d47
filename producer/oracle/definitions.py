"""Definitions at a place of the log: `DefinitionProver` of producer/source.py.

The log has none. Of a table that is followed the last look at the catalogue counts, which was behind the rows that stand before the place. Every
other one is taken up here: what it is now, and from its log's present end on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from producer.definitions.places import Place, Proof, Proven, Unproven
from producer.oracle.catalog import OracleCatalog
from producer.oracle.session import OracleSession
from producer.sources.oracle import sql
from producer.sources.oracle.following import Following
from producer.sources.oracle.mlog import LogPlace
from producer.sources.oracle.segments import Segments, is_over
from producer.tables import TableName, dotted
from schemas.table.model import Table, same_definition

MOST_OLD = 1_000_000
"""Rows that a log may hold when its table is taken up: they are kept in memory until they are deleted."""


_LOOK_S, _MOST_MS = 0.5, 60_000
"""Seconds between looks at whether the second of a statement is over; ms after which a table that has one after the other is left."""


class OracleDefinitions:
    """`wait`: for so many seconds."""

    def __init__(
        self,
        session: OracleSession,
        catalog: OracleCatalog,
        following: Following,
        wait: Callable[[float], None],
    ) -> None:
        self._session, self._catalog, self.following, self._wait = session, catalog, following, wait

    def at(self, place: Place, name: TableName) -> Proof:
        return self.all_at(place, [name])[name]

    def all_at(self, place: Place, names: Collection[TableName]) -> dict[TableName, Proof]:
        found: dict[TableName, Proof] = {}
        for name in names:
            if (known := self.following.now(name)) is not None:
                found[name] = Proven(known.table, None)
        if place.beginning:
            found |= self._followed_before([name for name in names if name not in found])
        return found | self._taken_up([name for name in names if name not in found])

    def _followed_before(self, names: Collection[TableName]) -> dict[TableName, Proof]:
        """Return what tables are that the record names, though their topics have lost the definition: the rows of their logs count. What has
        happened to them since the record tells the first look."""
        recorded = [name for name in names if name in self.following.tables]
        surveyed = self._catalog.survey(recorded) if recorded else {}
        return {
            name: Proven(logged.table if logged is not None else None, survey.reason)
            for name, (survey, logged) in surveyed.items()
        }

    def take_up_again(self, tables: Mapping[TableName, Table]) -> None:
        """Follow tables of which a process before has published the definition, and did not come to store that it follows them."""
        for name, proof in self._taken_up(tables).items():
            if (
                isinstance(proof, Unproven)
                or proof.table is None
                or not same_definition(tables[name], proof.table)
            ):
                self.following.drop(name)

    def partitioning(
        self, _place: Place, _name: TableName
    ) -> None: ...  # nobody asks: looks say what happened

    def converted(
        self, _place: Place, _name: TableName, _doubt: object
    ) -> bool:  # nor of this: its looks are no statements of a session
        return False

    def _taken_up(self, names: Collection[TableName]) -> dict[TableName, Proof]:
        """Follow tables from now on. Their segments are read first: what happens to them from there on is seen."""
        if not names:
            return {}
        segments, restless = self._settled(names)
        found: dict[TableName, Proof] = {name: Proven(None, _restless(name)) for name in restless}
        for name, (survey, logged) in self._catalog.survey(
            [each for each in names if each not in restless]
        ).items():
            if logged is None or name not in segments:
                found[name] = Proven(None, survey.reason)
                continue
            rows = self._session.rows(*sql.log_places(logged.log, MOST_OLD + 1))
            if len(rows) > MOST_OLD:
                log = dotted(logged.log)
                reason = (
                    f"{log}, the log of {dotted(name)}, holds more than {MOST_OLD} rows of before, which nobody wants: "
                    f"DELETE FROM {sql.quoted(*logged.log)} and COMMIT, then restart capture"
                )
                found[name] = Proven(None, reason)
                continue
            old = (LogPlace(str(rowid), int(sequence)) for rowid, sequence in rows)
            self.following.take_up(name, logged, segments[name], old)
            found[name] = Proven(logged.table, None)
        return found

    def _settled(self, names: Collection[TableName]) -> tuple[dict[TableName, Segments], list[TableName]]:
        """Return the segments of tables, each read when the second of its last statement was over, and the tables that found no such moment.

        Times are whole seconds: a statement that follows in the same one would be seen by nothing, if columns look the same behind it.
        """
        found: dict[TableName, Segments] = {}
        left, (began, fresh) = list(names), self._catalog.now()
        while True:
            read = self._catalog.segments(left, self._catalog.logs())
            left = [name for name, each in read.items() if not is_over(each, fresh)]
            found |= {name: each for name, each in read.items() if name not in left}
            if not left:
                return found, []
            self._wait(_LOOK_S)
            now, fresh = self._catalog.now()
            if now - began > _MOST_MS:
                return found, left


def _restless(name: TableName) -> str:
    return (
        f"{dotted(name)}, or its log, has had a statement (DDL) in every second for a minute, so that which one came last cannot be told: start "
        "capture, or copy the table, when they have ended"
    )
