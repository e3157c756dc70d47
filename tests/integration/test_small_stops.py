"""The smallest thing stops, and status says so: one `rowlock run` of two MariaDB sources into PostgreSQL, from an empty schema on."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from coordinator.rest import RestServer, create_app
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.cli import main
from schemas.config.model import CoordinationConfig
from tests.kits.running import Run, end_readers_of_the_log, source_config, target_config, write_config
from tests.kits.waiting import until
from tests.stands.fake_control import FakeControl, FakeDesk

pytestmark = pytest.mark.timeout(1200)

PATIENCE = 300
"""Seconds; the machine may be busy."""
TRIGGER = """CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER {name} BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}()"""


@dataclass
class System:
    """`db`: of the sources and of the target, and the Kafka prefix. b1 is a server of its own, b2 a database `db`_2 of another."""

    db: str
    folder: Path
    b1: MariaDB
    b2: MariaDB
    office: PostgreSQL
    parts: dict[str, Any]
    run: Run

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.b1.execute(statement, database=self.db)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in self.office.execute(query, database=self.db)]
        except psycopg.errors.UndefinedTable:
            return []

    def arrives(self, query: str, rows: list[tuple[Any, ...]]) -> None:
        until(lambda: self.rows(query) == rows, f"{query}: {rows}; see {self.run.log}", PATIENCE)

    def invoke(self, *words: str) -> Result:
        result = CliRunner().invoke(main, [*words, "-c", str(self.run.config)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def status(self) -> tuple[int, dict[str, Any]]:
        result = self.invoke("status", "--output", "json")
        return result.exit_code, json.loads(result.stdout)

    def source(self, name: str = "b1") -> dict[str, Any]:
        return next(each for each in self.status()[1]["sources"] if each["name"] == name)

    def unit(self, table: str) -> dict[str, Any]:
        return next(
            (each for each in self.status()[1]["units"] if each["topic"].endswith(f".{table}")), {"state": ""}
        )

    def awaited(self, what: str, look: Callable[[], dict[str, Any]], *states: str) -> dict[str, Any]:
        """Await that `look` finds one of `states`, and return what it found."""
        last: dict[str, Any] = {}

        def there() -> bool:
            last.clear()
            last.update(look())
            return last["state"] in states

        with contextlib.suppress(AssertionError):
            until(there, what, PATIENCE)
        assert last["state"] in states, f"{what}: {last}; see {self.run.log}"
        return last


@pytest.fixture
def another_system() -> Iterator[None]:
    """On this machine another system's coordinator has the address that commands ask first; that of ours takes any port."""
    server = RestServer(
        create_app(FakeControl(), FakeDesk(), token=SecretStr(""), prefix="another"),
        CoordinationConfig().rest,
    )
    with contextlib.suppress(OSError):  # that of another test has it already
        server.start()
    yield
    server.close()


@pytest.fixture
def system(
    another_system: None,
    tmp_path: Path,
    kafka: Kafka,
    mariadb: MariaDB,
    mariadb2: MariaDB,
    postgres: PostgreSQL,
) -> Iterator[System]:
    db, folder = f"small{secrets.token_hex(3)}", tmp_path
    for server, name in ((mariadb2, db), (mariadb, f"{db}_2"), (postgres, db)):
        server.create_database(name)
    parts = {
        "kafka": {"bootstrap": kafka.bootstrap, "prefix": db},
        "spark": {"memory": "512m"},
        "sources": {
            "b1": source_config(mariadb2, "mariadb", db),
            "b2": source_config(mariadb, "mariadb", f"{db}_2"),
        },
        "targets": {"hq": target_config(postgres, "postgres", db)},
        "pipelines": {
            "p": {
                "sources": ["b1", "b2"],
                "target": "hq",
                "schema_changes": "stop",
                "repair": "stop",
                "lanes": 2,
                "routes": [{"from": "*.*", "to": "public.{table}"}],
            }
        },
    }
    made = System(
        db, folder, mariadb2, mariadb, postgres, parts, Run(write_config(folder, **parts), folder / "run.log")
    )
    try:
        yield made
    finally:
        made.run.close()
        for server, name in ((mariadb2, db), (mariadb, f"{db}_2"), (postgres, db)):
            server.drop_database(name)


def test_the_smallest_thing_stops_and_status_says_so(system: System) -> None:
    """One life of a system: each step stands on the one before it."""
    a_run_on_an_empty_schema_captures_tables_when_they_are_created(system)
    a_capture_that_has_ended_is_stopped_with_reason_and_remedy_until_it_is_mended(system)
    after_a_stop_nothing_is_said_to_run(system)
    a_start_leaves_out_the_tables_and_the_source_that_are_wrong_and_nothing_else(system)
    a_run_that_was_killed_is_not_said_to_run(system)


