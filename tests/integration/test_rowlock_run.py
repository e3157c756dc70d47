"""The command line on real services: run until caught up, verify, status, quarantine; refusals with one
message each.

One system serves all tests of the module that only look: two MariaDB branches into one PostgreSQL table, plus
a table whose target is too narrow for one row.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import Result

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from deploy.guard.processes import release_process, spawn_process
from rowlock.views.kafka import KafkaView
from schemas.config.model import load_config
from schemas.wire.position import parse_binlog_file_number
from tests.kits.command_line import words_of
from tests.kits.waiting import until
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = pytest.mark.timeout(1200)

DDL = (
    (
        "CREATE TABLE sync (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, x DOUBLE, d DECIMAL(9,3), t "
        "DATETIME(3), j JSON, b VARBINARY(9), u BIGINT UNSIGNED)"
    ),
    "CREATE TABLE narrow (id INT PRIMARY KEY, note VARCHAR(20) NOT NULL)",
)
ROWS = (
    "INSERT INTO sync VALUES (1, 'lucy', 0.1, -0.5, '2026-01-02 03:04:05.678', '{\"a\": 1}', "
    "'x', 18446744073709551615), "
)
ROWS += (
    "(2, 'émile', NULL, NULL, NULL, NULL, NULL, 0), (3, NULL, -0.0, 123456.789, "
    "'1000-01-01 00:00:00', '[]', '', 1)"
)


@dataclass
class ObservedRun(WholeRun):
    """A run from the MariaDBs b1 and b2 into the PostgreSQL hq, and what was seen of it before any test."""

    killed: list[list[str]] = field(default_factory=list)
    """The command lines of the processes of a run that was killed."""
    left: list[list[str]] = field(default_factory=list)
    """Those that did not end."""
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Right after the run."""
    unapplied: dict[str, Any] = field(default_factory=dict)
    """The status while something is captured and not applied."""
    status_json: Result | None = None
    status_table: Result | None = None
    end: tuple[str, int] = ("", 0)
    """Of the log of b1."""
    files: dict[str, str] = field(default_factory=dict)
    """The log that each source writes."""

    def pg(self, statement: str) -> list[Any]:
        return self.targets["hq"].execute(statement, database=self.db)


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory,
    kafka: Kafka,
    mariadb: MariaDB,
    mariadb2: MariaDB,
    postgres: PostgreSQL,
) -> Iterator[ObservedRun]:
    db = f"cli{secrets.token_hex(4)}"
    branches = {"b1": mariadb, "b2": mariadb2}
    pipeline = {
        "sources": ["b1", "b2"], "target": "hq", "schema_changes": "stop", "repair": "stop", "lanes": 2,
        "routes": [{"from": f"{db}.*", "to": "public.{table}", "add": {"branch": "{source}"}}],
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("cli")
    with whole_run(folder, db, kafka, branches, {"hq": postgres}, {"p": pipeline}) as whole:
        made = ObservedRun(**vars(whole))
        for source in branches:
            made.change(source, *DDL, ROWS, "INSERT INTO narrow VALUES (1, 'fits')")
        made.pg(
            "CREATE TABLE narrow (id int, note varchar(6) NOT NULL, branch varchar(64), "
            "PRIMARY KEY (branch, id))"
        )
        made.change("b1", "INSERT INTO narrow VALUES (2, 'far too long')")
        kill_in_the_middle(made)
        made.change("b1", "DELETE FROM sync WHERE id = 51")
        made.unapplied = captured_only(made)
        caught_up = made.run.call("run", "--until-caught-up")
        assert caught_up.returncode == 0, caught_up.stderr[-3000:]
        made.verdicts = verdicts(made)
        made.status_json = made.invoke("status", "--output", "json")
        made.status_table = made.invoke("status")
        made.end = mariadb.execute("SHOW MASTER STATUS")[0][:2]
        made.files = {
            name: str(branch.execute("SHOW MASTER STATUS")[0][0]) for name, branch in branches.items()
        }
        yield made


def kill_in_the_middle(system: ObservedRun) -> None:
    """Run until rows flow, then kill -9 the run alone, and note which processes outlive it."""
    system.run.start()
    system.run.until(
        lambda: system.read("hq", "SELECT count(*) FROM sync") == [(6,)],
        "the existing rows through the running system",
        240,
    )
    system.killed = [words_of(each) for each in system.run.family()]
    system.change("b1", "INSERT INTO sync (id, name) VALUES (50, 'at the kill'), (51, 'then deleted')")
    system.left = [words_of(each) for each in psutil.wait_procs(system.run.kill(), timeout=60)[1]]


def captured_only(system: ObservedRun) -> dict[str, Any]:
    """Run nothing but the capture of b1 until status sees it run, and more than is applied; return that
    status."""

    def late() -> dict[str, Any] | None:
        seen = system.status()
        unit = units_of(seen)[system.topic("b1", "sync")]
        states = {source["name"]: source["state"] for source in seen["sources"]}
        return (
            seen if unit["lag_events"] and states["b1"] == "running" else None
        )  # its watermark comes after its events

    log = (system.config.parent / "capture.log").open("wb")
    command = [
        sys.executable,
        "-m",
        "producer.main",
        "--config",
        str(system.config),
        "--source",
        "b1",
        "--detached",
    ]
    with log, ended(spawn_process(command, output=log)):
        found: dict[str, Any] = until(late, "an event that is captured and not applied", 240)
    return found


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
        release_process(process)


def units_of(seen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {unit["topic"]: unit for unit in seen["units"]}


def verdicts(system: ObservedRun, *words: str) -> dict[str, dict[str, Any]]:
    """`verify` as JSON: "source.table" → its object. The exit code must fit."""
    result = system.invoke("verify", "--output", "json", "--settle", "0", *words)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == (0 if all(each["equal"] for each in found) else 1), result.output
    return {f"{each['source']}.{each['source_table'].partition('.')[2]}": each for each in found}


def differences(verdict: dict[str, Any]) -> set[tuple[str, tuple[Any, ...], tuple[str, ...]]]:
    return {(each["kind"], tuple(each["key"]), tuple(each["columns"])) for each in verdict["differences"]}


def test_kill_9_leaves_nothing_behind(system: ObservedRun) -> None:
    assert {"producer.main", "consumer.main", "b1", "b2"} <= {
        word for words in system.killed for word in words
    }
    assert system.left == []


def test_caught_up_means_equal_but_for_what_is_held(system: ObservedRun) -> None:
    found = system.verdicts
    assert found["b1.sync"]["equal"]
    assert found["b2.sync"]["equal"]
    assert found["b2.narrow"]["equal"]
    assert differences(found["b1.narrow"]) == {("missing", ("b1", 2), ())}
    assert system.pg("SELECT count(*) FROM sync")[0][0] == 7
    assert system.pg("SELECT name FROM sync WHERE id >= 50") == [("at the kill",)]


def test_verify_finds_exactly_what_was_tampered_with(system: ObservedRun) -> None:
    with restored(system, "sync"):
        system.pg("DELETE FROM sync WHERE branch = 'b1' AND id = 1")
        system.pg("UPDATE sync SET d = 9, x = 0.5 WHERE branch = 'b1' AND id = 3")
        system.pg(
            "INSERT INTO sync SELECT 77, 'extra', x, d, t, j, b, u, branch FROM sync "
            "WHERE branch = 'b2' AND id = 2"
        )
        found = verdicts(system, "--table", f"{system.db}.sync")
        expected = {("missing", ("b1", 1), ()), ("different", ("b1", 3), ("x", "d"))}
        assert differences(found["b1.sync"]) == expected
        assert differences(found["b2.sync"]) == {("extra", ("b2", 77), ())}
        shown = system.invoke("verify", "--settle", "0", "--table", f"{system.db}.sync")
        assert shown.exit_code == 1
        assert "missing: key ('b1', 1)" in shown.stdout
        assert "different: key ('b1', 3) in x, d" in shown.stdout
    assert verdicts(system, "--table", f"{system.db}.sync")["b1.sync"]["equal"]


@contextlib.contextmanager
def restored(system: ObservedRun, table: str) -> Iterator[None]:
    system.pg(f"CREATE TABLE kept_{table} AS TABLE {table}")
    try:
        yield
    finally:
        system.pg(f"TRUNCATE {table}")
        system.pg(f"INSERT INTO {table} TABLE kept_{table}")
        system.pg(f"DROP TABLE kept_{table}")


def test_verify_pages_through_more_than_a_page(system: ObservedRun) -> None:
    from rowlock.inspect.pairs import list_table_pairs
    from rowlock.inspect.verify import verify_pairs
    from schemas.config.model import load_config

    config = load_config(system.config)
    with restored(system, "sync"):
        system.pg("DELETE FROM sync WHERE branch = 'b2' AND id = 3")
        chosen = list_table_pairs(config, ["p"], [(system.db, "sync")])
        for page in (1, 2):
            results = list(verify_pairs(config, chosen, settle_s=0, page=page))
            assert [result.rows for result in results] == [4, 3]
            assert [finding.key for result in results for finding in result.findings] == [("b2", 3)]


def test_verify_reads_on_where_ten_thousand_rows_were_under_way(system: ObservedRun) -> None:
    """30,000 rows against 500, to which 10,000 more come while it looks: the rest is still missing."""
    rows = "SELECT g, 'r' || g, 'b1' FROM generate_series({}, {}) g"
    system.change("b1", "CREATE TABLE big (id INT PRIMARY KEY, name VARCHAR(20))")
    system.pg("CREATE TABLE big (id int, name varchar(20), branch varchar(64), PRIMARY KEY (branch, id))")
    arrives = threading.Timer(0.5, lambda: system.pg("INSERT INTO big " + rows.format(501, 10_500)))
    try:
        system.change("b1", "INSERT INTO big SELECT seq, concat('r', seq) FROM seq_1_to_30000")
        system.pg("INSERT INTO big " + rows.format(1, 500))
        arrives.start()
        result = system.invoke("verify", "--output", "json", "--settle", "4", "--table", f"{system.db}.big")
        found = {each["source"]: each for each in map(json.loads, result.stdout.splitlines())}["b1"]
        assert result.exit_code == 1, result.output
        assert not found["equal"]
        assert found["rows"] > 10_500
        assert {each["kind"] for each in found["differences"]} == {"missing"}
        arrives.join()
        system.pg("INSERT INTO big " + rows.format(10_501, 30_000))
        again = system.invoke("verify", "--table", f"{system.db}.big")
        assert "equal     b1:" in again.stdout
        assert ": 30,000 rows" in again.stdout
    finally:
        arrives.join()
        system.change("b1", "DROP TABLE big")
        system.pg("DROP TABLE big")


def test_status_after_a_run(system: ObservedRun) -> None:
    result = system.status_json
    assert result is not None
    assert result.exit_code == 1, "nothing runs any more"
    seen = json.loads(result.stdout)
    assert "start `rowlock run`" in seen["problems"][0]
    assert {source["state"] for source in seen["sources"]} == {"stopped"}
    assert {source["name"] for source in seen["sources"]} == {"b1", "b2"}
    units = units_of(seen)
    assert set(units) == {
        system.topic(source, table) for source in ("b1", "b2") for table in ("sync", "narrow")
    }
    sources = {source["name"]: source for source in seen["sources"]}
    for unit in units.values():
        assert (unit["state"], unit["reason"]) == ("stopped", "no process runs it")
        assert unit["offset"] == unit["end_offset"] >= 0
        assert unit["lag_events"] == 0
        assert unit["lag_seconds"] == sources[unit["source"]]["lag_seconds"] >= 0
    assert [unit["quarantined"] for topic, unit in sorted(units.items())] == [1, 0, 0, 0]


def test_status_tells_positions_of_the_source(system: ObservedRun) -> None:
    assert system.status_json is not None
    seen = json.loads(system.status_json.stdout)
    file, end = system.end
    (position,) = (source["position"] for source in seen["sources"] if source["name"] == "b1")
    assert position.partition(":")[0] == file
    assert 0 < int(position.partition(":")[2]) <= end
    for topic, unit in units_of(seen).items():
        assert tuple(unit["position"]) == highest_position(system, topic, unit["end_offset"]), topic
    sync = units_of(seen)[system.topic("b1", "sync")]["position"]
    assert sync[:2] == [0, parse_binlog_file_number(file)]
    assert sync[2] < end


def highest_position(system: ObservedRun, topic: str, end: int) -> tuple[int, ...]:
    with contextlib.closing(KafkaView(load_config(system.config).kafka)) as view:
        events = [view.read_event(topic, offset) for offset in range(end + 1)]
    return max(event.source.position for event in events if event)


def test_the_table_of_status_has_the_same_figures(system: ObservedRun) -> None:
    assert system.status_json is not None
    assert system.status_table is not None
    for topic, unit in units_of(json.loads(system.status_json.stdout)).items():
        (line,) = (line for line in system.status_table.stdout.splitlines() if f" {topic} " in line)
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        offsets = f"{unit['offset']}/{unit['end_offset']}"
        assert cells[1:6] == [topic, "stopped", unit["at"], offsets, "0"]
        assert unit["at"] == f"{system.files[unit['source']]}:{unit['position'][2]}"
        assert re.fullmatch(r"\d+\.\d s|\d+ min", cells[6])
        assert cells[7] == ("1 row" if unit["quarantined"] else "")


def test_status_of_what_is_captured_and_not_applied(system: ObservedRun) -> None:
    late = units_of(system.unapplied)[system.topic("b1", "sync")]
    assert (late["state"], late["reason"]) == ("stopped", "no process runs it")
    assert late["lag_events"] == late["end_offset"] - late["offset"] > 0
    assert 0 < late["lag_seconds"] < 300
    assert late["position"] < units_of(json.loads(system.status_json.stdout))[late["topic"]]["position"]  # type: ignore[union-attr]
    assert units_of(system.unapplied)[system.topic("b2", "sync")]["lag_events"] == 0
    states = {source["name"]: source["state"] for source in system.unapplied["sources"]}
    assert states == {"b1": "running", "b2": "stopped"}, "one is captured by hand"


def test_quarantine_list_retry_and_the_wider_column(system: ObservedRun) -> None:
    listed = system.invoke("quarantine", "list")
    assert listed.exit_code == 0
    assert "public.narrow key" in listed.stdout
    assert "far too long" not in listed.stdout
    held = json.loads(system.invoke("quarantine", "list", "--output", "json").stdout)["held"]
    assert [(entry["pipeline"], entry["part"]) for entry in held] == [("p", 0)]
    again = system.invoke("quarantine", "retry")
    assert again.exit_code == 1
    assert "still held" in again.stdout
    assert system.invoke("quarantine", "retry", "--topic", "another").exit_code == 2, "there is no such topic"
    system.pg("ALTER TABLE narrow ALTER COLUMN note TYPE varchar(20)")
    done = system.invoke("quarantine", "retry", "--key", held[0]["key"])
    assert done.exit_code == 0, done.output
    assert system.pg("SELECT note FROM narrow WHERE id = 2") == [("far too long",)]
    assert verdicts(system, "--table", f"{system.db}.narrow")["b1.narrow"]["equal"]
    assert system.invoke("quarantine", "list").stdout == "nothing is held\n"


def changed(system: ObservedRun, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    raw = yaml.safe_load(system.config.read_text())
    change(raw)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def _source_password(raw: dict[str, Any]) -> None:
    raw["sources"]["b1"] |= {"user": "nobody", "password": "wr0ng"}


def _source_host(raw: dict[str, Any]) -> None:
    raw["sources"]["b1"]["port"] = 1


def _target_password(raw: dict[str, Any]) -> None:
    raw["targets"]["hq"]["user"] = "no_such_role"


def _target_host(raw: dict[str, Any]) -> None:
    raw["targets"]["hq"]["port"] = 1


def _no_broker(raw: dict[str, Any]) -> None:
    raw["kafka"]["bootstrap"] = "127.0.0.1:1"


def _not_apart(raw: dict[str, Any]) -> None:
    raw["pipelines"]["p"]["routes"][0]["add"] = {"branch": "same"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_source_password, ("b1", "password")),
        (_source_host, ("b1", "host and port")),
        (_target_password, ("hq", "no_such_role")),
        (_target_host, ("hq", "127.0.0.1")),
        (_no_broker, ("Kafka at 127.0.0.1:1 does not answer",)),
        (_not_apart, ("with the same added values",)),
    ],
)
def test_what_is_wrong_is_said_by_check_and_refused_by_run(
    system: ObservedRun, tmp_path: Path, change: Callable[[dict[str, Any]], None], words: tuple[str, ...]
) -> None:
    file = changed(system, tmp_path, change)
    checked = system.invoke("check", "--output", "json", config=file)
    assert checked.exit_code == 1
    findings = [each for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"]
    reported = [f"{each['place']}: {each['what']}; {each['remedy']}" for each in findings]
    assert any(all(word in text for word in words) for text in reported), reported
    assert "wr0ng" not in checked.output
    ran = system.invoke("run", "--until-caught-up", config=file)  # which needs everything
    assert ran.exit_code == 2
    assert "Traceback" not in ran.output


def test_a_pattern_without_tables_yet_is_a_warning(system: ObservedRun, tmp_path: Path) -> None:
    def select_nothing(raw: dict[str, Any]) -> None:
        raw["sources"]["b1"]["tables"] = ["nothing.*"]

    checked = system.invoke("check", "--output", "json", config=changed(system, tmp_path, select_nothing))
    reported = [each for each in json.loads(checked.stdout)["findings"] if "nothing.*" in each["what"]]
    assert [(each["level"], each["place"]) for each in reported] == [("warning", "source b1")]
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("command", ["status", "verify", "quarantine list"])
def test_an_unreachable_server_is_one_message_and_exit_2(
    system: ObservedRun, tmp_path: Path, command: str
) -> None:
    change = _no_broker if command == "status" else _target_host
    result = system.invoke(*command.split(), config=changed(system, tmp_path, change))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) <= 2, result.stderr
    assert "127.0.0.1" in result.stderr


def test_check_of_a_good_system(system: ObservedRun) -> None:
    result = system.invoke("check")
    assert result.exit_code == 0, result.output
