"""Changes to targets while rowlock runs: rowlock stops what they concern, reports it, and goes on by itself
once they are undone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from consumer.units.transitions import STOPPED_RETRY_S
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_run import Target, WholeRun, whole_run

pytestmark = pytest.mark.timeout(1200)

PATIENCE = 300
PASSWORD = "its own"
RIGHTS = "SELECT, INSERT, UPDATE, DELETE, CREATE, TRIGGER"
TABLES = ("watched", "dropped", "calm")


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str
) -> Iterator[WholeRun]:
    """A source and two targets, each written by a user with the documented rights."""
    places = {"pg": "public", "my": unique}
    pipelines = {
        name: {
            "sources": ["b1"], "target": name, "lanes": 2, "schema_changes": "stop", "repair": "stop",
            "routes": [{"from": f"{unique}.*", "to": f"{place}.{{table}}"}],
        }
        for name, place in places.items()
    }  # fmt: skip
    targets: dict[str, Target] = {"pg": postgres, "my": mysql}
    with whole_run(tmp_path, unique, kafka, {"b1": mariadb}, targets, pipelines) as made:
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
        for target in made.parts["targets"].values():
            target |= {"user": unique, "password": PASSWORD}
        made.write_parts()
        yield made
    postgres.execute(f"DROP ROLE IF EXISTS {unique}")
    mysql.execute(f"DROP USER IF EXISTS {unique}")


def test_what_is_done_to_targets_stops_what_it_concerns_until_it_is_undone(system: WholeRun) -> None:
    """One life of a system: each step begins with what the one before it has left."""
    for table in TABLES:
        system.change(
            "b1",
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


def a_trigger_that_appears_stops_its_table_though_no_statement_fails(system: WholeRun) -> None:
    """On PostgreSQL updates have no effect, on MySQL they write another value; only a look at the table shows
    it."""
    system.targets["pg"].execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER keeps BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION nothing()",
        database=system.db,
    )
    system.targets["my"].execute(
        "CREATE TRIGGER other BEFORE UPDATE ON watched FOR EACH ROW SET NEW.v = 'other'", database=system.db
    )
    for pipeline in ("pg", "my"):
        found = await_stop(system, pipeline, "watched")
        assert "has triggers: " in found["reason"]
        assert found["remedy"] == "drop them in the target"
    system.change("b1", "UPDATE watched SET v = 'two'", "UPDATE calm SET v = 'two'")
    system.arrives("SELECT v FROM calm", [("two",)])
    assert [system.read(each, "SELECT v FROM watched") for each in ("pg", "my")] == [[("one",)], [("one",)]]
    system.targets["pg"].execute("DROP TRIGGER keeps ON watched", database=system.db)
    system.targets["my"].execute("DROP TRIGGER other", database=system.db)
    system.arrives("SELECT v FROM watched", [("two",)])


def await_stop(system: WholeRun, pipeline: str, table: str) -> dict[str, Any]:
    return system.await_state(
        f"{pipeline} {table} stops", lambda: system.unit(pipeline, "b1", table), "stopped"
    )


def a_dropped_table_stops_with_a_remedy_that_loses_nothing(system: WholeRun) -> None:
    for server in system.targets.values():
        server.execute("DROP TABLE dropped", database=system.db)
    system.change("b1", "INSERT INTO dropped VALUES (2, 'after')")
    for pipeline in ("pg", "my"):
        found = await_stop(system, pipeline, "dropped")
        assert "no longer exists, nor the rows that were applied to it" in found["reason"]
        assert found["remedy"].startswith("restore it, or rowlock copy")
    began = time.monotonic()
    copied = system.invoke("copy", f"{system.db}.dropped", "--wait")
    assert copied.exit_code == 0, copied.output
    assert time.monotonic() - began < STOPPED_RETRY_S * 0.7, "its unit takes the copy when it begins"
    system.arrives("SELECT * FROM dropped ORDER BY id", [(1, "one"), (2, "after")])


def rights_that_are_revoked_and_given_back_need_nobody(system: WholeRun) -> None:
    """Also those on the bookkeeping, so that nothing can be looked at meanwhile."""
    user = system.db
    system.targets["pg"].execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {user}", database=user)
    system.targets["my"].execute(f"REVOKE ALL ON {user}.* FROM {user}")
    system.change("b1", "UPDATE calm SET v = 'three'")
    log = system.run.log
    system.run.until(lambda: log.read_text().count("unit not checked") >= 4, "nothing can be seen", PATIENCE)
    system.targets["pg"].execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}", database=user)
    system.targets["my"].execute(f"GRANT {RIGHTS} ON {user}.* TO {user}")
    system.arrives("SELECT v FROM calm", [("three",)], seconds=STOPPED_RETRY_S * 0.7)


def a_java_process_that_is_killed_is_replaced(system: WholeRun) -> None:
    """By the kernel, for example, for lack of memory. Otherwise nothing would be applied any more, and the
    units would be reported as current."""

    def find_java() -> list[psutil.Process]:
        return system.run.find("org.apache.spark.deploy.SparkSubmit")

    # For a moment of its start, its launcher has the class in its command line, too.
    system.run.until(lambda: len(find_java()) == 1, "one Java process", PATIENCE)
    find_java()[0].kill()
    system.change("b1", "UPDATE calm SET v = 'four'")
    system.arrives("SELECT v FROM calm", [("four",)])
    # A takeover's hand may have applied that already; the process ends all the same, and what comes then goes
    # through the next one.
    log = system.run.log
    system.run.until(lambda: "Spark's Java process has ended" in log.read_text(), "it is noticed", PATIENCE)
    system.run.until(
        lambda: system.run.find("org.apache.spark.deploy.SparkSubmit"), "another Java process", PATIENCE
    )
    system.change("b1", "UPDATE calm SET v = 'five'")
    system.arrives("SELECT v FROM calm", [("five",)])
