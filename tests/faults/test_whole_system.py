"""Every fault of the whole way, one after the other, on one system under load (MariaDB → Kafka → Spark →
PostgreSQL).

After each fault the load goes on for a while, then pauses; source and target must then be equal row by row,
and no row of the target may ever have been seen to go back to an older version.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.whole_system import System, whole_system
from tests.kits.command_line import invoke
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    with whole_system(tmp_path_factory.mktemp("whole"), mariadb, kafka, postgres, "whole") as system:
        yield system


def _kill(system: System, *words: str) -> None:
    victims = until(lambda: system.run.find(*words), f"a process with {words}")
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()


def kill_capture(system: System) -> None:
    _kill(system, "producer.main")


def kill_python_worker(system: System) -> None:
    """Kill the workers (children of the daemon), never the daemon; the query must go on.

    "-m": the JVM's own command line names the daemon's module, too.
    """
    driver = {process.pid for process in system.run.find("consumer.main")}

    def workers() -> list[psutil.Process]:
        daemons = [p for p in system.run.find("-m consumer.spark.daemon") if p.ppid() not in driver]
        pids = {p.pid for p in daemons}
        return [p for p in daemons if p.ppid() in pids]

    for worker in until(workers, "a Python worker"):
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()


def kill_driver(system: System) -> None:
    _kill(system, "consumer.main")


def kill_run(system: System) -> None:
    family = system.run.kill()
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == [], "kill -9 of the run left processes behind"
    system.run.start()


def restart_broker(system: System) -> None:
    system.broker.stop()
    system.broker.start()


def kill_broker(system: System) -> None:
    system.broker.kill()
    system.broker.start()


def restart_target(system: System) -> None:
    system.target.stop()
    system.target.start()


def kill_target(system: System) -> None:
    system.target.kill()
    system.target.start()


def delete_checkpoint(system: System) -> None:
    """Spark's checkpoint is a cache: it may vanish while the query runs, and at the next start."""
    state = system.run.config.parent / "state"
    found = until(lambda: [p for p in state.rglob("*check*") if p.is_dir()] or None, "a checkpoint directory")
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    kill_driver(system)


FAULTS = [
    kill_capture, kill_driver, kill_run, restart_broker, restart_target, kill_target, delete_checkpoint,
    pytest.param(kill_broker, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_source_equals_target_after(fault: Callable[[System], None], system: System) -> None:
    system.under_load(lambda: fault(system), seed=len(fault.__name__))


def last_copy(system: System) -> dict[str, Any]:
    """Return the last copy of the table as `rowlock copy` shows it; {}: there is none, or no coordinator
    answers just now."""
    listed = invoke(system.run.config, "copy", "--output", "json")
    copies = json.loads(listed.stdout)["copies"] if listed.exit_code in (0, 1) else []
    return copies[0] if copies else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [kill_capture, kill_driver, kill_run, kill_broker], ids=lambda fault: fault.__name__
)
def test_a_copy_goes_on_after(fault: Callable[[System], None], system: System) -> None:
    """In the middle of its chunks: it is the same copy afterwards, and what the target has and the source has
    not is deleted at its end."""
    stale = "INSERT INTO acct (id, version, owner, amount) VALUES (-1, 0, 'stale', 0), (5000, 0, NULL, 0)"
    before = last_copy(system).get("id")
    system.target.execute(stale, database=system.database)
    asked = invoke(system.run.config, "copy", f"{system.database}.acct", "--max-rows-per-second", "3")
    assert asked.exit_code == 0, asked.output
    began: dict[str, Any] = {}

    def strike() -> None:
        def under_way() -> bool:
            began.update(last_copy(system))
            return began.get("id") not in (None, before) and began["phase"] == "running" and began["rows"] > 2

        until(under_way, "a copy under way")
        fault(system)

    system.under_load(strike, seed=len(fault.__name__))
    now = until(lambda: (found := last_copy(system)).get("phase") == "done" and found, "its end", 300)
    assert (now["id"], now["began_ms"], now["restarts"]) == (began["id"], began["began_ms"], 0)
    assert now["rows"] > began["rows"]


def test_worker_killed_keeps_the_query(system: System) -> None:
    """A dead Python worker costs a task attempt, not the query: the driver process stays the same."""
    driver = until(lambda: system.run.find("consumer.main"), "the driver")
    before = [process.pid for process in driver]
    system.under_load(lambda: kill_python_worker(system), seed=77)
    assert [process.pid for process in system.run.find("consumer.main")] == before


def test_stops_cleanly_and_leaves_nothing(system: System) -> None:
    family: list[psutil.Process] = system.run.family()
    assert system.run.stop() == 0
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []
    assert Path(system.run.log).read_text()
    system.run.start()  # random order: whichever test comes next finds it running
    until(system.equal, "equal after a clean restart")
