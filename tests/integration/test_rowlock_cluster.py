"""`rowlock coordinator` as real processes with real Kafka, and the commands that operators give; workers only
report that they work."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordinator.agent.shell import AgentShell
from coordinator.transport.security import Security
from deploy.embedded.services import Kafka
from rowlock import __version__
from tests.kits.cluster import Addresses, Processes
from tests.kits.coordination import AgentThread, Instant, until
from tests.kits.running import write_config
from tests.kits.topic import make_topics
from tests.servers.certificates import Authority

pytestmark = pytest.mark.integration

UNITS = 4


@pytest.fixture
def secured(tmp_path: Path) -> dict[str, Any]:
    """What the section `coordination` has beside addresses: nothing, unless a test says so."""
    return {}


@pytest.fixture
def cluster(kafka: Kafka, unique: str, tmp_path: Path, secured: dict[str, Any]) -> Iterator[Processes]:
    addresses = Addresses()
    server = {"type": "mariadb", "host": "127.0.0.1", "port": 1, "user": "u", "password": "topsecret"}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        sources={"b1": {**server, "tables": ["bank.*"]}},
        targets={"hq": {**server, "database": "d"}},
        pipelines={"p": {"sources": ["b1"], "target": "hq"}},
        coordination={**addresses.config, **secured},
    )
    make_topics(kafka.bootstrap, unique, "b1", [f"{unique}.b1.bank.t{i}" for i in range(UNITS - 1)])
    processes = Processes(config, addresses)
    yield processes
    processes.close()


def test_operators_see_and_change_what_runs_where(cluster: Processes, unique: str) -> None:
    cluster.coordinator(0)
    cluster.coordinator(1)
    until(cluster.answers, 40, "a leader")
    with ExitStack() as agents:
        agents.enter_context(AgentThread("a1", cluster.addresses.grpc))
        units = until(lambda: cluster.all_replicate(UNITS), 40, "units on the first agent")
        assert {unit["agent"] for unit in units.values()} == {"a1"}
        agents.enter_context(AgentThread("a2", cluster.addresses.grpc))
        topic = f"apply/p/{unique}.b1.bank.t0"
        until(
            lambda: len(json.loads(cluster.say("agents list --output json"))["agents"]) == 2,
            20,
            "the second agent",
        )
        cluster.say(f"units move {topic} a2")
        until(
            lambda: (u := cluster.all_replicate(UNITS)) is not None and u[topic]["agent"] == "a2",
            20,
            "the move",
        )
        cluster.say("units pause capture/b1")
        until(lambda: cluster.units()["capture/b1"]["state"] == "absent", 20, "the pause")
        leader = cluster.leader()
        cluster.kill(leader["name"])
        until(lambda: cluster.leader()["rev"] > leader["rev"], 30, "another leader")
        assert cluster.units()["capture/b1"]["paused"], "a pause outlives the coordinator"
        cluster.say("units resume capture/b1")
        until(lambda: cluster.all_replicate(UNITS), 30, "everything after the take-over")
        cluster.say("agents drain a1")
        until(lambda: {u["agent"] for u in cluster.units().values()} == {"a2"}, 30, "the drain")
        shown = json.loads(cluster.say("pipelines list --output json"))
        assert shown["pipelines"][0]["checkpoint_ts"] == 1000
    assert set(cluster.stop().values()) == {0}


def test_the_leader_alone_reports_its_version(cluster: Processes) -> None:
    cluster.coordinator(0)
    cluster.coordinator(1)

    def version(rest: str) -> str | None:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"http://{rest}/v1/leader", trust_env=False)
            return str(answer.json()["version"]) if answer.is_success else None
        return None

    until(lambda: {version(rest) for rest in cluster.addresses.rest} == {"", __version__}, 60, "both answers")


class TestSecured:
    """Mutual TLS for agents, HTTPS and a token for operators."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path)

    @pytest.fixture
    def secured(self, authority: Authority) -> dict[str, Any]:
        own = authority.issue("127.0.0.1", "localhost")
        return {"token": "topsecret", "tls": {"ca": str(own.ca), "cert": str(own.cert), "key": str(own.key)}}

    def test_only_who_belongs_there_can_be_an_agent_or_ask(
        self, cluster: Processes, authority: Authority
    ) -> None:
        cluster.coordinator(0)
        until(cluster.answers, 40, "a leader, over HTTPS with the token")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"https://{cluster.addresses.rest[0]}/v1/agents", trust_env=False)
        trusted = ssl.create_default_context(cafile=str(authority.ca))
        url = f"https://{cluster.addresses.rest[0]}/v1/agents"
        assert httpx.get(url, verify=trusted, trust_env=False).status_code == 401
        mine = authority.issue("a1")
        with ExitStack() as agents:
            for name in ("a1", "a2"):  # both with the certificate of a1
                workers = Instant()
                security = Security(mine.ca, mine.cert, mine.key)
                agent = AgentShell.connect(name, cluster.addresses.grpc, workers, security=security)
                stop = threading.Event()
                thread = threading.Thread(target=agent.run, args=(stop,), daemon=True)
                thread.start()
                agents.callback(thread.join, 20)
                agents.callback(stop.set)
            until(
                lambda: cluster.all_replicate(UNITS),
                40,
                "units on the agent whose name is in its certificate",
            )
            listed = json.loads(cluster.say("agents list --output json"))["agents"]
            assert [each["name"] for each in listed] == ["a1"]
        assert set(cluster.stop().values()) == {0}


def test_an_address_that_is_taken_is_one_message(cluster: Processes) -> None:
    taken = ("127.0.0.1", int(cluster.addresses.grpc[0].rpartition(":")[2]))
    with closing(socket.create_server(taken)):
        assert cluster.coordinator(0).wait(40) == 2
    reported = cluster.log("c0").read_text().splitlines()[-1]
    assert reported.startswith(f"rowlock: coordinator cannot listen on {cluster.addresses.grpc[0]}: ")
    assert reported.endswith(
        "choose a free address of this machine with --listen, --rest or in the configuration"
    )


def test_a_control_topic_that_cannot_serve_is_one_message(
    cluster: Processes, kafka: Kafka, unique: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(f"{unique}.control", 2, 1)])[f"{unique}.control"].result(30)
    assert cluster.coordinator(0).wait(40) == 2
    reported = cluster.log("c0").read_text()
    assert f"rowlock: topic {unique}.control has 2 partitions and must have one" in reported
    assert "Traceback" not in reported


def test_a_signal_before_there_is_a_leader_ends_it(cluster: Processes) -> None:
    process = cluster.coordinator(0)
    until(lambda: "coordinator started" in cluster.log("c0").read_text(), 40, "the coordinator")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
