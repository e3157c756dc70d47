"""What a move, a pause and the loss of an agent cost a topic: real agents and coordinator, MySQL → Kafka →
PostgreSQL under load.

The load is the workload of bench/workload.py at `rate` row events/s. A probe reads the topic's progress in
the target; a gap is the longest time without a commit of the topic: from the last one before the move was
asked for (or the agent killed) until it goes on. `none` is the same without a move. The first moves meet a
Spark that has never run and do not count.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import structlog

from bench import workload
from bench.kit import wait
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL, combine_services
from rowlock.coordinator.leader_client import LeaderClient
from schemas.config.model import load_config
from tests.kits.cluster import Addresses, Processes
from tests.kits.running import source_config, target_config, write_config

AGENTS = ("a0", "a1")
JOINING = "a2"
COLD = 4
RESUMES = 5
BACKLOG_S = 3.0
"""How long a paused unit's backlog grows."""
SETTLE_S = 2.0
DATABASE = "bench"
TICKS_S = 10
"""How often a second the load writes."""


class Load(threading.Thread):
    """`rate` row events/s in transactions of 10."""

    def __init__(self, source: Any, rate: int) -> None:
        super().__init__(name="load", daemon=True)
        self._source, self._transactions = source, rate // workload.EVENTS_PER_TRANSACTION // TICKS_S
        self._ending = threading.Event()
        self._done, self._began = 0, time.monotonic()
        self.events = 0

    def run(self) -> None:
        with contextlib.closing(self._source.connect(DATABASE)) as connection, connection.cursor() as cursor:
            while not self._ending.wait(max(0.0, self._began + self._done / TICKS_S - time.monotonic())):
                first = self._done * self._transactions
                cursor.execute("CALL fill(%s, %s)", (first, first + self._transactions))
                self._done += 1
                self.events = self._done * self._transactions * workload.EVENTS_PER_TRANSACTION

    def finish(self) -> float:
        """End it; return row events/s as made."""
        self._ending.set()
        self.join()
        return self.events / (time.monotonic() - self._began)


class Probe(threading.Thread):
    """When the topic's progress in the target changed."""

    def __init__(self, target: Any) -> None:
        super().__init__(name="probe", daemon=True)
        self._target, self._ending = target, threading.Event()
        self.commits: list[tuple[float, int]] = []

    def run(self) -> None:
        query = f"SELECT min(kafka_offset) FROM rowlock_progress WHERE topic LIKE '%.{workload.TABLE}'"
        with contextlib.closing(self._target.connect(DATABASE)) as connection:
            while not self._ending.wait(0.01):
                with contextlib.suppress(Exception):
                    (offset,) = connection.execute(query).fetchone()
                    if offset is not None and (not self.commits or self.commits[-1][1] != offset):
                        self.commits.append((time.monotonic(), offset))

    def gap(self, since: float) -> float:
        """Return the longest time without a commit, from the last one before `since` until now."""
        times = [at for at, _ in list(self.commits)]
        before = [at for at in times if at <= since][-1:] or [since]
        after = [at for at in times if at > since]
        return max(b - a for a, b in pairwise([*before, *after, time.monotonic()]))

    def first_commit(self, since: float) -> float:
        """Return the time of the first commit after `since`."""
        return next(at for at, _ in list(self.commits) if at > since)

    def finish(self) -> None:
        self._ending.set()
        self.join()


