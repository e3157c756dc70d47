"""A coordinator and two agents of an earlier version are killed within a move, and continued by this one;
agents of both versions work under either."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock import __version__
from rowlock.inspect.observed.versions import BEFORE
from tests.kits.cluster import Addresses, Checkpoints, Processes
from tests.kits.running import (
    ACCOUNTS,
    HERE,
    Load,
    Program,
    Witness,
    rows,
    source_config,
    target_config,
    write_config,
)
from tests.kits.waiting import until
from tests.upgrade.releases import Release, earlier_releases, installed
from tests.upgrade.system import kill_all

pytestmark = pytest.mark.timeout(1800)

COORDINATOR = "c0"
GIVER, TAKER = "a1", "a2"


class Cluster:
    """A coordinator and two agents, each of a version; one table under load that goes from MariaDB to
    PostgreSQL."""

    def __init__(self, processes: Processes, database: str) -> None:
        self.processes, self.database = processes, database
        self.unit = f"apply/p/{database}.b.{database}.acct"

    def start(self, coordinator: Program, giver: Program, taker: Program) -> None:
        """Start the three with these programs, and await that both units run."""
        self.processes.coordinator(0, coordinator)
        until(self.processes.answers, f"a leader; see {self.processes.log(COORDINATOR)}", 120)
        self.processes.agent(GIVER, giver)
        self.processes.agent(TAKER, taker)
        until(
            lambda: len(self.agents()) == 2 and self.processes.all_replicate(2),
            self._see("both units run"),
            300,
        )

    def agents(self) -> dict[str, dict[str, Any]]:
        """Return the agents that the leader hears, by name."""
        shown = json.loads(self.processes.say("agents list --output json"))["agents"]
        return {each["name"]: each for each in shown if each["state"] == "synced" and each["connected"]}

    def move(self, agent: str) -> None:
        """Have an agent run the unit, and wait until it does."""
        if self.processes.units()[self.unit]["agent"] != agent:
            self.processes.say(f"units move {self.unit} {agent}")
        until(lambda: self._runs_on(agent), self._see(f"the move to {agent}"), 300)

    def _runs_on(self, agent: str) -> bool:
        units = self.processes.all_replicate(2)
        return units is not None and units[self.unit]["agent"] == agent

    def kill_within_move(self) -> None:
        """Begin the move of the unit to a paused agent, and kill everything before it is done.

        The move is requested at once: no unit moves to an agent whose lease has expired.
        """
        self.move(GIVER)
        path = f"/v1/units/{quote(self.unit)}"
        with self.processes.open_client() as client:
            client.get(path)  # the client knows the leader from now on
            with self.processes.standing_still(TAKER):
                client.post(f"{path}/move", {"agent": TAKER})
                until(lambda: client.get(path)["moving_to"] == TAKER, self._see("the begin of the move"))
                for name in (COORDINATOR, TAKER, GIVER):
                    kill_all(self.processes.family(name)[0].pid)
                    self.processes.kill(name)

    def status(self) -> dict[tuple[str, str], str | None]:
        """Return the versions that `status` shows, by kind and name."""
        shown = HERE.call("status", "--output", "json", "-c", str(self.processes.config))
        return {
            (each["kind"], each["name"]): each["version"] for each in json.loads(shown.stdout)["versions"]
        }

    def _see(self, what: str) -> str:
        return f"{what}; see {self.processes.config.parent}"


@pytest.fixture
def cluster(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, mariadb_db: str, tmp_path: Path
) -> Iterator[Cluster]:
    database, addresses = mariadb_db, Addresses(1)
    postgres.create_database(database)
    for statement in ACCOUNTS:
        mariadb.execute(statement, database=database)
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": database},
        spark={"memory": "512m"},
        sources={"b": source_config(mariadb, "mariadb", database)},
        targets={"hq": target_config(postgres, "postgres", database)},
        pipelines={"p": {"sources": ["b"], "target": "hq",
         "routes": [{"from": f"{database}.*", "to": "public.{table}"}]}},
        coordination=addresses.config,
    )  # fmt: skip
    processes = Processes(config, addresses)
    try:
        yield Cluster(processes, database)
    finally:
        processes.close()
        postgres.drop_database(database)


@pytest.mark.parametrize("release", earlier_releases(), ids=lambda each: each.version)
def test_a_move_is_continued_and_agents_of_both_versions_work(
    release: Release, cluster: Cluster, mariadb: MariaDB, postgres: PostgreSQL
) -> None:
    old = installed(release)
    its_version = reported_by(release)
    load = Load(mariadb, cluster.database, pause_s=0.05)
    witness, checkpoints = Witness(postgres, cluster.database), Checkpoints(cluster.processes.config)
    for thread in (load, witness, checkpoints):
        thread.start()

    cluster.start(old, old, old)
    cluster.kill_within_move()

    cluster.start(HERE, HERE, old)
    versions = {(COORDINATOR, __version__), (GIVER, __version__), (TAKER, its_version)}
    assert {(name, version) for (_, name), version in cluster.status().items()} == versions
    cluster.move(TAKER)
    grows(postgres, cluster.database)
    cluster.kill_within_move()

    cluster.start(old, old, HERE)
    assert cluster.status()["coordinator", COORDINATOR] == its_version
    cluster.move(TAKER)
    grows(postgres, cluster.database)
    assert set(cluster.processes.stop().values()) == {0}

    cluster.start(HERE, HERE, HERE)
    assert set(cluster.status().values()) == {__version__}
    for thread in (load, witness, checkpoints):
        thread.finish()
    assert load.count > 0
    until(lambda: rows(mariadb, cluster.database) == rows(postgres, cluster.database), "equal rows")
    verdict = HERE.call("verify", "-c", str(cluster.processes.config))
    assert verdict.returncode == 0, verdict.stdout
    assert witness.reads > 0
    assert (witness.regressions, checkpoints.regressions) == ([], [])
    assert set(cluster.processes.stop().values()) == {0}


def reported_by(release: Release) -> str:
    """Return what `status` shows as the version of its processes."""
    return BEFORE if release.version == "0.0" else release.version


def grows(postgres: PostgreSQL, database: str) -> None:
    """Await that changes of the load go on arriving."""
    newest = "SELECT max(version) FROM acct"
    before = postgres.execute(newest, database=database)[0][0]
    until(lambda: postgres.execute(newest, database=database)[0][0] > before, "further rows", 300)
