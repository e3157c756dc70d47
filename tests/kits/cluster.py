"""Coordinators and agents as the command line starts them, over one configuration, and its commands.

`Processes` keeps each one's log in the test's folder. A SIGSTOP meets a process with everything it has
started, as if its machine had stopped.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from deploy.embedded import ports
from tests.kits.families import family, send, standing_still
from tests.kits.running import HERE, Program
from tests.servers.proxy import TcpProxy

if TYPE_CHECKING:
    from rowlock.coordinator.leader_client import LeaderClient

Unit = dict[str, Any]


#: Where coordinators listen whose network can be cut, and where agents think they are.
BEHIND, BEFORE = "127.0.1.1", "127.0.2.1"


class Addresses:
    """Where `count` coordinators of one machine listen. `proxied`: agents reach them through `proxies`
    only."""

    def __init__(self, count: int = 2, *, proxied: bool = False) -> None:
        picked = [(ports.pick_port(), ports.pick_port()) for _ in range(count)]
        here, there = (BEHIND, BEFORE) if proxied else ("127.0.0.1", "127.0.0.1")
        self.grpc = [f"{here}:{grpc}" for grpc, _ in picked]
        self.rest = [f"{there}:{rest}" for _, rest in picked]
        self.config: dict[str, Any] = {  # the section `coordination`
            "coordinators": [f"{there}:{grpc}" for grpc, _ in picked], "rest": self.rest[0],
        }  # fmt: skip
        self.proxies: list[TcpProxy] = []
        if proxied:
            self.config["advertise"] = BEFORE
            self.proxies = [TcpProxy(grpc, host=BEHIND, listen=(BEFORE, grpc)) for grpc, _ in picked]


class Processes:
    """What runs of a cluster. Coordinators are called c0, c1, …"""

    def __init__(self, config: Path, addresses: Addresses) -> None:
        self.config, self.addresses = config, addresses
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def coordinator(self, number: int, program: Program = HERE) -> subprocess.Popen[bytes]:
        at = self.addresses
        addresses = ["--listen", at.grpc[number], "--rest", at.rest[number]]
        return self._start(program, f"c{number}", "coordinator", "--name", f"c{number}", *addresses)

    def agent(self, name: str, program: Program = HERE) -> subprocess.Popen[bytes]:
        return self._start(program, name, "agent", "--name", name)

    def _start(self, program: Program, name: str, *words: str) -> subprocess.Popen[bytes]:
        self._running[name] = process = program.spawn(*words, "-c", str(self.config), log=self.log(name))
        return process

    def log(self, name: str) -> Path:
        return self.config.parent / f"{name}.log"

    def family(self, name: str) -> list[psutil.Process]:
        """Return a process with everything that it has started."""
        return family(self._running[name].pid)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process alone."""
        self._running[name].send_signal(number)

    def kill(self, name: str) -> None:
        """kill -9 of a process alone; waits for its end, not for that of what it has started."""
        self._running[name].kill()
        self._running[name].wait(20)

    @contextlib.contextmanager
    def standing_still(self, name: str) -> Iterator[None]:
        """SIGSTOP it with everything it has started, then SIGCONT."""
        with standing_still(self._running[name].pid):
            yield

    def end(self, name: str, seconds: float = 90) -> int:
        """End one cleanly; return its exit code."""
        self._running[name].terminate()
        return self._running[name].wait(seconds)

    def stop(self, seconds: float = 90) -> dict[str, int]:
        """End all cleanly, agents first; return exit codes of what was still there."""
        alive = {name: process for name, process in self._running.items() if process.poll() is None}
        for name in sorted(alive):
            alive[name].terminate()
        return {name: process.wait(seconds) for name, process in alive.items()}

    def close(self) -> None:
        """End what is left, without grace."""
        left = [each for name in self._running for each in self.family(name)]
        send(left, signal.SIGKILL)
        psutil.wait_procs(left, timeout=20)
        for process in self._running.values():
            process.wait(20)

    # commands

    def say(self, command: str) -> str:
        """Run one command; return what it printed. Raises CalledProcessError where it is refused."""
        words = [sys.executable, "-m", "rowlock.cli", *command.split(), "-c", str(self.config)]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout

    def answers(self) -> bool:
        """Whether there is a leader to ask."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.say("agents list")
            return True
        return False

    def units(self) -> dict[str, Unit]:
        """Return all units by name; none while nobody leads."""
        with contextlib.suppress(subprocess.CalledProcessError):
            shown = json.loads(self.say("units list --output json"))
            return {unit["unit"]: unit for unit in shown["units"]}
        return {}

    def all_replicate(self, count: int) -> dict[str, Unit] | None:
        """Return the units once there are `count` and all of them run."""
        units = self.units()
        states = {unit["state"] for unit in units.values()}
        return units if len(units) == count and states == {"replicating"} else None

    def leader(self) -> dict[str, Any]:
        """Return who leads. Raises CommandError while nobody does for longer than any election."""
        with self.open_client() as client:
            return client.get("/v1/leader")

    def open_client(self) -> LeaderClient:
        """Return a client of the leader, whose requests take milliseconds; a command starts a process."""
        from rowlock.coordinator.leader_client import LeaderClient
        from schemas.config.model import load_config

        return LeaderClient(load_config(self.config, {}).coordination, patience_s=40)


class Checkpoints(threading.Thread):
    """Asks for the pipelines through REST several times a second, as an operator would, whoever leads.

    `reads`: answers with a pipeline in them; `regressions`: (pipeline, what of it, shown before, shown then),
    -1: not known. Releases before 0.2 show 0 for a time that is not known, later ones null.
    """

    def __init__(self, config: Path) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._config = config
        self._ending = threading.Event()
        self._shown: dict[tuple[str, str], int] = {}
        self.reads = 0
        self.regressions: list[tuple[str, str, int, int]] = []

    def run(self) -> None:
        from rowlock.coordinator.leader_client import LeaderClient
        from rowlock.errors import CommandError
        from schemas.config.model import load_config

        with LeaderClient(load_config(self._config, {}).coordination, patience_s=0.5) as client:
            while not self._ending.wait(0.2):
                with contextlib.suppress(CommandError):  # nobody leads just now
                    self._look(client.get("/v1/pipelines")["pipelines"])

    def _look(self, rows: list[dict[str, Any]]) -> None:
        self.reads += bool(rows)
        for row in rows:
            for what in ("checkpoint_ts", "resolved_ts", "cut_ts"):
                self._seen((row["pipeline"], what), row[what])

    def _seen(self, what: tuple[str, str], ts: int | None) -> None:
        now, before = ts or -1, self._shown.get(what, -1)
        if now < before:
            self.regressions.append((*what, before, now))
        self._shown[what] = now

    def checkpoint(self, pipeline: str) -> int:
        """Return the checkpoint that was shown last, in ms; -1: none yet. Raises AssertionError if the
        thread that looks has ended."""
        assert self.is_alive(), "the thread that looks at the checkpoints has ended"
        return self._shown.get((pipeline, "checkpoint_ts"), -1)

    def finish(self) -> None:
        self._ending.set()
        self.join(30)
