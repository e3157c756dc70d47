"""SIGTERM and SIGINT as an event that a long-running command waits for."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import structlog

_LOG = structlog.get_logger()


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that a signal sets. Elsewhere than in the main thread nothing sets it but its user.

    An event may not be set from a handler: that runs in the thread that waits for it, which may hold the event's lock.
    So the handler only puts into a SimpleQueue, and a thread does the rest.
    """
    stop, asked = threading.Event(), queue.SimpleQueue[str]()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, _: FrameType | None) -> None:
        asked.put(signal.Signals(number).name)

    threading.Thread(target=_forward, args=(asked, stop), name="stop-signals", daemon=True).start()
    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put("")


def _forward(asked: queue.SimpleQueue[str], stop: threading.Event) -> None:
    while name := asked.get():
        if not stop.is_set():
            _LOG.info("stopping", reason=name)
        stop.set()
