"""Reload on several machines: real coordinators and Kafka, agents with files of their own, workers that only
report that they work."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.services import Kafka
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.errors import CommandError
from schemas.config.model import load_config
from tests.kits.cluster import Addresses, Processes
from tests.kits.coordination import AgentThread, until
from tests.kits.running import write_config
from tests.kits.topic import make_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


class Files:
    """The file of the coordinators, and one for each agent's machine."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.raw: dict[str, Any] = yaml.safe_load(config.read_text())

    def from_config(self, agent: str) -> Path:
        return self.config.with_name(f"{agent}.yaml")

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Only the coordinators' yet."""
        change(self.raw)
        self.config.write_text(yaml.safe_dump(self.raw, sort_keys=False))

    def bring(self, *agents: str) -> None:
        """Bring the file to the machines of these agents."""
        for agent in agents:
            self.from_config(agent).write_text(self.config.read_text())


@pytest.fixture
def cluster(kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Processes]:
    addresses = Addresses()
    server = {"type": "mariadb", "host": "127.0.0.1", "port": 1, "user": "u", "password": "x"}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        sources={"b1": {**server, "tables": ["bank.*"]}},
        targets={"hq": {**server, "database": "d"}},
        pipelines={name: {"sources": ["b1"], "target": "hq"} for name in ("p", "q")},
        coordination={**addresses.config, "balance_every_s": 86400},  # nothing moves but what the test moves
    )
    make_topics(kafka.bootstrap, unique, "b1", [f"{unique}.b1.bank.acct"])
    processes = Processes(config, addresses)
    yield processes
    processes.close()


def epochs(cluster: Processes) -> dict[str, int]:
    return {name: unit["epoch"] for name, unit in cluster.units().items() if unit["state"] == "replicating"}


def reloaded(cluster: Processes) -> dict[str, Any]:
    with LeaderClient.from_config(load_config(cluster.config)) as leader:
        return leader.reload_config()


def refused(cluster: Processes) -> str:
    with pytest.raises(CommandError) as error:
        reloaded(cluster)
    return str(error.value)


def agents(cluster: Processes) -> dict[str, dict[str, Any]]:
    with LeaderClient.from_config(load_config(cluster.config)) as leader:
        return {each["name"]: each for each in leader.get("/v1/agents")["agents"]}


def events(cluster: Processes, what: str) -> list[dict[str, Any]]:
    with LeaderClient.from_config(load_config(cluster.config)) as leader:
        return [each["about"] for each in leader.get("/v1/events")["events"] if each["what"] == what]


def lanes(number: int) -> Callable[[dict[str, Any]], object]:
    return lambda raw: raw["pipelines"]["p"].update(lanes=number)


def test_all_machines_or_none(cluster: Processes, unique: str) -> None:
    files = Files(cluster.config)
    p, q = (f"apply/{name}/{unique}.b1.bank.acct" for name in "pq")
    files.bring("a1", "a2")
    cluster.coordinator(0)
    until(cluster.answers, 120, "a leader")
    with ExitStack() as stack:
        for name in ("a1", "a2"):
            stack.enter_context(AgentThread(name, cluster.addresses.grpc, files.from_config(name)))
        before = until(lambda: (e := epochs(cluster)) and len(e) == 3 and e, 120, "all units")
        assert set(before) == {"capture/b1", p, q}

        files.change(lanes(2))
        files.bring("a1")
        why = refused(cluster)
        assert "agent a2: its file holds another configuration" in why
        files.from_config("a2").write_text(cluster.config.read_text().replace("lanes: 2", "lanes: many"))
        why = refused(cluster)
        assert f"agent a2: {files.from_config('a2')}:" in why
        assert "pipelines.p.lanes: 'many' does not fit" in why
        assert epochs(cluster) == before
        assert {each["in_force"] for each in agents(cluster).values()} == {True}
        assert len(events(cluster, "command refused")) == 2

        files.bring("a2")
        answer = reloaded(cluster)
        assert answer["changes"] == ["pipelines.p.lanes: 4 → 2"]
        after = until(
            lambda: (e := epochs(cluster)).get(p, 0) > before[p] and len(e) == 3 and e, 60, "p anew"
        )
        assert {unit: epoch for unit, epoch in after.items() if unit != p} == {
            unit: epoch for unit, epoch in before.items() if unit != p
        }
        assert {each["configuration"] for each in agents(cluster).values()} == {answer["digest"]}

        # another coordinator, whose file came late, by signal; the first one dies
        cluster.coordinator(1)
        files.change(lanes(3))
        files.bring("a1", "a2")
        cluster.signal("c0", signal.SIGHUP)
        until(lambda: len(events(cluster, "configuration in force")) == 2, 60, "the reload by SIGHUP")
        before = until(
            lambda: (e := epochs(cluster)).get(p, 0) > after[p] and len(e) == 3 and e, 60, "p anew"
        )
        leader = cluster.leader()
        cluster.kill(leader["name"])
        until(lambda: cluster.leader()["rev"] > leader["rev"], 120, "another leader")
        until(lambda: epochs(cluster) == before, 60, "all units as they were")
        assert {each["in_force"] for each in agents(cluster).values()} == {True}
        assert events(cluster, "configuration in force") == [], "it caught up with its file"

        # one that joins with an old file is given nothing until it has what is in force
        files.from_config("a3").write_text(cluster.config.read_text().replace("lanes: 3", "lanes: 9"))
        stack.enter_context(AgentThread("a3", cluster.addresses.grpc, files.from_config("a3")))
        until(lambda: "a3" in agents(cluster) and not agents(cluster)["a3"]["in_force"], 60, "a3 is behind")
        with LeaderClient.from_config(load_config(cluster.config)) as leading:
            with pytest.raises(CommandError, match="does not have the active configuration"):
                leading.post(f"/v1/units/{q}/move", {"agent": "a3"})
            files.bring("a3")
            until(lambda: agents(cluster)["a3"]["in_force"], 60, "a3 has caught up")
            leading.post(f"/v1/units/{q}/move", {"agent": "a3"})
        until(lambda: cluster.units()[q]["agent"] == "a3", 60, "the move")
    cluster.stop()
