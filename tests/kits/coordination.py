"""Coordinators and agents for tests: real processes and threads, real Kafka and gRPC, workers that only
report that they work.

`python -m tests.kits.coordination CONFIG-JSON` is one coordinator process. It prints a JSON line for its
port, for each change of who leads (with the machine's monotonic seconds), and for each fence; a line on stdin
is a command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import structlog

from coordinator.agent.shell import AgentShell
from coordinator.core.leader.state import Drain, Inventory, LeaderConfig, Move, Pause, Resign, Resume
from coordinator.core.schedulers import InventoryUnit, UnitKind
from coordinator.server.config import ServerConfig
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import ControlError, LeaderView
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.run import AgentConfiguration
from schemas.config.model import KafkaConfig, load_config
from schemas.units import Prepared, UnitProgress, UnitProgressed, WorkerEnded, WorkerEvent
from tests.kits.waiting import awaited

SOURCE, PIPELINE = "s", "p"


def inventory(count: int) -> Inventory:
    """Return `count` apply units of one pipeline."""
    units = [
        InventoryUnit(f"apply/{PIPELINE}/t{n:05}", UnitKind.APPLY, SOURCE, PIPELINE, "1")
        for n in range(count)
    ]
    return Inventory(tuple(units), {PIPELINE: (SOURCE,)})


def until(true: Callable[[], Any], seconds: float = 180.0, what: str = "what was awaited") -> Any:
    """Return the first true value of `true()`; fail after `seconds`."""
    return awaited(true, what, seconds, every=0.02)


@dataclass
class Instant:
    """Workers that are ready, replicate and end at once (`Workers` of coordinator.agent.shell)."""

    reported: Callable[[str, WorkerEvent], None] = lambda _unit, _event: None
    assignments: dict[str, int] = field(default_factory=dict)
    writing: dict[str, int] = field(default_factory=dict)
    started: list[tuple[str, int]] = field(default_factory=list)
    taken: list[object] = field(default_factory=list)
    figures: ReportedFigures = field(default_factory=ReportedFigures)

    def listen(self, on_event: Callable[[str, WorkerEvent], None]) -> None:
        self.reported = on_event

    def use_config(self, config: object) -> None:
        """As rowlock's own workers do."""
        self.taken.append(config)

    def use_oldest_agents(self, oldest: object) -> None:
        """As rowlock's own workers do."""

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        self.assignments[unit] = assignment
        self.reported(unit, Prepared(assignment))

    def start(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        self.writing[unit] = assignment
        self.started.append((unit, assignment))
        self.reported(unit, UnitProgressed(assignment, UnitProgress(1000, 2000), 10))

    def remove(self, unit: str, assignment: int) -> None:
        self.writing.pop(unit, None)
        self.reported(unit, WorkerEnded(assignment, UnitProgress(1000, 2000)))

    def fail(self, unit: str, why: str) -> None:
        self.reported(unit, WorkerEnded(self.writing.pop(unit), None, why))

    def close(self) -> None:
        for unit, assignment in list(self.writing.items()):
            self.remove(unit, assignment)


class AgentThread:
    """An agent of this process. `config`: its configuration file; None: it does not say what it has."""

    def __init__(self, name: str, peers: Sequence[str], config: Path | None = None) -> None:
        self.name, self.workers = name, Instant()
        file = (
            AgentConfiguration(load_config(config), self.workers.use_config) if config is not None else None
        )
        self.agent = AgentShell.connect(name, peers, self.workers, file=file)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.agent.run, args=(self._stop,), name=name, daemon=True)

    def cut(self) -> None:
        """From now on nothing goes to any coordinator or comes from one."""
        self.agent._client.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


class CoordinatorProcess:
    """A coordinator as a process of its own. `lines`: what it printed; `leads`: (monotonic seconds, rev or 0)
    per change."""

    def __init__(self, bootstrap: str, prefix: str, name: str, **more: Any) -> None:
        config = {"bootstrap": bootstrap, "prefix": prefix, "name": name, **more}
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.kits.coordination", json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(json.loads(line))

    def reported(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line["kind"] == kind]

    @property
    def address(self) -> str:
        found: str = until(lambda: self.reported("address"), 120, f"coordinator {self.name}'s address")[0][
            "address"
        ]
        return found

    @property
    def leads(self) -> int:
        """The term that it leads, as it last said; 0: none."""
        reported = self.reported("leader")
        return int(reported[-1]["rev"]) if reported and reported[-1]["mine"] else 0

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ask(self, question: str) -> dict[str, Any]:
        """Ask it one thing ("view", "resign", "move unit agent", …) and return the answer."""
        before = len(self.reported("answer"))
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = until(
            lambda: self.reported("answer")[before:], what=f"an answer to {question}"
        )[0]
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self._reader.join(5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


# the process


def _say(kind: str, **facts: Any) -> None:
    os.write(1, (json.dumps({"kind": kind, "at": time.monotonic(), **facts}) + "\n").encode())


def _watch(coordinator: Coordinator, stop: threading.Event) -> None:
    last: tuple[int, bool] | None = None
    while not stop.wait(0.01):
        leader = coordinator.get_leader()
        now = (leader.rev, leader.am_i) if leader else (0, False)
        if now != last:
            last = now
            _say("leader", rev=now[0], mine=now[1], name=leader.name if leader else "")


def _view(coordinator: Coordinator) -> dict[str, Any]:
    view = coordinator.get_view()
    return {
        "leader": view.leader.name if view.leader else None,
        "states": {u.unit: u.state for u in view.units},
        "agents": {u.unit: u.agent for u in view.units},
        "epochs": {u.unit: u.epoch for u in view.units},
        "members": {a.name: a.state for a in view.agents},
        "counters": dict(view.counters),
    }


def _answer(coordinator: Coordinator, words: list[str]) -> dict[str, Any]:
    commands: dict[str, Callable[..., Any]] = {
        "resign": Resign, "move": Move, "drain": Drain, "pause": Pause, "resume": Resume,
    }  # fmt: skip
    try:
        if words[0] == "view":
            return _view(coordinator)
        coordinator.execute_command(commands[words[0]](*words[1:]))
    except ControlError as error:
        leader: LeaderView | None = getattr(error, "leader", None)
        return {"error": type(error).__name__, "why": str(error), "leader": leader.name if leader else None}
    return {"done": words}


def _questions(coordinator: Coordinator) -> None:
    for line in sys.stdin:
        _say("answer", **_answer(coordinator, line.split()))


def main(config: dict[str, Any]) -> int:
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(sys.stderr))
    kafka = KafkaConfig(bootstrap=config["bootstrap"], prefix=config["prefix"])
    found = inventory(config.get("units", 0))
    listen = config.get("listen", "127.0.0.1:0")
    owner = LeaderConfig(interval=0.5, lease=config["lease"]) if "lease" in config else LeaderConfig()
    coordinator = Coordinator(
        ServerConfig(config["name"], listen, rest=f"rest-of-{config['name']}", leader=owner),
        kafka,
        lambda: found,
        lambda unit, uid, assignment: _say("fence", unit=unit, uid=uid, assignment=assignment),
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    port = coordinator.start()
    _say("address", address=f"127.0.0.1:{port}")
    for target in (lambda: _watch(coordinator, stop), lambda: _questions(coordinator)):
        threading.Thread(target=target, daemon=True).start()
    return coordinator.run(stop)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
