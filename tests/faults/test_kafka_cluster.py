"""Agents that write a topic, as real processes under load: killed, paused and moved, and their brokers
killed.

The judge (tests/topics) has every change of the source, and compares the whole topic at the end: each of them
once, in order by key.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.cluster import Addresses, Checkpoints, Processes
from tests.kits.running import saying, source_config, target_config, write_config
from tests.kits.waiting import awaited, until
from tests.topics.expected import Written
from tests.topics.journal import COLUMNS, Journal
from tests.topics.site import Followed, followed, under_load

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

AGENTS = ("a0", "a1")
TABLE = "acct"


@dataclass
class Cluster:
    """A coordinator and two agents. `store`: the broker of rowlock's own topics; `feed`: that of the target,
    maybe the same one."""

    processes: Processes
    store: Kafka
    feed: Kafka
    topic: Followed
    source: Journal
    db: str
    postgres: PostgreSQL | None

    @property
    def unit(self) -> str:
        return f"apply/out/{self.db}.b.{self.db}.{TABLE}"

    def units(self) -> dict[str, dict[str, Any]]:
        from rowlock.coordinator.leader_client import LeaderClient
        from rowlock.errors import CommandError
        from schemas.config.model import load_config

        config = load_config(self.processes.config, {}).coordination
        with LeaderClient(config, patience_s=5) as client, contextlib.suppress(CommandError):
            return {each["unit"]: each for each in client.get("/v1/units")["units"]}
        return {}

    def at(self) -> str | None:
        """Return the agent that writes the topic now."""
        found = self.units().get(self.unit, {})
        return found["agent"] if found.get("state") == "replicating" else None

    def settled(self) -> str:
        return str(until(self.at, f"somebody writes the topic; see {self.processes.config.parent}", 240))

    def elsewhere(self, was: str) -> None:
        until(lambda: self.at() not in (None, was), f"another agent than {was}", 240)

    def database(self) -> list[tuple[Any, ...]]:
        """Return the rows of the other target; none where it does not answer, or has none yet."""
        assert self.postgres is not None
        names = ", ".join(COLUMNS)
        with contextlib.suppress(Exception):
            found = self.postgres.execute(f"SELECT {names} FROM {TABLE} ORDER BY id", database=self.db)
            return [tuple(row) for row in found]
        return []

    def database_equals(self) -> bool:
        return self.database() == sorted(tuple(row.values()) for row in self.source.rows(TABLE))

    def version(self) -> int:
        """Return the highest version that the database has; -1: none."""
        return max((int(row[1]) for row in self.database()), default=-1)

    def kill_process(self, *words: str) -> None:
        """kill -9 of what the topic's agent runs under these words."""
        name = self.settled()
        victims = until(lambda: saying(self.processes.family(name), *words), f"{words} at {name}")
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()


def kill_the_driver(cluster: Cluster) -> None:
    """It is the topic's worker, too: whole batches are applied in it."""
    cluster.kill_process("consumer.main")


def kill_spark(cluster: Cluster) -> None:
    cluster.kill_process("java", "consumer.spark.daemon")


def pause_an_agent(cluster: Cluster) -> None:
    """A machine is paused until another agent has its unit, and writes; then it goes on as if nothing had
    happened."""
    name = cluster.settled()
    with cluster.processes.standing_still(name):
        cluster.elsewhere(name)
        cluster.topic.goes_on(30, f"{name} stands still")
    cluster.topic.goes_on(60, f"{name} is back")


def pause_inside_a_commit(cluster: Cluster) -> None:
    """The same, of an agent whose driver has a transaction open: what it does next is to go on with that."""
    name = cluster.settled()
    (driver,) = until(
        lambda: saying(cluster.processes.family(name), "consumer.main"), f"the driver of {name}"
    )

    def inside() -> bool:
        if not cluster.topic.open_transaction():
            return False
        driver.suspend()
        if cluster.topic.open_transaction():
            return True
        driver.resume()
        return False

    awaited(inside, f"{name} stands still with a transaction open", 120, every=0.002)
    with cluster.processes.standing_still(name):
        cluster.elsewhere(name)
        cluster.topic.goes_on(30, f"{name} stands still")
    cluster.topic.goes_on(60, f"{name} is back")


def move(cluster: Cluster) -> None:
    (there,) = set(AGENTS) - {cluster.settled()}

    def moved() -> bool:
        if cluster.at() in (there, None):
            return cluster.at() == there
        with contextlib.suppress(
            subprocess.CalledProcessError
        ):  # it is being moved already, to even out the load
            cluster.processes.say(f"units move {cluster.unit} {there}")
        return False

    until(moved, f"the move to {there}", 240)


