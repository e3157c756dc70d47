"""Definitions at a place of the log: `DefinitionProver` of producer/sources/protocols.py.

The log has no definitions. For a followed table the last look at the catalog counts, which came after
the rows before the place. Any other table is followed from now on: with its present definition, and from
its log's present end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition, UnprovenDefinition
from producer.sources.oracle import sql
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.mlog import LogPlace
from producer.sources.oracle.segments import TableSegments, is_over
from producer.sources.oracle.session import OracleSession
from producer.tables import TableName, format_table_name
from schemas.problems import Problem
from schemas.table.model import Table, is_same_definition

MOST_OLD = 1_000_000
"""Rows that a log may have when its table is first followed; their places are kept in memory until they
are deleted.
"""


_LOOK_S, _MOST_MS = 0.5, 60_000
"""Seconds between checks whether the second of a statement is over; ms after which a table with a
statement in each second is refused.
"""


class OracleDefinitions:
    """Proves definitions, and begins to follow tables. `wait`: waits for a number of seconds."""

    def __init__(
        self,
        session: OracleSession,
        catalog: OracleCatalog,
        following: FollowedTables,
        wait: Callable[[float], None],
    ) -> None:
        self._session, self._catalog, self.following, self._wait = session, catalog, following, wait

    def prove_definition(self, place: DefinitionPlace, name: TableName) -> Proof:
        return self.prove_definitions(place, [name])[name]

    def prove_definitions(
        self, place: DefinitionPlace, names: Collection[TableName]
    ) -> dict[TableName, Proof]:
        found: dict[TableName, Proof] = {}
        for name in names:
            if (known := self.following.get_captured_table(name)) is not None:
                found[name] = ProvenDefinition(known.table, None)
        if place.beginning:
            found |= self._prove_recorded_tables([name for name in names if name not in found])
        return found | self._follow_tables([name for name in names if name not in found])

    def _prove_recorded_tables(self, names: Collection[TableName]) -> dict[TableName, Proof]:
        """Return the definitions of tables that the record names, although their topics have lost them:
        their logs are read on.

        The first look at the catalog finds what has happened to them since the record.
        """
        recorded = [name for name in names if name in self.following.tables]
        surveyed = self._catalog.examine_tables(recorded) if recorded else {}
        return {
            name: ProvenDefinition(logged.table if logged is not None else None, survey.problem)
            for name, (survey, logged) in surveyed.items()
        }

    def take_up_again(self, tables: Mapping[TableName, Table]) -> None:
        """Follow tables again for which an earlier process published the definition, but did not store
        that it follows them.
        """
        for name, proof in self._follow_tables(tables).items():
            if (
                isinstance(proof, UnprovenDefinition)
                or proof.table is None
                or not is_same_definition(tables[name], proof.table)
            ):
                self.following.drop_table(name)

    def find_partitioning(
        self, _place: DefinitionPlace, _name: TableName
    ) -> None: ...  # not used: looks at the catalog show what happened

    def may_have_converted(
        self, _place: DefinitionPlace, _name: TableName, _doubt: object
    ) -> bool:  # not used: a look is no statement of a session
        return False

    def _follow_tables(self, names: Collection[TableName]) -> dict[TableName, Proof]:
        """Follow tables from now on. Their segments are read first, so that later changes are noticed."""
        if not names:
            return {}
        segments, restless = self._wait_for_settled_segments(names)
        found: dict[TableName, Proof] = {
            name: ProvenDefinition(None, _explain_unsettled_table(name)) for name in restless
        }
        for name, (survey, logged) in self._catalog.examine_tables(
            [each for each in names if each not in restless]
        ).items():
            if logged is None or name not in segments:
                found[name] = ProvenDefinition(None, survey.problem)
                continue
            rows = self._session.fetch_rows(*sql.select_log_places(logged.log, MOST_OLD + 1))
            if len(rows) > MOST_OLD:
                log = format_table_name(logged.log)
                problem = Problem(
                    f"{log}, the log of {format_table_name(name)}, holds more than {MOST_OLD} rows from "
                    "before the capture, which are not needed",
                    f"DELETE FROM {sql.quote_names(*logged.log)} and COMMIT, then restart capture",
                )
                found[name] = ProvenDefinition(None, problem)
                continue
            old = (LogPlace(str(rowid), int(sequence)) for rowid, sequence in rows)
            self.following.take_up(name, logged, segments[name], old)
            found[name] = ProvenDefinition(logged.table, None)
        return found

    def _wait_for_settled_segments(
        self, names: Collection[TableName]
    ) -> tuple[dict[TableName, TableSegments], list[TableName]]:
        """Return the segments of tables, each read when the second of its last statement was over, and
        the tables without such a moment.

        Times are whole seconds: a later statement in the same second would not be noticed if columns
        look the same after it.
        """
        found: dict[TableName, TableSegments] = {}
        left, (began, fresh) = list(names), self._catalog.read_server_time()
        while True:
            read = self._catalog.read_segments(left, self._catalog.list_logs())
            left = [name for name, each in read.items() if not is_over(each, fresh)]
            found |= {name: each for name, each in read.items() if name not in left}
            if not left:
                return found, []
            self._wait(_LOOK_S)
            now, fresh = self._catalog.read_server_time()
            if now - began > _MOST_MS:
                return found, left


def _explain_unsettled_table(name: TableName) -> Problem:
    return Problem(
        f"{format_table_name(name)}, or its log, has had a statement (DDL) in every second for a minute, so "
        "the last one cannot be determined",
        "start capture, or copy the table, when these statements have ended",
    )
