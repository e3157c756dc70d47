"""Stand (e): capture of a user's own Oracle, `make test-oracle DSN=…`. Never run where rowlock is developed:
each test is a claim to be proven.

Beside the tests of every source: the types' own texts from a snapshot and from the log, late commits, LOBs,
logs with keys only, and what no log shows. What a person looks at is tests.real_oracle.LOOK_AT.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence

import pytest

from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.session import OracleDriver, OracleSession, ResultRows
from schemas.io.oracle_connection import open_oracle
from tests.conformance import sources
from tests.kits import oracle_shared_rules as shared
from tests.kits.oracle_real import RealSite, stops
from tests.kits.oracle_real import site as site
from tests.kits.oracle_shared import OWN, Acknowledged, SharedCapture, table_of
from tests.kits.sources import captured
from tests.kits.waiting import until
from tests.real_oracle import dsn

pytestmark = pytest.mark.skipif(not dsn(), reason="an Oracle of one's own: make test-oracle DSN=…")
#: A server does not become another one, and tells a TRUNCATE from nothing else that replaces rows.
ALL = {
    name: each
    for name, each in vars(sources).items()
    if name.startswith("test_") and "become_another" not in inspect.getsource(each)
}
del ALL["test_an_emptied_table_is_empty"], ALL["test_a_definition_stands_before_its_rows"]
globals().update(ALL)
#: Column → (type, a value in SQL).
TYPES = {
    "n": ("NUMBER", "-0.5"), "n38": ("NUMBER(38,2)", "99999999999999999999999999999999999.99"),
    "neg": ("NUMBER(5,-2)", "12300"), "f": ("FLOAT", "1E-10"), "bf": ("BINARY_FLOAT", "BINARY_FLOAT_NAN"),
    "bd": ("BINARY_DOUBLE", "-BINARY_DOUBLE_INFINITY"), "c": ("CHAR(5 CHAR)", "'a'"),
    "nc": ("NCHAR(5)", "N'银'"), "v": ("VARCHAR2(20 CHAR)", "'naïve'"), "nv": ("NVARCHAR2(20)", "N'银行'"),
    "d": ("DATE", "TO_DATE('-4712-01-01', 'SYYYY-MM-DD')"),
    "t": ("TIMESTAMP(6)", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    "t9": ("TIMESTAMP(9)", "TIMESTAMP '2026-11-25 10:00:00.123456789'"),
    "tz": ("TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMP '2026-03-29 02:30:00.5 +05:30'"),
    "tl": ("TIMESTAMP(0) WITH LOCAL TIME ZONE", "TIMESTAMP '2026-11-25 10:00:00 +00:00'"),
    "ym": ("INTERVAL YEAR(4) TO MONTH", "INTERVAL '-2-3' YEAR TO MONTH"),
    "ds": ("INTERVAL DAY(9) TO SECOND(6)", "INTERVAL '2 03:04:05.000006' DAY TO SECOND"),
    "r": ("RAW(16)", "HEXTORAW('00FF')"),
}  # fmt: skip


ALTERS = {
    "add": ['ALTER TABLE "a" ADD ("note" VARCHAR2(10))', 'ALTER MATERIALIZED VIEW LOG ON "a" ADD ("note")'],
    "longer": ['ALTER TABLE "a" MODIFY ("version" NUMBER(19))'],
    "rename": [
        'ALTER TABLE "a" RENAME COLUMN "version" TO "v"',
        'ALTER TABLE "a" RENAME COLUMN "v" TO "version"',
    ],
}


@pytest.mark.parametrize("alter", ALTERS)
def test_an_alter_stops_the_table(site: RealSite, alter: str) -> None:
    """That ALL_OBJECTS.TIMESTAMP moves with each of them is from memory."""
    site.put("a", 1, 1)
    site.run()

    def altered() -> None:
        for statement in ALTERS[alter]:
            site.real.do(statement)

    site.run(altered, lambda: None)
    assert stops(site) == ["definition"]


@pytest.mark.parametrize("sql", ['CREATE INDEX "i" ON "a" ("version")', 'GRANT SELECT ON "a" TO PUBLIC'])
def test_a_statement_on_no_column_stops_nothing(site: RealSite, sql: str) -> None:
    site.run(lambda: site.real.do(sql), lambda: site.put("a", 1, 1))
    assert stops(site) == []


def test_a_view_that_comes_to_use_the_log_stops_the_table(site: RealSite) -> None:
    site.run()
    create = 'CREATE MATERIALIZED VIEW "other" REFRESH FAST ON DEMAND AS SELECT * FROM "a"'
    try:
        site.run(lambda: site.real.do(create), lambda: site.put("a", 1, 1), lambda: None)
        assert stops(site) == ["log"]
    finally:
        site.real.do('DROP MATERIALIZED VIEW "other"')


def test_a_log_with_commit_scns_is_read_in_their_order(site: RealSite) -> None:
    site.drop("a")
    site.real.create("a", {"version": "NUMBER(18)"}, ', COMMIT SCN ("version") INCLUDING NEW VALUES')
    other = open_oracle(site._server.server())
    with other.cursor() as cursor:
        cursor.execute('INSERT INTO "a" VALUES (1, 1)')  # an early number
    site.run(lambda: site.put("a", 2, 2), lambda: None, other.commit, lambda: site.put("a", 3, 1))
    other.close()
    site.run()
    assert captured(site, "a") == site.rows("a") == {1: 3, 2: 2}
    assert site.real.logged("a") == 0


class Between(OracleSession):
    """A writer commits between every two statements."""

    def __init__(self, driver: OracleDriver, writes: Callable[[], None]) -> None:
        super().__init__(driver)
        self._writes = writes

    def fetch_rows(self, sql: str, binds: Sequence[object] = ()) -> ResultRows:
        self._writes()
        return super().fetch_rows(sql, binds)

    def change_many(self, sql: str, binds: Sequence[Sequence[object]]) -> int:
        self._writes()
        return super().change_many(sql, binds)


def test_two_views_in_turn_lose_nothing(site: RealSite) -> None:
    """The rules of tests/kits/oracle_shared_rules.py, with another view that is refreshed meanwhile. Until
    this has passed, and LOOK_AT been looked at, a log that is shared is refused."""
    numbers = itertools.count(1)
    session = Between(site.real.driver(), lambda: site.put("a", next(numbers), next(numbers) % 7))
    ((_, logged),) = OracleCatalog(session).examine_tables([(site.db, "a")]).values()
    assert logged is not None
    topic, names = Acknowledged([]), (*OWN, "OTHER_MV")
    first = site.rows("a")
    try:
        for name in names:
            site.real.do(f'CREATE MATERIALIZED VIEW "{name}" REFRESH FAST ON DEMAND AS SELECT * FROM "a"')
        capture = SharedCapture(session, logged, topic)
        until(lambda: capture.now() > capture.views().high, "the second in which the views were made is over")
        first = site.rows("a")  # a snapshot
        for _ in range(20):
            capture.round()
            session.change_many(shared.REFRESH, [("OTHER_MV",)])
        last = capture.views().high
        quiet = OracleSession(site.real.driver())
        capture = SharedCapture(quiet, logged, topic)

        def read_on() -> bool:
            capture.round()
            return capture.views().low > last

        until(read_on, "both views are refreshed behind the last change", 120)
        capture.round()
        quiet.close()
    finally:
        session.close()
        for name in names:
            site.real.do(f'DROP MATERIALIZED VIEW "{name}"')
    found = first | {int(id_): int(version) for id_, (version,) in table_of(topic).items()}
    assert found == site.rows("a")
    places = topic.places()
    assert len(places) == len(set(places))


def test_check_finds_nothing(site: RealSite) -> None:
    source = site.source(site.config())
    findings, tables = source.check_source()
    source.close()
    assert (findings, tables) == ([], [(site.db, "a"), (site.db, "b")])


def test_every_type_is_the_same_from_a_snapshot_and_from_the_log(site: RealSite) -> None:
    site.drop("a")
    site.real.create("a", {"version": "NUMBER(18)", **{name: type_ for name, (type_, _) in TYPES.items()}})
    values = ", ".join(value for _, value in TYPES.values())
    site.real.do(f'INSERT INTO "a" VALUES (1, 1, {values})')
    site.run(lambda: site.put("a", 1, 1))
    read, *_, changed = [event.after for event in site.events("a") if event.after is not None]
    assert changed == read
    assert None not in (read or {}).values()


def test_late_commits_lose_nothing(site: RealSite) -> None:
    other = open_oracle(site._server.server())
    with other.cursor() as cursor:
        cursor.execute('INSERT INTO "a" VALUES (1, 1)')  # an early number

    site.run(lambda: site.put("a", 2, 2), lambda: None, other.commit, lambda: None)
    other.close()
    site.run()
    assert captured(site, "a") == site.rows("a") == {1: 1, 2: 2}
    assert site.real.logged("a") == 0


def test_a_key_that_moves_is_a_delete_and_an_insert(site: RealSite) -> None:
    site.put("a", 1, 1)
    site.run()
    site.run(lambda: site.real.do('UPDATE "a" SET "id" = 5, "version" = 2'))
    assert [event.op for event in site.events("a") if event.op in "cud"] == ["d", "c"]


@pytest.mark.parametrize("log", [None, ""])
def test_what_the_log_lacks_is_read_from_the_row(site: RealSite, log: str | None) -> None:
    """A LOB; and with `log` "" everything but the key."""
    site.drop("a")
    site.real.create("a", {"version": "NUMBER(18)", "note": "CLOB"}, log)
    site.run()

    def changes() -> None:
        site.real.do("""INSERT INTO "a" VALUES (1, 1, 'x')""")
        site.real.do("""UPDATE "a" SET "version" = 2, "note" = 'y'""")
        site.real.do("""INSERT INTO "a" VALUES (2, 1, NULL)""")

    site.run(changes)
    last = {event.after["id"]: event.after for event in site.events("a") if event.after is not None}
    assert {id_: (row["version"], row["note"]) for id_, row in last.items()} == {1: (2, "y"), 2: (1, None)}
    site.run(lambda: site.delete("a", 1, 2))
    assert captured(site, "a") == {}
    assert site.real.logged("a") == 0


@pytest.mark.parametrize(
    "sql",
    ['TRUNCATE TABLE "a"', 'ALTER TABLE "a" MOVE', 'INSERT /*+ APPEND */ INTO "a" SELECT 9, 9 FROM DUAL'],
)
def test_what_no_log_shows_stops_the_table(site: RealSite, sql: str) -> None:
    site.put("a", 1, 1)
    site.run()
    site.run(lambda: site.real.do(sql), lambda: site.put("b", 2, 1))
    assert stops(site) == ["rows-replaced"]


def test_rows_that_another_hand_deletes_are_missed(site: RealSite) -> None:
    site.run()
    (log,) = site.real.do("SELECT log_table FROM user_mview_logs WHERE master = 'a'")[0]
    driver = site.real.driver()
    places = driver.connect()
    site.put("a", 1, 1, 2)
    with places.cursor() as cursor:
        rows = cursor.execute(f'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$" FROM "{log}" l').fetchall()
        site.real.do("BEGIN DBMS_MVIEW.PURGE_LOG('\"a\"', 9999); END;")
        cursor.executemany(
            f'DELETE FROM "{log}" WHERE ROWID = :1 AND "SEQUENCE$$" = :2', [list(row) for row in rows]
        )
        assert cursor.rowcount == 0
    places.close()
