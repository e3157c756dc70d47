"""Polls that look at the catalog: what a look reports of a table, and what is published of rows that were
read before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from producer.definitions.requests import ProvenDefinition
from producer.errors import TableStoppedError
from producer.sources.changes import Barrier, Boundary
from producer.sources.oracle.definition_check import CatalogLook, judge_followed_table
from producer.sources.oracle.definitions import OracleDefinitions
from producer.sources.oracle.following import FollowedTable, FollowedTables
from producer.sources.oracle.log import OracleLog, PollPace
from producer.sources.oracle.poll import CatalogWatcher
from producer.sources.oracle.rows import FILE, OracleRows
from producer.sources.oracle.segments import TableSegments
from producer.sources.oracle.table_checks import COMMIT_SCN, Constraint, LoggedTable, MlogOptions
from producer.sources.survey import MISSING, ExaminedTable
from producer.tables import TableName
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.records import Identity, StoredPosition
from tests.kits.oracle_poll import LOG, NAME, logged

FRESH = "2026-11-25T12:00:00"
HERE = TableSegments(7, frozenset([7]), "2026-11-01T00:00:00", 9, "", "2025:1/2025:1")
ALTERED = HERE._replace(altered="2026:1/2025:1")
RECORD = StoredPosition(
    source="s", gen=1, epoch=0, file=FILE, pos=2, ts_ms=7,
    identity=Identity(server_uuid="1/1/P", server_id=1, version="19", gtid_set=None),
)  # fmt: skip


def stopped(table: FollowedTable, now: TableSegments) -> str:
    """Return why a table stops that a look finds with the columns that it had; "": it does not."""
    here = logged()
    look = CatalogLook(
        FRESH, [], {NAME: now}, {NAME: (ExaminedTable(here.table, None), here)}, {}, several=False
    )
    found = judge_followed_table(NAME, table, look, here.table)
    assert found is None or isinstance(found, TableStoppedError)
    return "" if found is None else f"{found.cause}: {found.reason}"


@pytest.mark.parametrize(("before", "output"), [
    (logged(), "definition: BANK.A was altered, and it is unknown which rows"),
    (None, "definition: BANK.A was altered while it was not captured"),
])  # fmt: skip
def test_a_table_that_was_altered_stops_though_its_columns_look_the_same(
    before: LoggedTable | None, output: str
) -> None:
    """Its last column was dropped, and added again: rows of the log may have values that the table has
    lost."""
    assert stopped(FollowedTable(HERE, before), HERE) == ""
    assert stopped(FollowedTable(HERE, before), ALTERED).startswith(output)


def test_a_table_that_the_catalog_hides_is_not_taken_for_dropped() -> None:
    """No log shows whether it was dropped, or the user lost its right to it."""
    look = CatalogLook(FRESH, [], {}, {NAME: (MISSING, None)}, {}, several=False)
    found = judge_followed_table(NAME, FollowedTable(HERE, logged()), look, logged().table)
    assert isinstance(found, TableStoppedError)
    assert (found.cause, "GRANT SELECT ON BANK.A" in found.remedy) == ("unseen", True)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [(None, "the log of BANK.A no longer exists"), (Problem("the log lacks V", "add V"), "the log lacks V")],
)
def test_a_table_without_a_usable_log_stops_with_what_the_look_has_found(
    problem: Problem | None, reason: str
) -> None:
    survey = ExaminedTable(logged().table, problem)
    look = CatalogLook(FRESH, [], {NAME: HERE}, {NAME: (survey, None)}, {}, several=False)
    found = judge_followed_table(NAME, FollowedTable(HERE, logged()), look, logged().table)
    assert isinstance(found, TableStoppedError)
    assert (found.cause, found.reason) == ("unfit", reason)


@pytest.mark.parametrize(("defined", "stops"), [(logged().table, False), (None, True)])
def test_a_table_of_the_record_stops_unless_its_topic_has_the_same_definition(
    defined: Table | None, stops: bool
) -> None:
    look = CatalogLook(
        FRESH, [], {NAME: HERE}, {NAME: (ExaminedTable(logged().table, None), logged())}, {}, several=False
    )
    found = judge_followed_table(NAME, FollowedTable(HERE), look, defined)
    assert (found is not None) is stops


class Catalog:
    """`now`: the table, as the next look finds it."""

    instances = 1

    def __init__(self, now: LoggedTable) -> None:
        self.now_logged = now

    def read_server_time(self) -> tuple[int, str]:
        return 7, FRESH

    def list_logs(self) -> dict[TableName, MlogOptions]:
        return {NAME: LOG}

    def read_segments(self, *_: object) -> Mapping[TableName, TableSegments]:
        return {NAME: HERE}

    def list_refreshed_views(self, _names: object) -> Mapping[TableName, Sequence[str]]:
        return {}

    def count_instances(self) -> int:
        return self.instances

    def examine_tables(
        self, names: Sequence[TableName]
    ) -> Mapping[TableName, tuple[ExaminedTable, LoggedTable]]:
        return {name: (ExaminedTable(self.now_logged.table, None), self.now_logged) for name in names}


class Session:
    """Answers with the rows that the log has by then."""

    def __init__(self, *log: tuple[object, ...]) -> None:
        self.log = list(log)

    def fetch_rows(self, *_: object) -> list[tuple[object, ...]]:
        return list(self.log)


def test_rows_that_were_read_before_a_definition_are_published_with_those_behind_it() -> None:
    """Two rows that were equal in a unique index, which was added then, differ at the end of the first poll
    after it."""
    session: Any = Session(("R1", 1, "I", "N", None, 0, "1", "10"), ("R2", 2, "I", "N", None, 0, "2", "10"))
    catalog: Any = Catalog(logged(Constraint("U", "U", ("V",))))
    following = FollowedTables({NAME: FollowedTable(HERE, logged())})
    definitions = OracleDefinitions(session, catalog, following, lambda _: None)
    pace = PollPace(pause=0, seconds=lambda: 0.0, wait=lambda _: None)
    log = OracleLog(session, catalog, definitions, RECORD, lambda *_: True, pace=pace)
    assert [type(each) for each in log.read_changes(0)] == [Barrier, Boundary]
    session.log += [("R3", 3, "U", "U", None, 0, "2", "10"), ("R4", 4, "U", "N", None, 0, "2", "20")]
    rows, boundary = log.read_changes(0)
    assert isinstance(rows, OracleRows)
    assert [change.after for change in rows.changes] == [("1", "10"), ("2", "10"), ("2", "20")]
    assert isinstance(boundary, Boundary)


def test_tables_of_the_record_are_proven_by_one_look() -> None:
    catalog: Any = Catalog(logged())
    following = FollowedTables({NAME: FollowedTable(HERE)})
    definitions = OracleDefinitions(None, catalog, following, lambda _: None)  # type: ignore[arg-type]
    proven = definitions._prove_recorded_tables([NAME, ("BANK", "B")])
    assert proven == {NAME: ProvenDefinition(logged().table, None)}
    catalog.examine_tables = None
    assert definitions._prove_recorded_tables([("BANK", "B")]) == {}


@pytest.mark.parametrize(("by_commit", "several"), [(False, True), (True, False)])
def test_instances_are_counted_where_a_log_has_no_commit_numbers(by_commit: bool, several: bool) -> None:
    catalog: Any = Catalog(logged())
    catalog.instances = 2
    following = FollowedTables(
        {NAME: FollowedTable(HERE, logged()._replace(extra=frozenset({COMMIT_SCN} if by_commit else ())))}
    )
    watcher = CatalogWatcher(catalog, following, None)  # type: ignore[arg-type]
    assert watcher.examine_catalog(FRESH).several is several


def test_a_table_that_is_no_longer_captured_is_no_longer_followed() -> None:
    following = FollowedTables({NAME: FollowedTable(HERE, logged())}, captured=lambda *_: False)
    look = CatalogLook(FRESH, [], {}, {}, {}, several=False)
    watcher = CatalogWatcher(None, following, None)  # type: ignore[arg-type]
    assert list(watcher.yield_statements(look, None)) == []  # type: ignore[arg-type]
    assert following.tables == {}
