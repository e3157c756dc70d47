"""The smallest thing stops, and status reports it: one `rowlock run` of two MariaDB sources into PostgreSQL,
from an empty schema on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from coordinator.rest import RestServer, create_app
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from schemas.config.model import CoordinationConfig
from tests.kits.running import end_readers_of_the_log
from tests.kits.whole_run import WholeRun, whole_run
from tests.stands.fake_control import FakeControl, FakeDesk

pytestmark = pytest.mark.timeout(1200)

PATIENCE = 300
"""Seconds; the machine may be busy."""
TRIGGER = """CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER {name} BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}()"""


@pytest.fixture
def another_system() -> Iterator[None]:
    """On this machine another system's coordinator has the address that commands ask first; that of ours
    takes any port."""
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
    unique: str,
) -> Iterator[WholeRun]:
    pipelines = {
        "p": {
            "sources": ["b1", "b2"],
            "target": "hq",
            "schema_changes": "stop",
            "repair": "stop",
            "lanes": 2,
            "routes": [{"from": "*.*", "to": "public.{table}"}],
        }
    }
    sources, targets = {"b1": mariadb2, "b2": mariadb}, {"hq": postgres}
    with whole_run(tmp_path, unique, kafka, sources, targets, pipelines) as made:
        yield made


def look_up_source(system: WholeRun, name: str = "b1") -> dict[str, Any]:
    """Return a source of `status`."""
    return next(each for each in system.status()["sources"] if each["name"] == name)


def ask_status(system: WholeRun) -> tuple[int, dict[str, Any]]:
    """Return the exit code of `status`, and what it shows."""
    result = system.invoke("status", "--output", "json")
    return result.exit_code, json.loads(result.stdout)


def test_the_smallest_thing_stops_and_status_says_so(system: WholeRun) -> None:
    """One life of a system: each step begins with what the one before it has left."""
    a_run_on_an_empty_schema_captures_tables_when_they_are_created(system)
    a_capture_that_has_ended_is_stopped_with_reason_and_remedy_until_it_is_mended(system)
    after_a_stop_nothing_is_said_to_run(system)
    a_start_leaves_out_the_tables_and_the_source_that_are_wrong_and_nothing_else(system)
    a_run_that_was_killed_is_not_said_to_run(system)


def a_run_on_an_empty_schema_captures_tables_when_they_are_created(system: WholeRun) -> None:
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 0, checked.output
    findings = json.loads(checked.stdout)["findings"]
    missing = [each["place"] for each in findings if "no table matches" in each["what"]]
    assert missing == ["source b1", "source b2"]
    assert {each["level"] for each in findings} <= {"warning"}
    system.run.start()
    system.await_state("capture of an empty schema", lambda: look_up_source(system), "running")
    for table in ("first", "altered", "watched"):
        system.change(
            "b1",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, note VARCHAR(20))",
            f"INSERT INTO {table} VALUES (1, 'here')",
        )
    for table in ("first", "altered", "watched"):
        system.arrives(f"SELECT * FROM {table}", [(1, "here")])
    code, seen = system.run.until(
        lambda: (found := ask_status(system))[0] == 0 and found, "status: all is well", PATIENCE
    )
    assert code == 0
    assert {each["state"] for each in seen["sources"]} == {"running"}
    assert {each["state"] for each in seen["units"]} == {"current"}
    assert all(each["at"].rpartition(":")[0].startswith("binlog.0") for each in seen["units"])


def a_capture_that_has_ended_is_stopped_with_reason_and_remedy_until_it_is_mended(
    system: WholeRun,
) -> None:
    system.sources["b1"].execute("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        end_readers_of_the_log(system.sources["b1"])
        dead = system.await_state("the dead capture is told", lambda: look_up_source(system), "stopped")
        assert "binlog_row_image is MINIMAL" in dead["reason"]
        assert dead["remedy"].startswith("SET GLOBAL binlog_row_image = FULL")
        code, seen = ask_status(system)
        assert code == 1
        assert [each["state"] for each in seen["sources"] if each["name"] == "b2"] == ["running"]
        shown = system.invoke("status")
        assert shown.exit_code == 1
        assert "binlog_row_image is MINIMAL" in shown.stdout
        # Empty while no coordinator leads: on a loaded machine leases run out.
        answer = system.run.until(
            lambda: system.invoke("units", "list", "--output", "json").stdout, "units list", PATIENCE
        )
        listed = json.loads(answer)["units"]
        (capture,) = (each for each in listed if each["unit"] == "capture/b1")
        assert (capture["health"], "SET GLOBAL" in capture["remedy"]) == ("stopped", True)
    finally:
        system.sources["b1"].execute("SET GLOBAL binlog_row_image = FULL")
    system.await_state("capture goes on by itself", lambda: look_up_source(system), "running")
    system.change("b1", "INSERT INTO first VALUES (2, 'after')")
    system.arrives("SELECT id FROM first ORDER BY id", [(1,), (2,)])


def after_a_stop_nothing_is_said_to_run(system: WholeRun) -> None:
    assert system.run.stop() == 0
    code, seen = ask_status(system)
    assert code == 1
    assert {each["state"] for each in (*seen["sources"], *seen["units"])} == {"stopped"}
    assert {each["reason"] for each in seen["sources"]} == {"capture was asked to end"}
    (problem,) = seen["problems"]
    assert "start `rowlock run`" in problem


def a_start_leaves_out_the_tables_and_the_source_that_are_wrong_and_nothing_else(system: WholeRun) -> None:
    """An ALTER, a cascade and a trigger in the target while it was down; and a source that no longer accepts
    rowlock's login."""
    system.change(
        "b1",
        "ALTER TABLE altered ADD z INT",
        "INSERT INTO altered VALUES (2, 'wide', 7)",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES "
        "parent (id) ON DELETE CASCADE)",
        "INSERT INTO watched VALUES (2, 'unseen')",
        "INSERT INTO first VALUES (3, 'goes on')",
    )
    system.targets["hq"].execute(TRIGGER.format(name="watched"), database=system.db)
    system.parts["sources"]["b2"] |= {"user": "nobody", "password": "wr0ng"}
    system.write_parts()
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 1
    reported = {each["place"] for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"}
    assert {"target table public.altered", f"source b1, table {system.db}.child", "source b2"} <= reported
    system.run.start()
    system.arrives("SELECT id FROM first ORDER BY id", [(1,), (2,), (3,)])
    altered = system.await_state("the altered table", lambda: system.unit("p", "b1", "altered"), "stopped")
    watched = system.await_state(
        "the table with the trigger", lambda: system.unit("p", "b1", "watched"), "stopped"
    )
    assert altered["reason"]
    assert "has triggers: watched" in watched["reason"]
    assert watched["remedy"] == "drop them in the target"
    system.run.until(
        lambda: source_refuses_logins(system), "status: the source that refuses log-ins", PATIENCE
    )
    (child,) = (each for each in look_up_source(system)["tables"] if each["table"].endswith(".child"))
    assert child["state"] == "left out"
    assert "foreign keys" in child["reason"]
    assert look_up_source(system)["state"] == "running"
    assert ask_status(system)[0] == 1
    system.change("b1", "INSERT INTO parent VALUES (5)")
    system.arrives("SELECT id FROM parent", [(5,)])
    assert system.read("hq", "SELECT id FROM watched") == [(1,)], "nothing was written past the trigger"


def source_refuses_logins(system: WholeRun) -> bool:
    """Until its capture has tried for the first time, its reason is that it begins anew."""
    source = look_up_source(system, "b2")
    return source["state"] in ("stopped", "restarting") and "nobody" in source["reason"]


def a_run_that_was_killed_is_not_said_to_run(system: WholeRun) -> None:
    system.run.close()
    found = system.await_state("status after a kill", lambda: look_up_source(system), "stopped")
    assert found["reason"]
    assert ask_status(system)[0] == 1
