"""The clock of a machine is moved by an hour, forward and back, under a run that captures and applies: rows
go on, also of processes that start after the clock was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.moved_clock import MovedClock
from tests.kits.running import ACCOUNTS, Load, Program
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = "SELECT id, version, owner, amount FROM acct ORDER BY id"
APPLIED = "SELECT COALESCE(MAX(version), -1) FROM acct"


@pytest.fixture
def clock(tmp_path: Path) -> MovedClock:
    """The clock of the run's processes."""
    (folder := tmp_path / "site").mkdir()
    return MovedClock(folder)


@pytest.fixture
def run(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str, tmp_path: Path, clock: MovedClock
) -> Iterator[WholeRun]:
    pipelines = {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{unique}.*", "to": "public.{table}"}]}
    }
    with whole_run(tmp_path, unique, kafka, {"b": mariadb}, {"hq": postgres}, pipelines) as made:
        made.run.program = Program(env=clock.environment)
        yield made


def test_a_clock_that_is_moved_by_an_hour_changes_nothing(run: WholeRun, clock: MovedClock) -> None:
    run.change("b", *ACCOUNTS)
    load = Load(run.sources["b"], run.db, pause_s=0.05)
    load.start()
    run.run.start()

    def rows_arrive(when: str) -> None:
        version = load.version
        run.run.until(lambda: (run.read("hq", APPLIED) or [(-1,)])[0][0] > version, f"rows written {when}")

    rows_arrive("at first")
    for offset, process in ((3600, "producer.main"), (-3600, "consumer.main"), (3600, "consumer.main")):
        clock.move(offset)
        rows_arrive(f"with the clock at {offset} s")
        run.run.kill_processes(process)
        rows_arrive(f"after a new {process} with the clock at {offset} s")
    clock.move(-3600)
    run.run.kill_and_restart()
    rows_arrive("after a restart two hours earlier")
    load.finish()
    run.run.until(lambda: run.read("hq", ROWS) == run.read_source("b", ROWS), "equal rows")
    assert "quarantined" not in run.run.log.read_text()
