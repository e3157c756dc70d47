"""Signals to a long-running process: SIGTERM and SIGINT request its end, SIGHUP a reload of its file."""

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
    """Call `ask(name of the signal)` for SIGTERM and SIGINT during the block (see `on_signals`)."""
    return on_signals(ask, (signal.SIGTERM, signal.SIGINT), "stop-signals")


@contextlib.contextmanager
def on_signals(
    ask: Callable[[str], object], numbers: Sequence[signal.Signals], thread: str
) -> Iterator[None]:
    """Call `ask(name of the signal)` in a separate thread for signals during the block; only in the
    main thread.

    A handler runs in the main thread between any two of its steps, and the thread may hold a lock that
    the handler would need to set or log something. So the handler only puts into a SimpleQueue, and a
    thread does the rest.
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
    """Yield an event that a signal sets. Outside of the main thread, signals do not set it."""
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