def kill_an_agent(cluster: Cluster) -> None:
    name = cluster.settled()
    cluster.processes.kill(name)
    cluster.elsewhere(name)
    cluster.processes.agent(name)


def kill_the_targets_broker(cluster: Cluster) -> None:
    """The other target of the same source goes on meanwhile."""
    cluster.feed.kill()
    if cluster.postgres is not None:
        version = cluster.version()
        until(
            lambda: cluster.version() > version >= 0, "the database goes on without the topic's broker", 240
        )
    cluster.feed.start()


def kill_the_store(cluster: Cluster) -> None:
    cluster.store.kill()
    cluster.store.start()


Fault = Callable[[Cluster], None]


@contextlib.contextmanager
def cluster_of(
    folder: Path, mariadb: MariaDB, store: Kafka, feed: Kafka, postgres: PostgreSQL | None, db: str
) -> Iterator[Cluster]:
    source = Journal(mariadb, db, [TABLE], pause_s=0.05)
    source.prepare()
    written = Written(f"head{db}.{TABLE}", "debezium", key=("town", "id"), partitions=2)
    topic = Followed(feed, written, TABLE, {"b": source})
    addresses = Addresses(1)
    route = written.route(f"{db}.{TABLE}")
    targets = {"feed": {"type": "kafka", "bootstrap": feed.bootstrap, "prefix": f"{db}.feed"}}
    pipelines = {"out": {"sources": ["b"], "target": "feed", "commit_every": 0.2, "routes": [route]}}
    if postgres is not None:
        postgres.create_database(db)
        targets["hq"] = target_config(postgres, "postgres", db)
        pipelines["to-hq"] = {
            "sources": ["b"],
            "target": "hq",
            "lanes": 2,
            "routes": [{"from": "*.*", "to": "public.{table}"}],
        }
    config = write_config(
        folder,
        kafka={"bootstrap": store.bootstrap, "prefix": db},
        sources={"b": source_config(mariadb, "mariadb", db)},
        targets=targets,
        pipelines=pipelines,
        coordination=addresses.config,
    )
    processes = Processes(config, addresses)
    try:
        with followed([topic]):
            processes.coordinator(0)
            for name in AGENTS:
                processes.agent(name)
            topic.ends(f"the snapshot; see {folder}")
            yield Cluster(processes, store, feed, topic, source, db, postgres)
    finally:
        processes.close()
        if postgres is not None:
            with contextlib.suppress(Exception):
                postgres.drop_database(db)


def each_in_turn(cluster: Cluster, *faults: Fault) -> None:
    """Under one load; between two faults the topic goes on. At the end it has what the source did, and the
    pipeline's checkpoint, which never went back, is past the load's begin."""
    checkpoints, began = Checkpoints(cluster.processes.config), int(time.time() * 1000)
    checkpoints.start()
    with under_load([cluster.source], 50):
        for fault in faults:
            cluster.topic.goes_on(50, f"before {fault.__name__}")
            fault(cluster)
            cluster.topic.goes_on(50, f"after {fault.__name__}")
            print(f"{fault.__name__}: {cluster.topic.count()} records", flush=True)
    cluster.topic.ends(f"the end; see {cluster.processes.config.parent}")
    until(lambda: checkpoints.checkpoint("out") >= began, "the checkpoint is past the load's begin", 60)
    checkpoints.finish()
    assert checkpoints.regressions == []


@pytest.mark.slow
def test_a_topic_has_every_change_once_whatever_is_killed_paused_or_moved(
    mariadb: MariaDB, kafka: Kafka, postgres: PostgreSQL, mariadb_db: str, tmp_path: Path
) -> None:
    with Kafka() as feed, cluster_of(tmp_path, mariadb, kafka, feed, postgres, mariadb_db) as cluster:
        each_in_turn(
            cluster, kill_spark, kill_the_driver, pause_an_agent, move, pause_inside_a_commit, kill_an_agent,
            kill_the_targets_broker, kill_the_store,
        )  # fmt: skip
        until(cluster.database_equals, f"the other target; see {tmp_path}", 240)
        assert set(cluster.processes.stop().values()) == {0}


LONG = (kill_the_store, pause_inside_a_commit, kill_the_store, kill_an_agent, kill_the_driver)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((pause_inside_a_commit, move), id="short"),
        pytest.param(LONG, id="long", marks=pytest.mark.slow),
    ],
)
def test_a_topic_beside_the_store_has_every_change_once(
    faults: tuple[Fault, ...], mariadb: MariaDB, kafka: Kafka, mariadb_db: str, tmp_path: Path
) -> None:
    with cluster_of(tmp_path, mariadb, kafka, kafka, None, mariadb_db) as cluster:
        each_in_turn(cluster, *faults)
        assert set(cluster.processes.stop().values()) == {0}
