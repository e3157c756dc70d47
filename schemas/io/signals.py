"""Signals as what they mean to a long-running process. SIGTERM and SIGINT: a wish that it ends; SIGHUP: that it reads its file again."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import structlog

_LOG = structlog.get_logger()


def on_stop_signals(ask: Callable[[str], object]) -> contextlib.AbstractContextManager[None]:
    """Have `ask(name of the signal)` called for SIGTERM and SIGINT (`on_signals`)."""
    return on_signals(ask, (signal.SIGTERM, signal.SIGINT), "stop-signals")


@contextlib.contextmanager
def on_signals(
    ask: Callable[[str], object], numbers: Sequence[signal.Signals], thread: str
) -> Iterator[None]:
    """Have `ask(name of the signal)` called in a thread of its own. Elsewhere than in the main thread nothing is watched.

    A handler runs in the main thread, between any two of its steps: it may hold the lock of whatever the handler would set or log
    to. So the handler only puts into a SimpleQueue, and a thread does the rest.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = queue.SimpleQueue[str]()

    def put(number: int, _: FrameType | None) -> None:
        asked.put(signal.Signals(number).name)

    threading.Thread(target=_forward_signals, args=(asked, ask), name=thread, daemon=True).start()
    before = {number: signal.signal(number, put) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put("")


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that a signal sets. Elsewhere than in the main thread nothing sets it but its user."""
    stop = threading.Event()

    def ask(name: str) -> None:
        if not stop.is_set():
            _LOG.info("stopping", reason=name)
        stop.set()

    with on_stop_signals(ask):
        yield stop


def _forward_signals(asked: queue.SimpleQueue[str], ask: Callable[[str], object]) -> None:
    while name := asked.get():
        ask(name)
