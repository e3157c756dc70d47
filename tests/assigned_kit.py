"""What the tests of assigned apply units share: a real `consumer.main --assigned`, spoken to as an agent does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.apply_kit import ROOT, spark_jars, until

Line = dict[str, Any]


@dataclass
class AssignedApply:
    """The process, with everything it said and when (monotonic seconds)."""

    popen: subprocess.Popen[str]
    errors: Path
    said: list[tuple[float, Line]] = field(default_factory=list)

    def read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.said.append((time.monotonic(), json.loads(line)))

    def do(self, what: str, unit: str, epoch: int, mark: Line | None = None) -> float:
        """Give an instruction; returns when it was given."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"do": what, "unit": unit, "epoch": epoch, "mark": mark}) + "\n")
        self.popen.stdin.flush()
        return time.monotonic()

    def wait(self, unit: str, epoch: int, event: str, *, seconds: float = 60) -> tuple[float, Line]:
        """Wait for the unit's event; returns when it came, and the line."""

        def found() -> tuple[float, Line] | None:
            assert self.popen.poll() is None, self.log()
            for at, line in self.said:
                if (
                    line["kind"] == "unit"
                    and (line["unit"], line["epoch"], line["event"]) == (unit, epoch, event)
                ):  # fmt: skip
                    return at, line
            return None

        result: tuple[float, Line] = until(
            found, seconds=seconds, what=f"{unit} {epoch} {event}: {self.log()}", every=0.005
        )
        return result

    def last(self, unit: str) -> Line | None:
        lines = [line for _, line in self.said if line["kind"] == "unit" and line["unit"] == unit]
        return lines[-1] if lines else None

    def ready(self) -> None:
        until(
            lambda: any(line["kind"] == "ready" for _, line in self.said) or self.popen.poll(), what="Spark"
        )
        assert self.popen.poll() is None, self.log()

    def log(self) -> str:
        return self.errors.read_text()[-3000:]

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers (children of the daemon)."""
        found = []
        for child in psutil.Process(self.popen.pid).children(recursive=True):
            parent = child.parent()
            if parent is not None and "consumer.daemon" in " ".join(parent.cmdline()):
                found.append(child)
        return found

    def end(self) -> int:
        """Close stdin and wait for the end."""
        assert self.popen.stdin is not None
        if not self.popen.stdin.closed:
            self.popen.stdin.close()
        return self.popen.wait(60)


@contextmanager
def assigned_apply(config: Path, *more: str) -> Iterator[AssignedApply]:
    """A running process; killed with all it started if the test has not ended it."""
    errors = config.parent / f"assigned-{time.monotonic_ns()}.err"
    with errors.open("w") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", "consumer.main", "--config", str(config), "--assigned", *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            bufsize=1,
            env={**os.environ, "ROWLOCK_SPARK_JARS": spark_jars()},
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


class Writer:
    """Writes a source's changes into its topic at a steady rate, in a thread."""

    def __init__(self, write: Callable[[int], None], per_second: float) -> None:
        self._write = write
        self._per_second = per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.written = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.02):
            due = int((time.monotonic() - began) * self._per_second) - self.written
            if due > 0:
                self._write(due)
                self.written += due