class Cluster:
    """A coordinator and two agents under load."""

    def __init__(self, processes: Processes, client: LeaderClient, probe: Probe) -> None:
        self.processes, self.client, self.probe = processes, client, probe

    def units(self) -> dict[str, dict[str, Any]]:
        return {unit["unit"]: unit for unit in self.client.list_units({})}

    def apply_unit(self) -> str:
        return next(name for name in self.units() if name.startswith("apply/"))

    def well(self) -> bool:
        units = self.units()
        return len(units) == 2 and all(unit["state"] == "replicating" for unit in units.values())

    def move(self, unit: str) -> float:
        """Move `unit` to the other agent; return the longest gap around it."""
        here = self.units()[unit]["agent"]
        there = next(name for name in AGENTS if name != here)
        asked = time.monotonic()
        self.client.post(f"/v1/units/{unit}/move", {"agent": there})
        wait(
            lambda: self.units()[unit]["agent"] == there and self.well(),
            f"the move; {self.units()}",
            60,
            pause=0.2,
        )
        time.sleep(SETTLE_S)
        return self.probe.gap(asked)

    def resume(self, unit: str) -> float:
        """Pause `unit` until it has a backlog; return the time from the command to resume it until its next
        commit."""
        self.client.post(f"/v1/units/{unit}/pause", {})
        wait(lambda: self.units()[unit]["state"] == "absent", f"the pause; {self.units()}", 60, pause=0.1)
        time.sleep(BACKLOG_S)
        asked = time.monotonic()
        self.client.post(f"/v1/units/{unit}/resume", {})
        wait(self.well, f"it goes on; {self.units()}", 60, pause=0.1)
        time.sleep(SETTLE_S)
        return self.probe.first_commit(asked) - asked

    def join(self) -> float:
        """Start another agent and end it again; return the time from its start until it takes units."""
        began = time.monotonic()
        self.processes.agent(JOINING)
        wait(lambda: JOINING in self.alive(), "the third agent", 60, pause=0.02)
        seconds = time.monotonic() - began
        self.processes.end(JOINING)
        wait(lambda: JOINING not in self.alive(), "its end", 60, pause=0.2)
        return seconds

    def lose(self, unit: str) -> float:
        """kill -9 of the agent that runs `unit`, with everything it has started; return the gap around it."""
        name = str(self.units()[unit]["agent"])
        family = self.processes.family(name)
        asked = time.monotonic()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        wait(lambda: self.well() and self.units()[unit]["agent"] != name, "the other agent", 90, pause=0.2)
        time.sleep(SETTLE_S * 2)
        found = self.probe.gap(asked)
        self.processes.kill(name)
        self.processes.agent(name)
        wait(lambda: name in self.alive(), "the agent again", 60, pause=0.2)
        time.sleep(SETTLE_S * 5)  # its Spark starts
        for _ in range(COLD):
            self.move(unit)  # an agent that has never run a unit needs ten seconds more for its first one
        return found

    def alive(self) -> list[str]:
        agents = self.client.get("/v1/agents")["agents"]
        return [a["name"] for a in agents if a["state"] == "synced" and a["connected"]]


@contextlib.contextmanager
def clusters(folder: Path) -> Iterator[tuple[Cluster, Any, Any]]:
    """Run one; yields it with source and target."""
    source = MySQL(durable=False) if MySQL.explain_unavailable() is None else MariaDB(durable=False)
    kind = "mysql" if isinstance(source, MySQL) else "mariadb"
    with combine_services(kafka := Kafka(), source, postgres := PostgreSQL()):
        source.create_database(DATABASE)
        postgres.create_database(DATABASE)
        with contextlib.closing(source.connect(DATABASE)) as connection, connection.cursor() as cursor:
            workload.prepare(cursor)
        addresses = Addresses(count=1)
        route = {"from": f"{DATABASE}.*", "to": "public.{table}"}
        config = write_config(
            folder,
            kafka={"bootstrap": kafka.bootstrap, "prefix": DATABASE},
            sources={"b": source_config(source, kind, DATABASE)},
            targets={"hq": target_config(postgres, "postgres", DATABASE)},
            pipelines={"p": {"sources": ["b"], "target": "hq", "routes": [route]}},
            coordination=addresses.config,
        )
        processes = Processes(config, addresses)
        try:
            processes.coordinator(0)
            for name in AGENTS:
                processes.agent(name)
            with LeaderClient(load_config(config, {}).coordination) as client:
                yield Cluster(processes, client, Probe(postgres)), source, postgres
        finally:
            processes.close()


def run(moves: int = 20, losses: int = 3, rate: int = 5000) -> dict[str, Any]:
    """Return seconds: `none`, `apply` and `capture` (a gap a move, COLD more before them), `lost` (a gap an
    agent), `resumed` (from the command until the next commit) and `joined` (from an agent's start until it
    takes units)."""
    with (
        tempfile.TemporaryDirectory(prefix="rowlock-cluster-") as folder,
        clusters(Path(folder)) as (cluster, source, _),
    ):
        wait(cluster.well, "both units run", 120, pause=0.5)
        load, probe = Load(source, rate), cluster.probe
        load.start()
        probe.start()
        wait(lambda: len(probe.commits) > 3, "the first commits", 120)
        unit = cluster.apply_unit()
        _times(cluster.move, unit, COLD)
        began = time.monotonic()
        time.sleep(10)
        found: dict[str, Any] = {"none": [probe.gap(began)]}
        found["apply"] = _times(cluster.move, unit, moves)
        found["capture"] = _times(cluster.move, "capture/b", 5)
        found["resumed"] = _times(cluster.resume, unit, RESUMES)
        found["joined"] = [cluster.join() for _ in range(RESUMES)]
        found["lost"] = _times(cluster.lose, unit, losses)
        found["rows_per_s"] = load.finish()
        probe.finish()
    return found


def _times(act: Callable[[str], float], unit: str, number: int) -> list[float]:
    return [act(unit) for _ in range(number)]


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for what, gaps in run().items():
        print(what, [round(gap, 3) for gap in sorted(gaps)] if isinstance(gaps, list) else round(gaps))


if __name__ == "__main__":
    main()
