"""Two coordinators and three agents as real processes, with real databases under load: moves, deaths,
standstills, cuts.

After each fault the load goes on for a while, then ends; source and target must then be equal row by row, no
row of the target may have been seen to go back, and no checkpoint either. `ROWLOCK_FAULTS=30` is the long run
of one fault after another (about half a minute each).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.cluster import Addresses, Checkpoints, Processes
from tests.kits.running import ACCOUNTS, Load, Witness, rows, source_config, target_config, write_config
from tests.kits.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(0)]

COUNT = int(os.environ.get("ROWLOCK_FAULTS", "6"))
AGENTS = ("a0", "a1", "a2")
#: Longer than the lease and what it takes to notice.
STANDSTILL_S = 14.0


class Cluster:
    """What a fault may touch, and how to judge afterwards."""

    def __init__(
        self, processes: Processes, source: MariaDB, target: PostgreSQL, broker: Kafka, database: str
    ) -> None:
        self.processes, self.source, self.target, self.broker, self.database = (
            processes,
            source,
            target,
            broker,
            database,
        )
        self.checkpoints = Checkpoints(processes.config)

    def equal(self) -> bool:
        try:
            return rows(self.source, self.database) == rows(self.target, self.database)
        except Exception:  # noqa: BLE001 - the table is not there yet
            return False

    def well(self) -> bool:
        return self.processes.all_replicate(2) is not None

    def at(self, unit: str) -> str:
        """Return the agent that runs the unit whose name ends so."""
        found = until(
            lambda: [u["agent"] for n, u in self.processes.units().items() if n.endswith(unit)],
            f"{unit}'s agent",
        )
        return str(found[0] or AGENTS[0])


def move(cluster: Cluster, dice: random.Random) -> None:
    unit = dice.choice([f"apply/p/{cluster.database}.b.{cluster.database}.acct", "capture/b"])
    here = cluster.at(unit)
    there = dice.choice([name for name in AGENTS if name != here])
    cluster.processes.say(f"units move {unit} {there}")
    until(lambda: cluster.well() and cluster.at(unit) == there, f"the move of {unit}", 90)


def kill_an_agent(cluster: Cluster, dice: random.Random) -> None:
    name = cluster.at(dice.choice(["acct", "capture/b"]))
    cluster.processes.kill(name)
    until(
        lambda: cluster.well() and cluster.at("acct") != name and cluster.at("capture/b") != name,
        "the other agent",
        90,
    )
    cluster.processes.agent(name)


def still_agent(cluster: Cluster, dice: random.Random) -> None:
    """A machine stands still for longer than its lease, and goes on as if nothing had been."""
    name = cluster.at(dice.choice(["acct", "capture/b"]))
    with cluster.processes.standing_still(name):
        time.sleep(STANDSTILL_S)


def kill_the_leader(cluster: Cluster, _: random.Random) -> None:
    leader = cluster.processes.leader()
    cluster.processes.kill(leader["name"])
    until(lambda: cluster.processes.leader()["rev"] > leader["rev"], "another leader", 30)
    cluster.processes.coordinator(int(leader["name"][1:]))


def still_leader(cluster: Cluster, _: random.Random) -> None:
    with cluster.processes.standing_still(cluster.processes.leader()["name"]):
        time.sleep(STANDSTILL_S)


def stop_an_agent(cluster: Cluster, dice: random.Random) -> None:
    name = dice.choice(AGENTS)
    assert cluster.processes.end(name) == 0
    until(lambda: cluster.well() and cluster.at("acct") != name, "the other agent", 90)
    cluster.processes.agent(name)


def cut_the_network(cluster: Cluster, dice: random.Random) -> None:
    """Between all agents and all coordinators, in one direction or both, beyond the lease or not."""
    direction = dice.choice([{"up": True, "down": False}, {"up": False, "down": True}, {}])
    for proxy in cluster.processes.addresses.proxies:
        proxy.cut(**direction)
    time.sleep(dice.choice([4.0, STANDSTILL_S]))
    for proxy in cluster.processes.addresses.proxies:
        proxy.heal()


def kill_a_worker_process(cluster: Cluster, dice: random.Random) -> None:
    """A capture process or the apply process of the agent that runs something."""
    word = dice.choice(["producer.main", "consumer.main"])
    name = cluster.at("acct" if word == "consumer.main" else "capture/b")
    for each in cluster.processes.family(name):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line
            if word in " ".join(each.cmdline()):
                each.kill()


def restart_the_target(cluster: Cluster, _: random.Random) -> None:
    cluster.target.restart()


def restart_the_broker(cluster: Cluster, _: random.Random) -> None:
    cluster.broker.restart()


FAULTS: tuple[Callable[[Cluster, random.Random], None], ...] = (
    move, kill_an_agent, cut_the_network, kill_the_leader, still_agent, kill_a_worker_process, still_leader,
    stop_an_agent, restart_the_target, restart_the_broker,
)  # fmt: skip


@pytest.fixture
def cluster(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, mariadb_db: str, tmp_path: Path
) -> Iterator[Cluster]:
    database, addresses = mariadb_db, Addresses(proxied=True)
    postgres.create_database(database)
    for statement in ACCOUNTS:
        mariadb.execute(statement, database=database)
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": database},
        sources={"b": source_config(mariadb, "mariadb", database)},
        targets={"hq": target_config(postgres, "postgres", database)},
        pipelines={
            "p": {
                "sources": ["b"],
                "target": "hq",
                "routes": [{"from": f"{database}.*", "to": "public.{table}"}],
            }
        },
        coordination=addresses.config,
    )
    processes = Processes(config, addresses)
    try:
        for number in range(2):
            processes.coordinator(number)
        for name in AGENTS:
            processes.agent(name)
        cluster = Cluster(processes, mariadb, postgres, kafka, database)
        until(lambda: cluster.well() and cluster.equal(), f"the snapshot; see {tmp_path}", 180)
        yield cluster
    finally:
        processes.close()
        for proxy in addresses.proxies:
            proxy.close()
        with contextlib.suppress(Exception):
            postgres.drop_database(database)


def test_after_every_fault_the_target_equals_the_source(cluster: Cluster) -> None:
    dice = random.Random(COUNT)
    witness = Witness(cluster.target, cluster.database)
    witness.start()
    cluster.checkpoints.start()
    for number in range(COUNT):
        fault = FAULTS[number % len(FAULTS)]
        began = time.monotonic()
        _under_load(cluster, lambda fault=fault: fault(cluster, dice), number)  # type: ignore[misc]
        print(f"{number + 1}: {fault.__name__}, well after {time.monotonic() - began:.0f} s", flush=True)
    witness.finish()
    assert witness.reads > 0
    assert witness.regressions == []
    cluster.checkpoints.finish()
    assert cluster.checkpoints.reads > 10 * COUNT
    assert cluster.checkpoints.regressions == []
    family = [each for name in AGENTS for each in cluster.processes.family(name)]
    assert set(cluster.processes.stop().values()) == {0}
    assert not [each for each in family if _alive(each)], "an agent leaves no process behind"


def _alive(process: psutil.Process) -> bool:
    """Whether it still runs; one that has ended and that nobody has looked after yet does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _under_load(cluster: Cluster, fault: Callable[[], Any], seed: int) -> None:
    load = Load(cluster.source, cluster.database, seed)
    load.version = max((row[1] for row in rows(cluster.source, cluster.database)), default=0) + 1
    began = int(time.time() * 1000)  # of the source, too: one machine
    load.start()
    try:
        until(lambda: load.count > 100, "load before the fault")
        fault()
        at_fault = load.count
        until(lambda: load.count > at_fault + 200, "load after the fault")
    finally:
        load.finish()
    until(cluster.equal, f"the target equals the source; see {cluster.processes.config.parent}", 180)
    until(cluster.well, "all units run", 180)
    until(lambda: cluster.checkpoints.checkpoint("p") >= began, "the checkpoint is past the load's begin", 60)
