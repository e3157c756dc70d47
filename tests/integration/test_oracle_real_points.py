"""Stand (e), the points of issue 14 beside test_oracle_real_source.py, on a user's own Oracle: `make
test-oracle DSN=…`. Never run where rowlock is developed.

What is done is in tests/kits/oracle_points.py; what a person looks at is tests.real_oracle.LOOK_AT.
"""

from __future__ import annotations

import contextlib

import pytest

from schemas.findings import Finding
from schemas.io.oracle_connection import open_oracle
from tests.kits.oracle_points import (
    BY_COMMIT,
    ENDS,
    NOT_CAPTURED,
    NOT_SHOWN,
    REFUSED_LOGS,
    STAGING,
    WHOLE,
    End,
)
from tests.kits.oracle_real import RealSite, site, stops
from tests.kits.sources import captured
from tests.real_oracle import dsn

pytestmark = pytest.mark.skipif(not dsn(), reason="an Oracle of one's own: make test-oracle DSN=…")
__all__ = ["site"]
COLUMNS = '"id" NUMBER(10) PRIMARY KEY, "version" NUMBER(18), "note" VARCHAR2(20 CHAR)'


def with_log(site: RealSite, log: str, columns: str = COLUMNS, rest: str = "") -> None:
    """Make the table `a` anew; `log` "": without one."""
    site.drop("a")
    site.real.do(f'CREATE TABLE "a" ({columns}){rest}')
    if log:
        site.real.do(f'CREATE MATERIALIZED VIEW LOG ON "a" {log}')


def checked(site: RealSite) -> list[Finding]:
    source = site.source(site.config("a"))
    findings, _ = source.check_source()
    source.close()
    return findings


# --- 1: what `check` says of logs


@pytest.mark.parametrize("log", REFUSED_LOGS)
def test_a_log_that_will_not_do_is_refused_and_the_printed_statement_heals_it(
    site: RealSite, log: str
) -> None:
    with_log(site, log)
    [finding] = checked(site)
    assert REFUSED_LOGS[log] in finding.message
    if log:
        site.real.do('DROP MATERIALIZED VIEW LOG ON "a"')
    site.real.do(finding.remedy.removesuffix(" in its place"))
    assert checked(site) == []
    site.put("a", 1, 1)
    site.run(lambda: site.put("a", 2, 1), tables="a")
    assert captured(site, "a") == {1: 2}


def test_a_staging_log_is_refused(site: RealSite) -> None:
    with_log(site, STAGING)
    [finding] = checked(site)
    assert "staging log" in finding.message


def test_a_log_that_others_refresh_from_is_refused(site: RealSite) -> None:
    site.real.do('CREATE MATERIALIZED VIEW mv REFRESH FAST ON DEMAND AS SELECT "id", "version" FROM "a"')
    [finding] = checked(site)
    assert "MV" in finding.message
    assert "its log" in finding.message


def test_columns_that_no_log_holds_are_named(site: RealSite) -> None:
    with_log(
        site, 'WITH PRIMARY KEY, SEQUENCE ("version") INCLUDING NEW VALUES',
        COLUMNS.replace("VARCHAR2(20 CHAR)", "CLOB")
    )  # fmt: skip
    [finding] = checked(site)
    assert finding.level == "warning"
    assert finding.message.startswith(
        "materialized view logs do not contain note, so capture reads their current values at the poll"
    )


@pytest.mark.parametrize("type_", NOT_CAPTURED)
def test_a_type_that_is_not_captured_is_refused_by_name(site: RealSite, type_: str) -> None:
    with_log(site, "", COLUMNS.replace("VARCHAR2(20 CHAR)", type_))
    [finding] = checked(site)
    assert "column note has type" in finding.message


# --- 2: order, transactions, values


