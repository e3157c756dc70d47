"""The clock of a machine is moved by an hour, forward and back, under a run that captures and applies: rows
go on, also of processes that start after the clock was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.running import ACCOUNTS, Load, Program
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

MOVED_CLOCK = """
import os, sys, time

def make_moved(read, unit):
    seen = [0.0, 0]  # when the file was read last, and what it had

    def read_moved():
        if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc"):
            return read()  # its core compares the time with the machine's clock
        now = time.monotonic()
        if now > seen[0]:
            with open(os.environ["TEST_CLOCK"]) as file:
                seen[:] = now + 0.2, int(file.read() or "0")
        return read() + seen[1] * unit

    return read_moved

time.time, time.time_ns = make_moved(time.time, 1.0), make_moved(time.time_ns, 1_000_000_000)
"""
"""Moves the wall clock of a Python process by the seconds that a file has. The clocks of Java and librdkafka
are not moved. (libfaketime 0.9.10 breaks the sleep of Python 3.11.)"""
ROOT = Path(__file__).parents[2]
ROWS = "SELECT id, version, owner, amount FROM acct ORDER BY id"
APPLIED = "SELECT COALESCE(MAX(version), -1) FROM acct"


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The file with the seconds by which the clock of the run's processes is moved."""
    file = tmp_path / "clock"
    file.write_text("0")
    return file


@pytest.fixture
def run(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str, tmp_path: Path, clock: Path
) -> Iterator[WholeRun]:
    pipelines = {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{unique}.*", "to": "public.{table}"}]}
    }
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(MOVED_CLOCK)
    with whole_run(tmp_path, unique, kafka, {"b": mariadb}, {"hq": postgres}, pipelines) as made:
        made.run.program = Program(env={"PYTHONPATH": f"{site}:{ROOT}", "TEST_CLOCK": str(clock)})
        yield made


def test_a_clock_that_is_moved_by_an_hour_changes_nothing(run: WholeRun, clock: Path) -> None:
    run.change("b", *ACCOUNTS)
    load = Load(run.sources["b"], run.db, pause_s=0.05)
    load.start()
    run.run.start()

    def rows_arrive(when: str) -> None:
        version = load.version
        run.run.until(lambda: (run.read("hq", APPLIED) or [(-1,)])[0][0] > version, f"rows written {when}")

    rows_arrive("at first")
    for offset, process in (("3600", "producer.main"), ("-3600", "consumer.main"), ("3600", "consumer.main")):
        clock.write_text(offset)
        rows_arrive(f"with the clock at {offset} s")
        run.run.kill_processes(process)
        rows_arrive(f"after a new {process} with the clock at {offset} s")
    clock.write_text("-3600")
    run.run.kill_and_restart()
    rows_arrive("after a restart two hours earlier")
    load.finish()
    run.run.until(lambda: run.read("hq", ROWS) == run.read_source("b", ROWS), "equal rows")
    assert "quarantined" not in run.run.log.read_text()
