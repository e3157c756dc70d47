"""The function that Spark runs in its Python workers: one slot, for as long as the apply process keeps it."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumer.errors import TargetConfigError

COLLECT_S = 60.0
"""Interval in seconds between two collections of garbage. Hundreds of thousands of rows are in flight with
hardly a cycle among them: collecting whenever Python would take a third of the time and find nothing."""
SWITCH_INTERVAL_S = 0.0005
"""Lane threads mostly wait for the server; the default of 5 ms would let each answer wait for the
decoding thread."""


@dataclass(frozen=True, slots=True)
class SlotTask:
    """The address of a task's apply process, and how the two recognise each other. No part is secret."""

    number: int
    address: str
    certificate: bytes
    """The apply process's certificate, PEM."""
    token_file: str
    """The file on this host with the token by which the slot proves itself."""


def run_slot(task: SlotTask, batches: Iterable[Any]) -> Iterator[Any]:
    """Serve units until the apply process closes the slot, and return no rows.

    The input, a row without data, is read to its end first: PySpark ends a worker that
    leaves input unread. An error fails the task, which Spark starts again.
    """
    for _ in batches:
        pass
    # Imported here because gRPC must not be used before PySpark's daemon forks its workers.
    from consumer.slots.channel import serve_slot

    token = _read_token(Path(task.token_file))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()
    ended = threading.Event()
    threading.Thread(target=_collect_garbage, args=(ended,), name="garbage", daemon=True).start()
    try:
        serve_slot(task.number, task.address, task.certificate, token)
    finally:
        ended.set()
    return iter(())


def _read_token(path: Path) -> str:
    """Return the token. Raises TargetConfigError without the file: this is not the agent's machine."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        raise TargetConfigError(
            f"a Spark executor on {socket.gethostname()} does not find {path.parent} of the rowlock agent "
            "that it works for",
            "executors must run on the agent's own machine; to use several machines, run an agent on "
            "each (see 'Run it on several machines' in rowlock's documentation)",
        ) from error


def _collect_garbage(ended: threading.Event) -> None:
    while not ended.wait(COLLECT_S):
        gc.collect()
