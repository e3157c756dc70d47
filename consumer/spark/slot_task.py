"""The function that Spark runs in its Python workers: one slot, for as long as the apply process keeps it."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from consumer.spark.versions import collect_versions, explain_difference

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
    """The file on the executor's host with the token by which the slot proves itself."""
    remote: bool = False
    """Whether the executor may be on another machine. It has its scratch files in its working folder then."""

    def list_fields(self) -> dict[str, Any]:
        """Return the fields by name, as `run_slot` takes them."""
        return asdict(self)


def run_slot(fields: dict[str, Any], versions: dict[str, str], batches: Iterable[Any]) -> Iterator[Any]:
    """Serve units until the apply process closes the slot, and return no rows. An error fails the task.

    `fields`: of the SlotTask. `versions`: of the agent. They are compared first, because another version may
    have other fields. The input, a row without data, is read to its end before: PySpark ends a worker that
    leaves input unread.
    """
    for _ in batches:
        pass
    host = socket.gethostname()
    if difference := explain_difference(host, versions, collect_versions()):
        raise RuntimeError(difference)
    task = SlotTask(**fields)
    token = _read_token(Path(task.token_file), host)
    # Imported here because gRPC must not be used before PySpark's daemon forks its workers.
    import grpc

    from consumer.slots.channel import serve_slot

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()
    ended = threading.Event()
    threading.Thread(target=_collect_garbage, args=(ended,), name="garbage", daemon=True).start()
    try:
        scratch = Path("scratch").resolve() if task.remote else None
        serve_slot(task.number, task.address, task.certificate, token, scratch)
    except grpc.RpcError as error:
        is_refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
        raise RuntimeError(_explain_stream_end(task, host, None if is_refused else error.details())) from None
    finally:
        ended.set()
    return iter(())


def _read_token(path: Path, host: str) -> str:
    """Return the token. Raises RuntimeError if this user cannot read it, or if it is not a token."""
    # Imported here because an executor of another version may lack them.
    from consumer.errors import SparkStartError
    from consumer.spark.executor_files import read_executor_token

    try:
        return read_executor_token(path)
    except SparkStartError as error:
        raise RuntimeError(
            f"the executor on {host} cannot prove itself: {error.problem.what}: put the agent's "
            "spark.executor_token_file there, for the executors' user"
        ) from None


def _explain_stream_end(task: SlotTask, host: str, error: str | None) -> str:
    """Return why a slot's stream has ended. `error`: gRPC's; None: the agent has refused the token."""
    if error is None:
        return (
            f"the executor on {host} is refused: the text in its {task.token_file} is not that of the "
            "agent's spark.executor_token_file: put that text there"
        )
    return (
        f"the executor on {host} has no connection to the agent at {task.address} ({error}): let executors "
        "reach spark.driver.host at spark.driver.channel_port"
    )


def _collect_garbage(ended: threading.Event) -> None:
    while not ended.wait(COLLECT_S):
        gc.collect()