@pytest.mark.parametrize("log", [WHOLE, BY_COMMIT])
def test_late_commits_and_transactions_side_by_side(site: RealSite, log: str) -> None:
    """Two transactions draw numbers in turn, and the one that began first commits last."""
    with_log(site, log)
    site.run(tables="a")
    first, second = (open_oracle(site._server.server()) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        for number in range(1, 4):
            for at, each in enumerate((first, second)):
                with each.cursor() as cursor:
                    cursor.execute('INSERT INTO "a" VALUES (:1, 1, NULL)', [10 * at + number])

        def commits() -> None:
            second.commit()
            first.commit()

        site.run(commits, lambda: None, tables="a")
    assert captured(site, "a") == site.rows("a")
    xids = [event.log.xid for event in site.events("a") if event.log is not None]
    runs = [xid for at, xid in enumerate(xids) if at == 0 or xids[at - 1] != xid]
    assert len(runs) == len(set(runs)) == 2, "each transaction's changes stand together"
    assert site.real.logged("a") == 0


def test_all_changes_of_a_row_in_one_transaction(site: RealSite) -> None:
    with_log(site, WHOLE)
    site.put("a", 1, *range(1, 6))
    site.run(tables="a")

    def changes() -> None:
        for sql in (
            'UPDATE "a" SET "version" = 2 WHERE "id" = 1',
            'UPDATE "a" SET "id" = 9, "version" = 3 WHERE "id" = 2', 'DELETE FROM "a" WHERE "id" = 3',
            'INSERT INTO "a" VALUES (3, 4, NULL)',
            'UPDATE "a" SET "id" = "id" + 1, "version" = 5 WHERE "id" IN (4, 5)',
            """UPDATE "a" SET "note" = '' WHERE "id" = 1""",
        ):  # fmt: skip
            with site.real.own.cursor() as cursor:
                cursor.execute(sql)
        site.real.own.commit()

    site.run(changes, tables="a")
    assert captured(site, "a") == site.rows("a") == {1: 2, 3: 4, 5: 5, 6: 5, 9: 3}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{end.type} {end.literal[:30]}")
def test_the_ends_of_a_type_from_a_snapshot_and_from_the_log(site: RealSite, end: End) -> None:
    lob = end.type.endswith("LOB")
    log = 'WITH PRIMARY KEY, SEQUENCE ("version"{}) INCLUDING NEW VALUES'.format("" if lob else ', "note"')
    with_log(site, log, COLUMNS.replace("VARCHAR2(20 CHAR)", end.type))
    site.real.do(f'INSERT INTO "a" VALUES (1, 1, {end.literal})')
    site.run(lambda: site.put("a", 2, 1), tables="a")
    images = [event.after["note"] for event in site.events("a") if event.after is not None]
    assert [repr(value) for value in images] == [repr(end.wire)] * len(images)
    assert len(images) >= 2


# --- 3 and 4: what no log shows


@pytest.mark.parametrize("sql", NOT_SHOWN)
def test_what_no_log_shows_stops_a_partitioned_table(site: RealSite, sql: str) -> None:
    parts = (
        ' PARTITION BY RANGE ("id") (PARTITION p1 VALUES LESS THAN (100), PARTITION p2 '
        "VALUES LESS THAN (MAXVALUE))"
    )
    with_log(site, WHOLE, rest=parts)
    site.put("a", 1, 1, 200)
    site.run()
    site.run(lambda: site.real.do(sql), lambda: site.put("b", 2, 1))
    assert stops(site) == [NOT_SHOWN[sql]]


@pytest.mark.parametrize("before", [True, False])
def test_a_partition_that_comes_with_rows_stops_the_table(site: RealSite, before: bool) -> None:
    """`before`: the partition was there, and empty; else it is new, too."""
    with_log(site, WHOLE, rest=' PARTITION BY RANGE ("id") (PARTITION p1 VALUES LESS THAN (100))')
    new = 'ALTER TABLE "a" ADD PARTITION p2 VALUES LESS THAN (200)'
    if before:
        site.real.do(new)
    site.real.do(f'CREATE TABLE "x" ({COLUMNS})')
    site.real.do('INSERT INTO "x" VALUES (150, 1, NULL)')
    site.put("a", 1, 1)
    site.run()

    def comes() -> None:
        if not before:
            site.real.do(new)
        site.real.do('ALTER TABLE "a" EXCHANGE PARTITION p2 WITH TABLE "x" UPDATE GLOBAL INDEXES')

    site.run(comes, lambda: site.put("b", 2, 1))
    assert stops(site) == ["rows-replaced"]


def test_a_truncate_of_an_index_organized_table_stops_it(site: RealSite) -> None:
    with_log(site, WHOLE, rest=" ORGANIZATION INDEX")
    site.put("a", 1, 1)
    site.run()
    site.run(lambda: site.real.do('TRUNCATE TABLE "a"'), lambda: site.put("b", 2, 1))
    assert stops(site) == ["rows-replaced"]


def test_another_log_stops_the_table(site: RealSite) -> None:
    site.put("a", 1, 1)
    site.run()

    def another() -> None:
        site.real.do('DROP MATERIALIZED VIEW LOG ON "a"')
        site.real.do(
            'CREATE MATERIALIZED VIEW LOG ON "a" WITH PRIMARY KEY, SEQUENCE ("version") INCLUDING NEW VALUES'
        )

    site.run(another, lambda: site.put("b", 2, 1))
    assert stops(site) == ["rows-replaced"]


def test_a_table_that_is_dropped_and_made_again_stops(site: RealSite) -> None:
    site.put("a", 1, 1)
    site.run()
    site.run(lambda: with_log(site, WHOLE), lambda: site.put("b", 2, 1))
    assert stops(site) == ["rows-replaced"]


def test_a_new_partition_stops_nothing(site: RealSite) -> None:
    with_log(site, WHOLE, rest=' PARTITION BY RANGE ("id") (PARTITION p1 VALUES LESS THAN (100))')
    site.put("a", 1, 1)
    site.run()
    site.run(
        lambda: site.real.do('ALTER TABLE "a" ADD PARTITION p2 VALUES LESS THAN (200)'),
        lambda: site.put("a", 2, 1, 150)
    )  # fmt: skip
    assert stops(site) == []
    assert captured(site, "a") == {1: 2, 150: 2}
