"""The program that hosts of a Spark cluster run as their Python. It can have another clock than this machine,
which a test moves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kits.moved_clock import MOVED_CLOCK
from tests.servers.spark_host import SparkHost
from tests.servers.spark_hosts import PYTHON

PROGRAM = "python"


def build_program(folder: Path, setting: str = "") -> dict[Path, bytes]:
    """Return the file that a host runs as its Python. `setting`: shell commands before that."""
    return {folder / PROGRAM: f'#!/bin/sh\n{setting}exec {PYTHON} "$@"\n'.encode()}


def build_clock(folder: Path, offset_s: int = 0) -> dict[Path, bytes]:
    """Return the files of a host whose Python has a clock of its own."""
    clock = folder / "clock"
    setting = f"export PYTHONPATH={clock}:$PYTHONPATH TEST_CLOCK={clock / 'offset'}\n"
    files = {clock / "sitecustomize.py": MOVED_CLOCK.encode(), clock / "offset": str(offset_s).encode()}
    return {**files, **build_program(folder, setting)}


def permit_program(host: SparkHost, folder: Path) -> None:
    """Let a host run its Python."""
    if host.space is not None:
        host.space.call("chmod", "755", folder / PROGRAM)


def move_clock(host: SparkHost, folder: Path, offset_s: int) -> None:
    """Let the clock of all Python processes of a host be this far ahead of the machine's. Returns when a new
    process has that time; older ones have it after 0.2 s."""
    if host.space is None:
        pytest.skip("the hosts are not apart")
    host.space.call("sh", "-c", f"echo {offset_s} > {folder / 'clock' / 'offset'}")
    assert abs(measure_clock(host, folder) - offset_s) < 50


def measure_clock(host: SparkHost, folder: Path) -> float:
    """Return how many seconds the clock of a host's Python is ahead of this machine's."""
    now = float(host.call(folder / PROGRAM, "-c", "import time; print(time.time())"))
    return now - time.time()
