"""Whole product: statements that empty, replace or swap rows under an unchanged definition. No unit says "ok" over wrong rows.

Before, every one of these tables kept deleted rows, or lacked new ones, under units that said "current".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock.cli import main
from tests.kits.running import Run, running, source_config, target_config, write_config
from tests.kits.waiting import until

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
    "g": ("(id INT PRIMARY KEY, v INT, s INT AS (v + 1) STORED)", ("ALTER TABLE g MODIFY s INT AS (v + 100) STORED",)),
    "control": (PARTITIONED, ("ALTER TABLE control ADD INDEX i (v)", ("ALTER TABLE control ADD PARTITION "
                              "(PARTITION p2 VALUES LESS THAN (200))"), "ALTER TABLE control FORCE")),
}  # fmt: skip
SOURCES = ("ma", "my")


@dataclass
class System:
    """`db`: the database at each server, and the Kafka prefix. A table of a source is `<table>_<source>` at the target."""

    config: Path
    db: str
    sources: dict[str, MariaDB | MySQL]
    target: PostgreSQL

    def change(self, source: str, *statements: str) -> None:
        for statement in statements:
            self.sources[source].execute(statement, database=self.db)

    def at_source(self, source: str, table: str) -> list[tuple[Any, ...]]:
        return [
            tuple(row)
            for row in self.sources[source].execute(f"SELECT * FROM {table} ORDER BY id", database=self.db)
        ]

    def at_target(self, source: str, table: str) -> list[tuple[Any, ...]] | None:
        try:
            return [
                tuple(row)
                for row in self.target.execute(
                    f"SELECT * FROM {table}_{source} ORDER BY id", database=self.db
                )
            ]
        except Exception:  # noqa: BLE001 - not there yet
            return None

    def equal(self, source: str, table: str) -> bool:
        return self.at_source(source, table) == self.at_target(source, table)

    def units(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the units of `status` by source and table."""
        found = CliRunner().invoke(main, ["status", "--output", "json", "-c", str(self.config)])
        units = json.loads(found.stdout)["units"]
        return {tuple(unit["topic"].split(".")[1::2]): unit for unit in units}  # type: ignore[misc]


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str
) -> Iterator[System]:
    servers: dict[str, MariaDB | MySQL] = {"ma": mariadb, "my": mysql}
    for server in (mariadb, mysql, postgres):
        server.create_database(unique)
    tables = [f"{unique}.*", f"!{unique}.stage_*", f"!{unique}.*_old", f"!{unique}.tmpq"]
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        spark={"memory": "512m"},
        sources={
            "ma": {**source_config(mariadb, "mariadb", unique), "tables": tables},
            "my": {**source_config(mysql, "mysql", unique), "tables": tables},
        },
        targets={"pg": target_config(postgres, "postgres", unique)},
        pipelines={
            "p": {"sources": list(SOURCES), "target": "pg", "schema_changes": "stop", "repair": "stop",
                  "routes": [{"from": f"{unique}.*", "to": "public.{table}_{source}"}]},
        },
    )  # fmt: skip
    made = System(config, unique, servers, postgres)
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
    yield made
    for server in (mariadb, mysql, postgres):
        server.drop_database(unique)


def test_no_unit_is_ok_over_wrong_rows(system: System, tmp_path: Path) -> None:
    with running(system.config, tmp_path) as run:
        _arrived(system, run)
        for source in SOURCES:
            for table, (_, statements) in CASES.items():
                system.change(source, *statements, f"INSERT INTO {table} (id, v) VALUES (30, 30)")
        wrong = [(source, table) for source in SOURCES for table in CASES if table != "control"]
        until(
            lambda: all(_stopped(system, run, *each) for each in wrong),
            f"every changed table's unit stops: {system.units()}; see {run.log}", 400,
        )  # fmt: skip
        for source in SOURCES:
            until(
                lambda source=source: system.equal(source, "control"),
                f"the control of {source}; see {run.log}",
                200,
            )  # type: ignore[misc]
            assert system.units()[source, "control"]["state"] != "stopped"
        for source, table in wrong:
            rows = system.at_target(source, table)
            assert rows is not None
            assert 30 not in [row[0] for row in rows], (
                f"{source} {table}: nothing behind the cause is applied"
            )
        assert run.stop() == 0


def _arrived(system: System, run: Run) -> None:
    for source in SOURCES:
        for table in CASES:
            until(
                lambda source=source, table=table: system.equal(source, table),  # type: ignore[misc]
                f"the snapshot of {table} from {source}; see {run.log}", 400,
            )  # fmt: skip


def _stopped(system: System, run: Run, source: str, table: str) -> bool:
    assert run.process.poll() is None, f"it runs; see {run.log}"
    unit = system.units().get((source, table))
    return unit is not None and unit["state"] == "stopped" and bool(unit["stopped"])
