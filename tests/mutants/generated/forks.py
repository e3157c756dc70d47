"""Runs work in a forked process, and ends that process if one of its tests takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import IO, NamedTuple, NoReturn

import psutil

from tests.mutants.generated.sample import VERDICTS, Judged

START_S = 120.0
"""A process that has not begun its first test after this long is ended: it may have to import the product."""
MIN_TEST_S = 10.0
TIMES = 10
"""A test is given MIN_TEST_S, or as many TIMES what it usually takes."""
MORE_MEMORY = 6 << 30
"""Bytes of address space that a mutant may use beyond what its process has at the beginning."""


class Report:
    """The lines that a forked process sends to its parent: one for each test, and one at the end."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def begin(self, test: str) -> None:
        """Report that a test begins."""
        self._send({"test": test})

    def end(self, verdict: str, test: str = "", how: str = "") -> NoReturn:
        """Report the verdict and end the process at once, without teardowns."""
        self._send({"verdict": verdict, "test": test, "how": how})
        os._exit(0)

    def _send(self, message: Mapping[str, str]) -> None:
        self._pipe.write(json.dumps(message) + "\n")
        self._pipe.flush()


class _Sent(NamedTuple):
    """What a process has sent so far."""

    test: str
    verdict: dict[str, str] | None


def judge_in_fork(work: Callable[[Report], None], usual_s: Mapping[str, float]) -> Judged:
    """Run `work` in a fork and return the verdict it reports.

    `usual_s`: seconds that tests take without a mutant.
    A test that takes too long, or that ends the process, has killed the mutant.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(work, os.fdopen(writing, "w"))
    os.close(writing)
    try:
        return _watch(reading, usual_s)
    finally:
        os.close(reading)
        _end_session(child)
        os.waitpid(child, 0)


def _run_child(work: Callable[[Report], None], pipe: IO[str]) -> NoReturn:
    """Run `work` in this process, which is a fork, and end it."""
    try:
        os.setsid()
        _silence()
        _limit_memory()
        _guard_kill()
        work(Report(pipe))
    finally:
        os._exit(0)


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)


def _limit_memory() -> None:
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, used + MORE_MEMORY))


def _guard_kill() -> None:
    """Let this process send signals to its own session and descendants only: a mutant may name any."""
    kill, killpg, me = os.kill, os.killpg, os.getpid()

    def is_own(process: int) -> bool:
        if process <= 0:
            return False
        with contextlib.suppress(OSError):
            if os.getsid(process) == me:
                return True
        with contextlib.suppress(psutil.Error):
            return me in (process, *(each.pid for each in psutil.Process(process).parents()))
        return False

    def guarded(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def send_to_own(process: int, number: int) -> None:
            if not is_own(process):
                raise ProcessLookupError(process)
            send(process, number)

        return send_to_own

    for name, send in (("kill", kill), ("killpg", killpg)):
        setattr(os, name, guarded(send))


def _watch(pipe: int, usual_s: Mapping[str, float]) -> Judged:
    """Read what a process sends until it ends, or takes too long."""
    sent, buffer, test = _Sent("", None), b"", ""
    ends_at = _find_end(START_S)
    while True:
        if not select.select([pipe], [], [], max(0.0, ends_at - time.monotonic()))[0]:
            return Judged("killed", test, "late")
        part = os.read(pipe, 1 << 16)
        if not part:
            return Judged("killed", test, "died")
        *lines, buffer = (buffer + part).split(b"\n")
        for line in lines:
            sent = _read(line, sent)
        if sent.verdict:
            return _to_judged(sent.verdict)
        if sent.test != test:
            test = sent.test
            ends_at = _find_end(max(MIN_TEST_S, TIMES * usual_s.get(test, 0.0)))


def _find_end(limit_s: float) -> float:
    """Return the time at which a limit is over; on a loaded machine a process waits for its turn."""
    return time.monotonic() + limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _read(line: bytes, sent: _Sent) -> _Sent:
    message: dict[str, str] = json.loads(line)
    return sent._replace(verdict=message) if "verdict" in message else sent._replace(test=message["test"])


def _to_judged(message: dict[str, str]) -> Judged:
    return Judged(VERDICTS[message["verdict"]], message["test"], message["how"])


def _end_session(leader: int) -> None:
    """Kill a fork and whatever it started, in its session or beneath it."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(leader).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(leader, signal.SIGKILL)
