"""A target table that does not fit, or no longer: it stops its own unit, and the topics after it in the task
go on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from consumer.ordering.lanes.lane import LaneLimits
from consumer.targets.dialect import open_session
from consumer.targets.postgres.catalog import PostgresTargetCatalog
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.session import SqlSession
from schemas.problems import decode_problem
from schemas.table.model import Table
from tests.kits.apply import FakeSource, account_table
from tests.kits.attempts import Real, RealUnit, quoted, reals, route_of, rows_of
from tests.kits.targets import KINDS

real = reals(*KINDS)
FAST = LaneLimits(pause=0.001, max_pause=0.01)


def generated(real: Real) -> list[str]:
    kind = "varchar(200) GENERATED ALWAYS AS (owner) STORED"
    table = quoted(real, "bad")
    return [f"ALTER TABLE {table} DROP COLUMN note", f"ALTER TABLE {table} ADD COLUMN note {kind}"]


def dropped(real: Real) -> list[str]:
    return [f"DROP TABLE {quoted(real, 'bad')}"]


def narrower(real: Real) -> list[str]:
    return [f"ALTER TABLE {quoted(real, 'bad')} DROP COLUMN note"]


def identity(real: Real) -> list[str]:
    if real.schema != "public":
        return []
    return [f"ALTER TABLE {quoted(real, 'bad')} ALTER COLUMN version ADD GENERATED ALWAYS AS IDENTITY"]


SEEN = {
    generated: "column note is a generated column in the target",
    dropped: "the target table no longer exists",
    narrower: "lacks the columns",
    identity: "version are GENERATED ALWAYS",
}
DO = {
    generated: "make it an ordinary column",
    dropped: "restore it, or rowlock copy",
    narrower: "add them",
    identity: "ALTER TABLE",
}


@pytest.mark.parametrize("change", [generated, dropped, narrower, identity], ids=lambda each: each.__name__)
@pytest.mark.parametrize("meanwhile", [True, False])
@pytest.mark.parametrize("short", [0, 500])
def test_a_target_table_that_does_not_fit_stops_its_own_unit(
    real: Real, change: Callable[[Real], list[str]], meanwhile: bool, short: int
) -> None:
    """`meanwhile`: the worker knows the table as it was; else it begins with the table as it is."""
    bad, good = (
        RealUnit(real, FakeSource(account_table(name=name)), route_of(real), limits=FAST, small_batch=short)
        for name in ("bad", "good")
    )
    for unit in (bad, good):
        unit.write([unit.source.put(unit.source.row(1, None, 1))])
        assert unit.apply().state == "ok"
    statements = change(real)
    if not statements:
        pytest.skip("not on this server")
    for statement in statements:
        real.execute(statement)
    if not meanwhile:
        real.tables.clear()
    for unit in (bad, good):
        unit.write(
            [unit.source.put(unit.source.row(1, None, 2)), unit.source.put(unit.source.row(2, None, 1))]
        )
    report = bad.apply(len(bad.topic) - 2)
    assert report.state == "stopped", report
    problem = decode_problem(report.message)
    seen, remedy = problem.what, problem.action
    assert SEEN[change] in seen, "the cause in the target table, in the words of `check`"
    assert remedy.startswith(DO[change]), report.message
    assert "\n" not in seen + remedy
    assert real.session.read_progress(bad.unit)[1].stopped == report.message  # type: ignore[union-attr]
    assert good.apply(len(good.topic) - 2).state == "ok"
    assert good.rows() == rows_of(good.source)
    real.tables.clear()
    bad.take_over()
    again = bad.apply(0)
    assert again.state == "stopped", "a restart does not die of it, and makes no empty table in its place"


#: Column → its type at PostgreSQL, elsewhere; a value that the server would store as it is, one that it would
#: change.
LOSSY = {
    "balance": ("DECIMAL(12,1)", "DECIMAL(12,1)", "10.50", "10.55"),
    "opened": ("TIMESTAMP(3)", "DATETIME(3)", "2026-11-21 10:00:00.120000", "2026-11-21 10:00:00.123400"),
    "owner": ("VARCHAR(4)", "VARCHAR(4)", "abcd", "abcd  "),
    "note": ("CHARACTER(8)", "CHAR(8)", " n", "n "),
}


@pytest.mark.parametrize("short", [0, 500], ids=["lanes", "short-way"])
def test_a_value_that_the_server_would_change_is_held(real: Real, short: int) -> None:
    """No server refuses digits behind the point, and spaces at the end, that its column has no room for."""
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real), small_batch=short)
    assert unit.apply().state == "ok"
    for column, (at_postgres, elsewhere, _good, _bad) in LOSSY.items():
        null = "NULL" if column == "note" else "NOT NULL"
        how = (
            f"ALTER COLUMN {column} TYPE {at_postgres}"
            if real.schema == "public"
            else f"MODIFY {column} {elsewhere} {null}"
        )
        real.execute(f"ALTER TABLE {real.schema}.acct {how}")
    real.tables.clear()
    unit.take_over()
    row = {**source.row(1, None, 1), **{name: good for name, (*_, good, _bad) in LOSSY.items()}}
    odd = [{**row, "id": n, name: bad} for n, (name, (*_, bad)) in enumerate(LOSSY.items(), 2)]
    unit.write([source.put(row), *map(source.put, odd)])
    report = unit.apply(len(unit.topic) - 1 - len(odd))
    assert (report.state, report.held) == ("ok", len(odd)), report.message
    held = real.session.read_quarantine(unit.unit)
    assert [entry.error.partition(" of ")[0] for entry in held] == [f"column {name}" for name in LOSSY]
    assert [each[0] for each in unit.rows()] == [1]


def test_an_identity_that_is_always_generated_takes_the_sources_keys(real: Real) -> None:
    """Of a key the values are only ever inserted, which OVERRIDING SYSTEM VALUE allows."""
    if real.schema != "public":
        pytest.skip("PostgreSQL's")
    unit = RealUnit(real, FakeSource(account_table(name="keyed")), route_of(real))
    assert unit.apply().state == "ok"
    real.execute(f"ALTER TABLE {quoted(real, 'keyed')} ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY")
    real.tables.clear()
    for version in range(3):
        unit.write([unit.source.put(unit.source.row(key, None, version)) for key in range(60)])
        assert unit.apply(1).state == "ok"
    assert unit.rows() == rows_of(unit.source)


def test_a_definition_is_read_over_the_open_connection(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a connection of its own each read cost PostgreSQL several times as much."""
    if real.schema != "public":
        pytest.skip("PostgreSQL's")
    table = account_table(db="public", name="reread")
    real.session.create_table(table)
    monkeypatch.setattr(psycopg, "connect", None)
    for _ in range(2):
        found = real.session.read_table("public", "reread")
        assert found is not None
        assert found.column_names == table.column_names


