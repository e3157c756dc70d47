"""Whole product: statements that empty, replace or swap rows under an unchanged definition. No unit reports
"ok" over wrong rows.

Before, every one of these tables kept deleted rows, or lacked new ones, under units that reported "current".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_run import Rows, Source, WholeRun, whole_run

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

PARTITIONED = (
    "(id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
    "PARTITION p1 VALUES LESS THAN (100))"
)
PLAIN = "(id INT PRIMARY KEY, v INT)"
#: A captured table → its form, and what is done to it (each followed by an INSERT).
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "p": (PARTITIONED, ("ALTER TABLE p DROP PARTITION p0",)),
    "d": (PLAIN, ("DROP TABLE d", f"CREATE TABLE d {PLAIN}")),
    "r": (PLAIN, ("RENAME TABLE r TO r_old, stage_r TO r",)),
    "q1": (PLAIN, ("RENAME TABLE q1 TO tmpq, q2 TO q1, tmpq TO q2",)),
    "q2": (PLAIN, ()),
    "x": (PARTITIONED, ("ALTER TABLE x EXCHANGE PARTITION p0 WITH TABLE stage_x",)),
    "tr": (PARTITIONED, ("ALTER TABLE tr TRUNCATE PARTITION p0",)),
    "g": ("(id INT PRIMARY KEY, v INT, s INT AS (v + 1) STORED)",
     ("ALTER TABLE g MODIFY s INT AS (v + 100) STORED",)),
    "steady": (PARTITIONED, ("ALTER TABLE steady ADD INDEX i (v)", ("ALTER TABLE steady ADD PARTITION "
                              "(PARTITION p2 VALUES LESS THAN (200))"), "ALTER TABLE steady FORCE")),
}  # fmt: skip
REMOVING = ("p", "tr")
"""Tables of which the statement only removes rows: every later event is right, and the target's old rows are
a debt (docs/adr/0041-partition-retention.md), which waits for a person by `repair: stop`."""
SOURCES = ("ma", "my")


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str
) -> Iterator[WholeRun]:
    """A table of a source is `<table>_<source>` at the target."""
    pipelines = {
        "p": {"sources": list(SOURCES), "target": "pg", "schema_changes": "stop", "repair": "stop",
              "routes": [{"from": f"{unique}.*", "to": "public.{table}_{source}"}]},
    }  # fmt: skip
    servers: dict[str, Source] = {"ma": mariadb, "my": mysql}
    with whole_run(tmp_path, unique, kafka, servers, {"pg": postgres}, pipelines) as made:
        for source in made.parts["sources"].values():
            source["tables"] += [f"!{unique}.stage_*", f"!{unique}.*_old", f"!{unique}.tmpq"]
        made.write_parts()
        create_tables(made)
        yield made


def create_tables(made: WholeRun) -> None:
    for source in SOURCES:
        for table, (form, _) in CASES.items():
            made.change(
                source,
                f"CREATE TABLE {table} {form}",
                f"INSERT INTO {table} (id, v) VALUES (1, 1), (2, 2), (11, 1)",
            )
        made.change(
            source,
            f"CREATE TABLE stage_r {PLAIN}",
            f"CREATE TABLE stage_x {PLAIN}",
            "INSERT INTO stage_r VALUES (7, 7), (8, 8)",
        )
        made.change(source, "INSERT INTO stage_x VALUES (5, 5)")


def at_target(system: WholeRun, source: str, table: str) -> Rows | None:
    return system.read("pg", f"SELECT * FROM {table}_{source} ORDER BY id")


def is_equal(system: WholeRun, source: str, table: str) -> bool:
    rows = system.read_source(source, f"SELECT * FROM {table} ORDER BY id")
    return rows == at_target(system, source, table)


def test_no_unit_is_ok_over_wrong_rows(system: WholeRun) -> None:
    system.run.start()
    for source in SOURCES:
        for table in CASES:
            await_equal(system, source, table)
    for source in SOURCES:
        for table, (_, statements) in CASES.items():
            system.change(source, *statements, f"INSERT INTO {table} (id, v) VALUES (30, 30)")
    harmless = (*REMOVING, "steady")
    wrong = [(source, table) for source in SOURCES for table in CASES if table not in harmless]
    system.run.until(
        lambda: all(is_stopped(system, *each) for each in wrong),
        "every changed table's unit stops", 400,
    )  # fmt: skip
    for source in SOURCES:
        await_equal(system, source, "steady")
        for table in harmless:
            control = system.unit("p", source, table)
            assert control is not None
            assert control["state"] != "stopped"
        for table in REMOVING:
            await_debt(system, source, table)
    for source, table in wrong:
        rows = at_target(system, source, table)
        assert rows is not None
        assert 30 not in [row[0] for row in rows], f"{source} {table}: nothing behind the cause is applied"
    assert system.run.stop() == 0


def await_equal(system: WholeRun, source: str, table: str) -> None:
    system.run.until(lambda: is_equal(system, source, table), f"the rows of {table} of {source}", 400)


def await_debt(system: WholeRun, source: str, table: str) -> None:
    system.run.until(lambda: has_debt(system, source, table), f"the debt of {table} of {source}", 400)


def has_debt(system: WholeRun, source: str, table: str) -> bool:
    """Return whether the later row is applied, and `status` shows the removed rows, which are still there."""
    unit, rows = system.unit("p", source, table), at_target(system, source, table) or []
    return (
        unit is not None
        and "removed rows" in str(unit["reason"])
        and [row[0] for row in rows] == [1, 2, 11, 30]
    )


def is_stopped(system: WholeRun, source: str, table: str) -> bool:
    unit = system.unit("p", source, table)
    return unit is not None and unit["state"] == "stopped" and bool(unit["stopped"])
