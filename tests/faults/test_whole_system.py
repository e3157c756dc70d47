"""Every fault of the whole way, one after the other, on one system under load (MariaDB → Kafka → Spark →
PostgreSQL).

After each fault the load goes on for a while, then pauses; source and target must then be equal row by row,
and no row of the target may ever have been seen to go back to an older version.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.whole_system import RunUnderFaults, run_under_faults
from tests.kits.running import kill_workers
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunUnderFaults]:
    with run_under_faults(tmp_path_factory.mktemp("whole"), mariadb, kafka, postgres, "whole") as system:
        yield system


def kill_capture(system: RunUnderFaults) -> None:
    system.run.kill_processes("producer.main")


def kill_driver(system: RunUnderFaults) -> None:
    system.run.kill_processes("consumer.main")


def kill_run(system: RunUnderFaults) -> None:
    system.run.kill_and_restart()


def restart_broker(system: RunUnderFaults) -> None:
    system.broker.stop()
    system.broker.start()


def kill_broker(system: RunUnderFaults) -> None:
    system.broker.kill()
    system.broker.start()


def restart_target(system: RunUnderFaults) -> None:
    system.office.stop()
    system.office.start()


def kill_target(system: RunUnderFaults) -> None:
    system.office.kill()
    system.office.start()


def delete_query_folders(system: RunUnderFaults) -> None:
    """Spark's checkpoints hold nothing: their folders may vanish while slots run, and slots open again."""
    state = system.run.config.parent / "state"
    found = until(
        lambda: [p for p in state.rglob("slot-*") if p.is_dir()] or None, "the folder of a slot's query"
    )
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    kill_workers(system.run)


FAULTS = [
    kill_capture, kill_driver, kill_run, restart_broker, restart_target, kill_target, delete_query_folders,
    pytest.param(kill_broker, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_source_equals_target_after(fault: Callable[[RunUnderFaults], None], system: RunUnderFaults) -> None:
    system.under_load(lambda: fault(system), seed=len(fault.__name__))


def last_copy(system: RunUnderFaults) -> dict[str, Any]:
    """Return the last copy of the table as `rowlock copy` shows it; {}: there is none, or no coordinator
    answers just now."""
    listed = system.invoke("copy", "--output", "json")
    copies = json.loads(listed.stdout)["copies"] if listed.exit_code in (0, 1) else []
    return copies[0] if copies else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [kill_capture, kill_driver, kill_run, kill_broker], ids=lambda fault: fault.__name__
)
def test_a_copy_goes_on_after(fault: Callable[[RunUnderFaults], None], system: RunUnderFaults) -> None:
    """In the middle of its chunks: it is the same copy afterwards, and what the target has and the source has
    not is deleted at its end."""
    stale = "INSERT INTO acct (id, version, owner, amount) VALUES (-1, 0, 'stale', 0), (5000, 0, NULL, 0)"
    before = last_copy(system).get("id")
    system.office.execute(stale, database=system.db)
    asked = system.invoke("copy", f"{system.db}.acct", "--max-rows-per-second", "3")
    assert asked.exit_code == 0, asked.output
    began: dict[str, Any] = {}

    def strike() -> None:
        def under_way() -> bool:
            began.update(last_copy(system))
            return began.get("id") not in (None, before) and began["phase"] == "running" and began["rows"] > 2

        system.run.until(under_way, "a copy under way")
        fault(system)

    system.under_load(strike, seed=len(fault.__name__))
    now = system.run.until(
        lambda: (found := last_copy(system)).get("phase") == "done" and found, "its end", 300
    )
    assert (now["id"], now["began_ms"], now["restarts"]) == (began["id"], began["began_ms"], 0)
    assert now["rows"] > began["rows"]


def test_worker_killed_keeps_the_query(system: RunUnderFaults) -> None:
    """A dead Python worker costs a task attempt, not the query: the driver process stays the same."""
    driver = system.run.until(lambda: system.run.find("consumer.main"), "the driver")
    before = [process.pid for process in driver]
    system.under_load(lambda: kill_workers(system.run), seed=77)
    assert [process.pid for process in system.run.find("consumer.main")] == before


def test_stops_cleanly_and_leaves_nothing(system: RunUnderFaults) -> None:
    family: list[psutil.Process] = system.run.family()
    assert system.run.stop() == 0
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []
    assert Path(system.run.log).read_text()
    system.run.start()  # random order: whichever test comes next finds it running
    system.run.until(system.equal, "equal after a clean restart")
