"""What the tests of assigned apply units share: a real `consumer.main`, spoken to as an agent does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from coordinator.core.schedulers import UnitKind
from rowlock.coordinator.inventory import InventoryReader, NamedCluster
from schemas.config.model import load_config
from schemas.table.names import TableName
from tests.kits.apply import ROOT, until
from tests.kits.families import family
from tests.kits.topic import usual_tables

Line = dict[str, Any]


@dataclass
class AssignedApply:
    """The process, with everything it said and when (monotonic seconds)."""

    popen: subprocess.Popen[str]
    errors: Path
    reported: list[tuple[float, Line]] = field(default_factory=list)

    def read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            reported = json.loads(line)
            self.reported.append(
                (
                    time.monotonic(),
                    reported | reported.pop("event") if reported["kind"] == "unit" else reported,
                )
            )

    def do(self, what: str, unit: str, assignment: int, mark: Line | None = None) -> float:
        """Give an instruction; returns when it was given."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(
            json.dumps({"do": what, "unit": unit, "assignment": assignment, "mark": mark}) + "\n"
        )
        self.popen.stdin.flush()
        return time.monotonic()

    def wait(self, unit: str, assignment: int, event: str, *, seconds: float = 300) -> tuple[float, Line]:
        """Wait for the unit's event; returns when it came, and the line."""

        def found() -> tuple[float, Line] | None:
            assert self.popen.poll() is None, self.log()
            for at, line in self.reported:
                if (
                    line["kind"] == "unit"
                    and (line["unit"], line["assignment"], line["event"]) == (unit, assignment, event)
                ):  # fmt: skip
                    return at, line
            return None

        result: tuple[float, Line] = until(
            found, seconds=seconds, what=f"{unit} {assignment} {event}: {self.log()}", every=0.005
        )
        return result

    def wait_error(self, unit: str, assignment: int, *, seconds: float = 300) -> Line:
        """Wait until the unit says that it waits for a person; returns the line."""

        def found() -> Line | None:
            assert self.popen.poll() is None, self.log()
            lines = [line for _, line in self.reported if line["kind"] == "unit"]
            waits = [
                line
                for line in lines
                if (line["unit"], line["assignment"], line["event"]) == (unit, assignment, "progressed")
                and line["error"]
            ]
            return waits[-1] if waits else None

        line: Line = until(
            found, seconds=seconds, what=f"{unit} {assignment} waits: {self.log()}", every=0.01
        )
        return line

    def last(self, unit: str) -> Line | None:
        lines = [line for _, line in self.reported if line["kind"] == "unit" and line["unit"] == unit]
        return lines[-1] if lines else None

    def ready(self) -> None:
        until(
            lambda: any(line["kind"] == "ready" for _, line in self.reported) or self.popen.poll(),
            seconds=500,  # a busy machine
            what="Spark",
        )
        assert self.popen.poll() is None, self.log()

    def log(self) -> str:
        return self.errors.read_text()[-3000:]

    def workers(self) -> list[psutil.Process]:
        """Return Spark's Python workers: the children of its daemon, which is this process's."""
        return [each for each in family(self.popen.pid) if _is_of_the_daemon(each)]

    def problems(self) -> list[str]:
        reported = [line for _, line in self.reported.copy() if line["kind"] == "problem"]
        return [f"{line['what']}: {line['why']}" for line in reported]

    def stop(self) -> int:
        """SIGTERM, then wait. Returns the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(120)

    def end(self) -> int:
        """Close stdin and wait for the end."""
        assert self.popen.stdin is not None
        if not self.popen.stdin.closed:
            self.popen.stdin.close()
        return self.popen.wait(60)


#: The process with hands that judge no target table: for tests that look at it through triggers of their own.
_UNJUDGED = """
import sys
from consumer.process.operations import target_checks as looks
from consumer.main import main
looks.find_table_misfit = lambda *_: None
looks.explain_changed_table = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def assigned_apply(config: Path, *more: str, judged: bool = True) -> Iterator[AssignedApply]:
    """A running process; killed with all it started if the test has not ended it. `judged`: see _UNJUDGED."""
    program = ["-m", "consumer.main"] if judged else ["-c", _UNJUDGED]
    errors = config.parent / f"assigned-{time.monotonic_ns()}.err"
    with errors.open("w") as log:
        popen = subprocess.Popen(
            [sys.executable, *program, "--config", str(config), *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            bufsize=1,
        )
    process = AssignedApply(popen, errors)
    reader = threading.Thread(target=process.read, daemon=True)
    reader.start()
    children = psutil.Process(popen.pid)
    try:
        yield process
    finally:
        family = children.children(recursive=True) if popen.poll() is None else []
        popen.kill()
        for each in family:
            with _gone():
                each.kill()
        popen.wait(30)
        reader.join(10)
        for pipe in (popen.stdin, popen.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


def daemons_of(processes: Iterable[psutil.Process]) -> set[str]:
    """Return the modules that run as daemons of Spark's Python workers. (The JVM's command line only names
    one, after a "=".)"""
    found = set()
    for process in processes:
        with _gone():
            words = process.cmdline()
            found |= {
                words[at + 1]
                for at, word in enumerate(words[:-1])
                if word == "-m" and words[at + 1].endswith(".daemon")
            }
    return found


class UsualTables(NamedCluster):
    """The cluster's topics; the tests write them without capture, whose records would name their tables."""

    def find_topic_tables(self, sources: Sequence[str], topics: Sequence[str]) -> Mapping[str, TableName]:
        del sources
        return usual_tables(topics)


class Agent:
    """Gives a process the units of the coordinator's own inventory, as they come and go: an agent that is
    alone gets all of them."""

    def __init__(self, config: Path, process: AssignedApply) -> None:
        self._process = process
        loaded = load_config(config)
        self._inventory = InventoryReader(loaded, UsualTables(loaded.kafka))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._numbers = count(int(time.time() * 1000))
        self._uids: dict[str, str] = {}
        self.assignments: dict[str, int] = {}
        self.error: BaseException | None = None

    def __enter__(self) -> Agent:
        self._process.ready()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def waits_for(self, unit: str) -> str | None:
        """Return what a unit said last that it waits for a person for; None: it does not."""
        line = self._process.last(unit)
        if line is None or line["assignment"] != self.assignments.get(unit) or line["event"] != "progressed":
            return None
        error: str | None = line["error"]
        return error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.2):
                self._look()
        except BaseException as error:  # noqa: BLE001 - told by the test that waits
            self.error = error

    def _look(self) -> None:
        expected = {spec.unit: spec.uid for spec in self._inventory().units if spec.kind is UnitKind.APPLY}
        for unit, uid in list(self._uids.items()):
            if expected.get(unit) != uid:
                self._process.do("remove", unit, self.assignments[unit])
                self._process.wait(unit, self.assignments[unit], "ended")
                del self._uids[unit]
        new = [unit for unit in expected if unit not in self._uids]
        for unit in new:
            self._uids[unit], self.assignments[unit] = expected[unit], next(self._numbers)
            self._process.do("prepare", unit, self.assignments[unit])
        for unit in new:
            self._process.wait(unit, self.assignments[unit], "prepared")
            self._process.do("start", unit, self.assignments[unit])


class Writer:
    """Writes a source's changes into its topic at a steady rate, in a thread."""

    def __init__(self, write: Callable[[int], None], per_second: float) -> None:
        self._write = write
        self._per_second = per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="load", daemon=True)
        self.written = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run_loop(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.02):
            due = int((time.monotonic() - began) * self._per_second) - self.written
            if due > 0:
                self._write(due)
                self.written += due


def _is_of_the_daemon(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return parent is not None and "consumer.spark.daemon" in " ".join(parent.cmdline())
    except psutil.NoSuchProcess:
        return False