def a_run_on_an_empty_schema_captures_tables_when_they_are_created(system: System) -> None:
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 0, checked.output
    findings = json.loads(checked.stdout)["findings"]
    missing = [each["place"] for each in findings if "no table matches" in each["what"]]
    assert missing == ["source b1", "source b2"]
    assert {each["level"] for each in findings} <= {"warning"}
    system.run.start()
    system.awaited("capture of an empty schema", system.source, "running")
    for table in ("first", "altered", "watched"):
        system.sql(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, note VARCHAR(20))",
            f"INSERT INTO {table} VALUES (1, 'here')",
        )
    for table in ("first", "altered", "watched"):
        system.arrives(f"SELECT * FROM {table}", [(1, "here")])
    code, seen = until(lambda: (found := system.status())[0] == 0 and found, "status: all is well", PATIENCE)
    assert code == 0
    assert {each["state"] for each in seen["sources"]} == {"running"}
    assert {each["state"] for each in seen["units"]} == {"current"}
    assert all(each["at"].rpartition(":")[0].startswith("binlog.0") for each in seen["units"])


def a_capture_that_has_ended_is_stopped_with_reason_and_remedy_until_it_is_mended(
    system: System,
) -> None:
    system.b1.execute("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        end_readers_of_the_log(system.b1)
        dead = system.awaited("the dead capture is told", system.source, "stopped")
        assert "binlog_row_image is MINIMAL" in dead["reason"]
        assert dead["remedy"].startswith("SET GLOBAL binlog_row_image = FULL")
        code, seen = system.status()
        assert code == 1
        assert [each["state"] for each in seen["sources"] if each["name"] == "b2"] == ["running"]
        shown = system.invoke("status")
        assert shown.exit_code == 1
        assert "binlog_row_image is MINIMAL" in shown.stdout
        # Empty while no coordinator leads: on a loaded machine leases run out.
        answer = until(
            lambda: system.invoke("units", "list", "--output", "json").stdout, "units list", PATIENCE
        )
        listed = json.loads(answer)["units"]
        (capture,) = (each for each in listed if each["unit"] == "capture/b1")
        assert (capture["health"], "SET GLOBAL" in capture["remedy"]) == ("stopped", True)
    finally:
        system.b1.execute("SET GLOBAL binlog_row_image = FULL")
    system.awaited("capture goes on by itself", system.source, "running")
    system.sql("INSERT INTO first VALUES (2, 'after')")
    system.arrives("SELECT id FROM first ORDER BY id", [(1,), (2,)])


def after_a_stop_nothing_is_said_to_run(system: System) -> None:
    assert system.run.stop() == 0
    code, seen = system.status()
    assert code == 1
    assert {each["state"] for each in (*seen["sources"], *seen["units"])} == {"stopped"}
    assert {each["reason"] for each in seen["sources"]} == {"capture was asked to end"}
    (problem,) = seen["problems"]
    assert "start `rowlock run`" in problem


def a_start_leaves_out_the_tables_and_the_source_that_are_wrong_and_nothing_else(system: System) -> None:
    """An ALTER, a cascade and a trigger in the target while it was down; and a source that lets nobody in any more."""
    system.sql(
        "ALTER TABLE altered ADD z INT",
        "INSERT INTO altered VALUES (2, 'wide', 7)",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO watched VALUES (2, 'unseen')",
        "INSERT INTO first VALUES (3, 'goes on')",
    )
    system.office.execute(TRIGGER.format(name="watched"), database=system.db)
    system.parts["sources"]["b2"] |= {"user": "nobody", "password": "wr0ng"}
    write_config(system.folder, **system.parts)
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 1
    reported = {each["place"] for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"}
    assert {"target table public.altered", f"source b1, table {system.db}.child", "source b2"} <= reported
    system.run.start()
    system.arrives("SELECT id FROM first ORDER BY id", [(1,), (2,), (3,)])
    altered = system.awaited("the altered table", lambda: system.unit("altered"), "stopped")
    watched = system.awaited("the table with the trigger", lambda: system.unit("watched"), "stopped")
    assert altered["reason"]
    assert "has triggers: watched" in watched["reason"]
    assert watched["remedy"] == "drop them in the target"
    until(lambda: source_lets_nobody_in(system), "status: the source that lets nobody in", PATIENCE)
    (child,) = (each for each in system.source()["tables"] if each["table"].endswith(".child"))
    assert child["state"] == "left out"
    assert "foreign keys" in child["reason"]
    assert system.source()["state"] == "running"
    assert system.status()[0] == 1
    system.sql("INSERT INTO parent VALUES (5)")
    system.arrives("SELECT id FROM parent", [(5,)])
    assert system.rows("SELECT id FROM watched") == [(1,)], "nothing was written past the trigger"


def source_lets_nobody_in(system: System) -> bool:
    """Until its capture has tried for the first time, its reason is that it begins anew."""
    source = system.source("b2")
    return source["state"] in ("stopped", "restarting") and "nobody" in source["reason"]


def a_run_that_was_killed_is_not_said_to_run(system: System) -> None:
    system.run.close()
    found = system.awaited("status after a kill", system.source, "stopped")
    assert found["reason"]
    assert system.status()[0] == 1
