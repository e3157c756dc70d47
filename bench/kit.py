"""What the benchmarks share: processes with their peak memory and processor time, waiting, and the
figures."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from deploy.guard.processes import spawn_process

APPLY_KINDS = ("Spark's JVM", "Python worker", "apply driver")


def wait(condition: Callable[[], Any], what: str, seconds: float = 300, pause: float = 0.01) -> Any:
    """Poll `condition` until it is true and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause)
    raise TimeoutError(f"not within {seconds:.0f} s: {what}")


class Topics:
    """End offsets of topics."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})

    def end_connection(self, topic: str) -> int:
        """Return the next offset of `topic`; 0 when it does not exist yet."""
        with contextlib.suppress(Exception):
            return int(self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1])
        return 0

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Tree:
    """A process tree; samples peak memory per kind of process, and its processor seconds."""

    process: subprocess.Popen[bytes]
    peaks: dict[str, float] = field(default_factory=dict)  # kind → MiB
    _stop: threading.Event = field(default_factory=threading.Event)

    def members(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def cpu_seconds(self) -> float:
        total = 0.0
        for member in self.members():
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system
        return total

    def cpu_by_kind(self) -> dict[str, float]:
        """Return processor seconds by kind of process, of those that run."""
        found: dict[str, float] = {}
        for member in self.members():
            with contextlib.suppress(psutil.Error):
                times, kind = member.cpu_times(), _kind(member)
                found[kind] = found.get(kind, 0.0) + times.user + times.system
        return found

    def sample(self) -> None:
        while not self._stop.wait(1.0):  # the kernel keeps the peaks; looking costs what is measured
            self._note_peaks(self.members())

    def _note_peaks(self, members: list[psutil.Process]) -> None:
        for member in members:
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                kind, peak = _kind(member), _peak_mib(member.pid)
                self.peaks[kind] = max(peak, self.peaks.get(kind, 0.0))

    def stop(self) -> None:
        self._stop.set()
        members = self.members()
        self._note_peaks(members)
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()


#: Words of a command line → what the process is. The first that fits counts: a child of
#: rowlock/processes/child.py becomes its module.
_KINDS = (
    (("org.apache.spark",), "Spark's JVM"),
    (("pyspark.daemon",), "Python worker"),
    (("consumer.spark.daemon",), "Python worker"),
    (("consumer.main",), "apply driver"),
    (("producer.main",), "capture"),
    (("rowlock.cli", "coordinator"), "coordinator"),
    (("rowlock.cli", "agent"), "agent"),
    (("rowlock.cli", "run"), "run"),
)


def _kind(process: psutil.Process) -> str:
    return kind_of(process.cmdline())


def kind_of(command: Sequence[str]) -> str:
    """Return what a process of ours or of Spark's is, by its command line; of others the program's name."""
    for words, kind in _KINDS:
        if all(any(part == word or part.startswith(f"{word}.") for part in command) for word in words):
            return kind
    return f"other ({Path(command[0]).name})" if command else "ended"


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmHWM")


@contextlib.contextmanager
def tree(
    module: str, *arguments: str, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Tree]:
    """Run `python -m module arguments` until the block or this process ends. `env`: beside what is in this
    process's environment.

    `cwd`: a tree of another revision, whose modules are run.
    """
    with log.open("ab") as out:
        process = spawn_process(
            [sys.executable, "-m", module, *arguments],
            output=out,
            env=env or {},
            cwd=cwd,
        )
    made = Tree(process)
    sampler = threading.Thread(target=made.sample, daemon=True)
    sampler.start()
    try:
        yield made
    finally:
        made.stop()
        sampler.join(5)


@dataclass
class Figures:
    """What was measured, as lines for the terminal and rows for docs/benchmarks.md."""

    count_rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add_event(self, what: str, figure: str, note: str = "") -> None:
        self.count_rows.append((what, figure, note))
        print(f"{what}: {figure}" + (f"   ({note})" if note else ""), flush=True)

    def memory(self, what: str, peaks: dict[str, float]) -> None:
        text = ", ".join(f"{kind} {peak:.0f} MiB" for kind, peak in sorted(peaks.items()))
        self.add_event(f"{what}: peak memory", text)


def percentiles(samples: list[float]) -> str:
    """Return "p50 … ms, p99 … ms" of samples in seconds."""
    ordered = sorted(samples)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    return f"p50 {statistics.median(ordered) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
