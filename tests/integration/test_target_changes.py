"""What is done to targets while rowlock runs: it stops what it concerns, says so, and goes on by itself once it is undone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from click.testing import CliRunner

from consumer.units.decisions import STOPPED_RETRY_S
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock.cli import main
from tests.kits.running import Run, source_config, target_config, write_config
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

PATIENCE = 300
PASSWORD = "its own"
RIGHTS = "SELECT, INSERT, UPDATE, DELETE, CREATE, TRIGGER"
TABLES = ("watched", "dropped", "calm")
Rows = list[tuple[Any, ...]]


@dataclass
class System:
    """A source and two targets, each written by a user with the documented rights."""

    db: str
    source: MariaDB
    pg: PostgreSQL
    my: MySQL
    run: Run

    def change(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement, database=self.db)

    def rows(self, pipeline: str, query: str) -> Rows | None:
        server = self.pg if pipeline == "pg" else self.my
        try:
            return [tuple(row) for row in server.execute(query, database=self.db)]
        except (psycopg.Error, pymysql.MySQLError):
            return None

    def arrives(self, query: str, rows: Rows, *pipelines: str, seconds: float = PATIENCE) -> None:
        for pipeline in pipelines or ("pg", "my"):
            until(
                lambda pipeline=pipeline: self.rows(pipeline, query) == rows,  # type: ignore[misc]
                f"{query}: {rows} in {pipeline}; see {self.run.log}",
                seconds,
            )

    def unit(self, pipeline: str, table: str) -> dict[str, Any]:
        result = CliRunner().invoke(main, ["status", "--output", "json", "-c", str(self.run.config)])
        units = json.loads(result.stdout)["units"]
        topic = f"{self.db}.b1.{self.db}.{table}"
        return next(each for each in units if (each["pipeline"], each["topic"]) == (pipeline, topic))

    def stops(self, pipeline: str, table: str) -> dict[str, Any]:
        """Await that a unit is stopped, and return what status says of it."""

        def look() -> dict[str, Any] | None:
            found = self.unit(pipeline, table)
            return found if found["state"] == "stopped" else None

        found: dict[str, Any] = until(look, f"{pipeline} {table} stops; see {self.run.log}", PATIENCE)
        return found


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str
) -> Iterator[System]:
    for server in (mariadb, postgres, mysql):
        server.create_database(unique)
    for statement in (
        f"CREATE USER {unique} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT {RIGHTS} ON {unique}.* TO {unique}",
        f"GRANT SELECT ON performance_schema.* TO {unique}",
        f"GRANT PROCESS ON *.* TO {unique}",
    ):
        mysql.execute(statement)
    for statement in (
        f"CREATE ROLE {unique} LOGIN PASSWORD '{PASSWORD}'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {unique}",
    ):
        postgres.execute(statement, database=unique)
    account = {"user": unique, "password": PASSWORD}
    targets: dict[str, tuple[PostgreSQL | MySQL, str]] = {
        "pg": (postgres, "postgres"), "my": (mysql, "mysql")
    }  # fmt: skip
    places = {"pg": "public", "my": unique}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        spark={"memory": "512m"},
        sources={"b1": source_config(mariadb, "mariadb", unique)},
        targets={name: target_config(server, kind, unique) | account for name, (server, kind) in targets.items()},
        pipelines={
            name: {
                "sources": ["b1"], "target": name, "lanes": 2, "schema_changes": "stop", "repair": "stop",
                "routes": [{"from": f"{unique}.*", "to": f"{places[name]}.{{table}}"}],
            }
            for name in targets
        },
    )  # fmt: skip
    made = System(unique, mariadb, postgres, mysql, Run(config, tmp_path / "run.log"))
    try:
        yield made
    finally:
        made.run.close()
        for server in (mariadb, postgres, mysql):
            with contextlib.suppress(Exception):
                server.drop_database(unique)
        postgres.execute(f"DROP ROLE IF EXISTS {unique}")
        mysql.execute(f"DROP USER IF EXISTS {unique}")


def test_what_is_done_to_targets_stops_what_it_concerns_until_it_is_undone(system: System) -> None:
    """One life of a system: each step stands on the one before it."""
    for table in TABLES:
        system.change(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20) UNIQUE)",
            f"INSERT INTO {table} VALUES (1, 'one')",
        )
    system.run.start()
    for table in TABLES:
        system.arrives(f"SELECT * FROM {table}", [(1, "one")])
    a_trigger_that_appears_stops_its_table_though_no_statement_fails(system)
    a_dropped_table_stops_with_a_remedy_that_loses_nothing(system)
    rights_that_are_revoked_and_given_back_need_nobody(system)
    a_java_process_that_is_killed_is_replaced(system)


def a_trigger_that_appears_stops_its_table_though_no_statement_fails(system: System) -> None:
    """On PostgreSQL updates come to nothing, on MySQL to something else; nothing tells but a look at the table."""
    system.pg.execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER keeps BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION nothing()",
        database=system.db,
    )
    system.my.execute(
        "CREATE TRIGGER other BEFORE UPDATE ON watched FOR EACH ROW SET NEW.v = 'other'", database=system.db
    )
    for pipeline in ("pg", "my"):
        found = system.stops(pipeline, "watched")
        assert "has triggers: " in found["reason"]
        assert found["remedy"] == "drop them in the target"
    system.change("UPDATE watched SET v = 'two'", "UPDATE calm SET v = 'two'")
    system.arrives("SELECT v FROM calm", [("two",)])
    assert [system.rows(each, "SELECT v FROM watched") for each in ("pg", "my")] == [[("one",)], [("one",)]]
    system.pg.execute("DROP TRIGGER keeps ON watched", database=system.db)
    system.my.execute("DROP TRIGGER other", database=system.db)
    system.arrives("SELECT v FROM watched", [("two",)])


def a_dropped_table_stops_with_a_remedy_that_loses_nothing(system: System) -> None:
    for server in (system.pg, system.my):
        server.execute("DROP TABLE dropped", database=system.db)
    system.change("INSERT INTO dropped VALUES (2, 'after')")
    for pipeline in ("pg", "my"):
        found = system.stops(pipeline, "dropped")
        assert "no longer exists, nor the rows that were applied to it" in found["reason"]
        assert found["remedy"].startswith("restore it, or rowlock copy")


def rights_that_are_revoked_and_given_back_need_nobody(system: System) -> None:
    """Also those on the bookkeeping, so that nothing can be looked at meanwhile."""
    user = system.db
    system.pg.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {user}", database=user)
    system.my.execute(f"REVOKE ALL ON {user}.* FROM {user}")
    system.change("UPDATE calm SET v = 'three'")
    log = system.run.log
    until(lambda: log.read_text().count("unit not readable") >= 4, f"nothing can be seen: {log}", PATIENCE)
    system.pg.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}", database=user)
    system.my.execute(f"GRANT {RIGHTS} ON {user}.* TO {user}")
    system.arrives("SELECT v FROM calm", [("three",)], seconds=STOPPED_RETRY_S * 0.7)


def a_java_process_that_is_killed_is_replaced(system: System) -> None:
    """By the kernel, say, for want of memory. Nothing would be applied any more, and the units said to be current."""
    (java,) = system.run.find("org.apache.spark.deploy.SparkSubmit")
    java.kill()
    system.change("UPDATE calm SET v = 'four'")
    system.arrives("SELECT v FROM calm", [("four",)])
    # A takeover's hand may have applied that already; the process ends all the same, and what comes then goes through the next one.
    log = system.run.log
    until(lambda: "Spark's Java process has ended" in log.read_text(), f"it is noticed: {log}", PATIENCE)
    until(lambda: system.run.find("org.apache.spark.deploy.SparkSubmit"), f"another Java: {log}", PATIENCE)
    system.change("UPDATE calm SET v = 'five'")
    system.arrives("SELECT v FROM calm", [("five",)])
