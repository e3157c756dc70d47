"""`rowlock coordinator` as real processes with real Kafka, and the commands that operators give; workers only say that they work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.embedded.services import Kafka
from tests.coordination_kit import AgentThread, until

pytestmark = pytest.mark.integration


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Cluster:
    """A configuration, its processes, and its command line."""

    def __init__(self, kafka: Kafka, prefix: str, folder: Path) -> None:
        self._ports = [(free_port(), free_port()) for _ in range(2)]
        self.peers = [f"127.0.0.1:{grpc}" for grpc, _ in self._ports]
        self.file = folder / "c.yaml"
        server = "type: mariadb, host: 127.0.0.1, port: 1, user: u, password: topsecret"
        self.file.write_text(f"""\
kafka: {{bootstrap: "{kafka.bootstrap}", prefix: {prefix}}}
sources: {{b1: {{{server}, tables: [bank.*]}}}}
targets: {{hq: {{{server}, database: d}}}}
pipelines: {{p: {{sources: [b1], target: hq}}}}
coordination: {{coordinators: {json.dumps(self.peers)}, rest: "127.0.0.1:{self._ports[0][1]}"}}
""")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for made in admin.create_topics(
            [NewTopic(f"{prefix}.b1.bank.t{i}", 1, 1) for i in range(3)]
        ).values():
            made.result(30)

    def coordinator(self, number: int) -> subprocess.Popen[bytes]:
        grpc, rest = self._ports[number]
        addresses = ["--listen", f"127.0.0.1:{grpc}", "--rest", f"127.0.0.1:{rest}"]
        command = ["coordinator", "-c", str(self.file), "--name", f"c{number}", *addresses]
        return subprocess.Popen([sys.executable, "-m", "rowlock.cli", *command])

    def say(self, command: str) -> str:
        """Run one command; return what it printed. It must succeed."""
        words = [sys.executable, "-m", "rowlock.cli", *command.split(), "-c", str(self.file)]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    def answers(self) -> bool:
        """Whether there is a leader to ask."""
        try:
            self.say("agents list")
        except subprocess.CalledProcessError:
            return False
        return True

    def units(self) -> dict[str, dict[str, Any]]:
        shown = json.loads(self.say("units list --output json"))
        return {unit["unit"]: unit for unit in shown["units"]}

    def all_replicate(self) -> dict[str, dict[str, Any]] | None:
        units = self.units()
        states = {unit["state"] for unit in units.values()}
        return units if len(units) == 4 and states == {"replicating"} else None


@pytest.fixture
def cluster(kafka: Kafka, unique: str, tmp_path: Path) -> Cluster:
    return Cluster(kafka, unique, tmp_path)


@pytest.fixture
def started(cluster: Cluster) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield two coordinators, one of which leads; they end cleanly."""
    processes = [cluster.coordinator(0), cluster.coordinator(1)]
    try:
        until(cluster.answers, 40, "a leader")
        yield processes
    finally:
        for process in processes:
            process.terminate()
    ended = [process.wait(20) for process in processes]
    assert set(ended) <= {0, -signal.SIGKILL}


def test_operators_see_and_change_what_runs_where(
    cluster: Cluster, started: list[subprocess.Popen[bytes]], unique: str
) -> None:
    with ExitStack() as agents:
        agents.enter_context(AgentThread("a1", cluster.peers))
        units = until(cluster.all_replicate, 40, "units on the first agent")
        assert {unit["agent"] for unit in units.values()} == {"a1"}
        agents.enter_context(AgentThread("a2", cluster.peers))
        topic = f"apply/p/{unique}.b1.bank.t0"
        until(
            lambda: len(json.loads(cluster.say("agents list --output json"))["agents"]) == 2,
            20,
            "the second agent",
        )
        cluster.say(f"units move {topic} a2")
        until(lambda: (u := cluster.all_replicate()) and u[topic]["agent"] == "a2", 20, "the move")
        cluster.say("units pause capture/b1")
        until(lambda: cluster.units()["capture/b1"]["state"] == "absent", 20, "the pause")
        _kill_the_leader(started, cluster)
        assert cluster.units()["capture/b1"]["paused"], "a pause outlives the coordinator"
        cluster.say("units resume capture/b1")
        until(cluster.all_replicate, 30, "everything after the take-over")
        cluster.say("agents drain a1")
        until(lambda: {u["agent"] for u in cluster.units().values()} == {"a2"}, 30, "the drain")
        assert (
            json.loads(cluster.say("pipelines list --output json"))["pipelines"][0]["checkpoint_ts"] == 1000
        )


def _kill_the_leader(started: list[subprocess.Popen[bytes]], cluster: Cluster) -> None:
    from rowlock.leader import LeaderClient
    from schemas.config import load_config

    with LeaderClient(load_config(cluster.file, {}).coordination) as client:
        leader = client.get("/v1/leader")
        os.kill(started[int(leader["name"][1:])].pid, signal.SIGKILL)
        until(lambda: client.get("/v1/leader")["rev"] > leader["rev"], 20, "another leader")


def test_an_address_that_is_taken_is_one_message(cluster: Cluster) -> None:
    with closing(socket.create_server(("127.0.0.1", int(cluster.peers[0].rpartition(":")[2])))):
        process = cluster.coordinator(0)
        assert process.wait(30) == 2
