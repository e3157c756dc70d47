"""Every fault of the whole way, one after the other, on one system under load (MariaDB → Kafka → Spark → PostgreSQL).

After each fault the load goes on for a while, then pauses; source and target must then be equal row by row, and no row of
the target may ever have been seen to go back to an older version.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.running import (
    DDL,
    KEYS,
    Load,
    Run,
    Witness,
    rows,
    running,
    source_config,
    target_config,
    until,
    write_config,
)

pytestmark = pytest.mark.timeout(1200)


class System:
    """What a fault may touch, and how to judge afterwards."""

    def __init__(self, run: Run, source: MariaDB, target: PostgreSQL, broker: Kafka, database: str) -> None:
        self.run, self.source, self.target, self.broker, self.database = run, source, target, broker, database

    def equal(self) -> bool:
        try:
            return rows(self.source, self.database) == rows(self.target, self.database)
        except Exception:  # noqa: BLE001 - the target is on its way up
            return False

    def under_load(self, fault: Callable[[System], None], seed: int) -> None:
        """Let `fault` happen in the middle of load, then judge."""
        witness = Witness(self.target, self.database)
        load = Load(self.source, self.database, seed)
        load.version = (max((row[1] for row in rows(self.source, self.database)), default=0)) + 1
        witness.start()
        load.start()
        try:
            until(lambda: load.count > 100, "load before the fault")
            at_fault = load.count
            fault(self)
            until(lambda: load.count > at_fault + 300, "load after the fault")
        finally:
            load.finish()
        until(self.equal, f"the target equals the source; see {self.run.log}", 150)
        witness.finish()
        assert witness.reads > 0
        assert witness.regressions == []


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("whole")
    database = "whole"
    mariadb.create_database(database)
    postgres.create_database(database)
    mariadb.execute(DDL, database=database)
    for key in range(0, KEYS, 2):  # rows for the snapshot
        mariadb.execute("INSERT INTO acct VALUES (%s, 0, %s, 7.5)", (key, f"first{key}"), database=database)
    config = write_config(
        folder,
        kafka={"bootstrap": kafka.bootstrap, "prefix": database},
        sources={"branch": source_config(mariadb, "mariadb", database)},
        targets={"hq": target_config(postgres, "postgres", database)},
        pipelines={
            "to-hq": {
                "sources": ["branch"], "target": "hq", "lanes": 4,
                "routes": [{"from": f"{database}.*", "to": "public.{table}"}],
            }
        },
    )  # fmt: skip
    try:
        with running(config, folder) as run:
            system = System(run, mariadb, postgres, kafka, database)
            until(system.equal, f"the snapshot is applied; see {run.log}", 120)
            yield system
    finally:
        with contextlib.suppress(Exception):
            mariadb.drop_database(database)
            postgres.drop_database(database)


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
    _, alive = psutil.wait_procs(family, timeout=30)
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
    system.under_load(fault, seed=len(fault.__name__))


def test_worker_killed_keeps_the_query(system: System) -> None:
    """A dead Python worker costs a task attempt, not the query: the driver process stays the same."""
    driver = until(lambda: system.run.find("consumer.main"), "the driver")
    before = [process.pid for process in driver]
    system.under_load(kill_python_worker, seed=77)
    assert [process.pid for process in system.run.find("consumer.main")] == before


def test_stops_cleanly_and_leaves_nothing(system: System) -> None:
    family: list[psutil.Process] = system.run.family()
    assert system.run.stop() == 0
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert Path(system.run.log).read_text()
    system.run.start()  # random order: whichever test comes next finds it running
    until(system.equal, "equal after a clean restart")