def test_a_transaction_stays_open_while_a_definition_is_read(real: Real) -> None:
    """SQLAlchemy's own end of a read is a rollback."""
    if real.schema != "public":
        pytest.skip("PostgreSQL's")
    real.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    link = PostgresLink(real.config, "test")
    link.connect()
    catalog = PostgresTargetCatalog(real.config, link)
    with contextlib.closing(link):
        for number in range(2):
            link.execute("BEGIN", [])
            link.execute("INSERT INTO kept VALUES (%s)", [number])
            assert catalog.read_table("public", "kept") is not None
            link.commit()
        assert link.execute("SELECT id FROM kept ORDER BY id", []) == [(0,), (1,)]


def test_many_that_make_one_table_at_once_all_have_it(real: Real) -> None:
    """Units of two sources with one target table, workers with the bookkeeping: PostgreSQL fails all but
    one."""
    many = 12
    kind = "public" if real.schema == "public" else real.schema
    for attempt in range(5):
        table = account_table(db=f"{kind}_made{attempt}" if attempt % 2 else kind, name=f"made{attempt}")
        sessions = [open_session(real.config, name="test") for _ in range(many)]
        begin = threading.Barrier(many)

        def make(session: SqlSession, table: Table = table, begin: threading.Barrier = begin) -> bool:
            begin.wait(60)
            session.ensure_bookkeeping()
            session.create_table(table)
            return session.read_table(table.db, table.name) is not None

        try:
            with ThreadPoolExecutor(many) as pool:
                assert all(pool.map(make, sessions))
        finally:
            for session in sessions:
                session.close()
            for name in (
                "rowlock_progress",
                "rowlock_unit",
                "rowlock_quarantine",
                "rowlock_quarantine_closed",
                "rowlock_kept",
                "rowlock_displaced",
            ):
                real.execute(f"DROP TABLE IF EXISTS {quoted(real, name)}")
            if table.db != real.schema:
                cascade = " CASCADE" if real.schema == "public" else ""
                mark = '"' if real.schema == "public" else "`"
                real.execute(f"DROP SCHEMA {mark}{table.db}{mark}{cascade}")
