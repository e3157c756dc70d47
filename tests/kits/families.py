"""A process with everything that it has started: some of that may end at any moment, by itself (Spark's
workers do)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator

import psutil


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants, itself first; nothing when it has gone."""
    try:
        one = psutil.Process(pid)
        return [one, *one.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to those of `processes` that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """SIGSTOP a process with everything that it has started, as if its machine had stopped; then
    SIGCONT."""
    stopped: list[psutil.Process] = []
    try:
        while born := [each for each in family(pid) if each not in stopped]:  # while it was being listed
            stopped += born
            send(born, signal.SIGSTOP)
        yield
    finally:
        send(reversed(stopped), signal.SIGCONT)
