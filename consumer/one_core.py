"""The threads of a worker on one core while they work through a backlog (docs/adr/0010).

Only one thread of a process runs Python at a time. Left alone, the kernel wakes each on whatever core is idle, so that
every hand-over of the interpreter wakes a sleeping core and moves what the threads share from one core's cache to the
other's. On one core they take turns without that. Which core is the kernel's choice, made anew now and then.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from threading import Thread

RENEW_S = 2.0
"""How long a choice holds: a core that turns out to be somebody else's as well costs no more than this."""


class OneCore:
    """Moves the caller's thread and `threads` together. Used by one thread; without effect where there are no affinities."""

    def __init__(self, threads: Sequence[Thread], now: Callable[[], float] = time.monotonic) -> None:
        self._threads, self._now = threads, now
        self._allowed: Collection[int] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        self._until: float | None = None  # None: the threads are free

    def settle(self) -> None:
        """Call between pieces of work: all stay on the core where the caller is now; when RENEW_S are over, all are
        free until the next call."""
        if len(self._allowed) < 2:
            return
        if self._until is None:
            self._until = self._now() + RENEW_S
            self._put({_core()})
        elif self._now() >= self._until:
            self.release()

    def release(self) -> None:
        """Let all run on any core again."""
        if self._until is not None:
            self._until = None
            self._put(self._allowed)

    def _put(self, cores: Collection[int]) -> None:
        for number in (0, *(thread.native_id for thread in self._threads if thread.is_alive())):
            if number is not None:
                with suppress(
                    OSError
                ):  # it has ended meanwhile, or an administrator forbids it: slower, not wrong
                    os.sched_setaffinity(number, cores)


def _core() -> int:
    return int(ctypes.CDLL(None).sched_getcpu())
