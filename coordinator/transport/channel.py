"""gRPC settings that both ends of the transport share: the methods' names, channel options, threads.

Stubs are made by hand with bytes in and out: `wire` does the rest, and a frame is parsed in one place only.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from coordinator.transport.security import Security

#: The name is the same in every version of the protocol, so that a peer of another version hears that it is one (`wire`).
SERVICE = "rowlock.coordination.v1.Coordination"
HEARTBEAT_METHOD = f"/{SERVICE}/Heartbeat"
ASK_LEADER = f"/{SERVICE}/AskLeader"
#: An agent with a hundred thousand units says about eleven million bytes.
MAX_MESSAGE = 16 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Seconds: a ping `every`, and the connection is lost when nothing comes back within `timeout`.

    Their sum has to be well below the lease: a one-way cut, or a paused peer, is seen by nothing else.
    """

    every: float = 2.0
    timeout: float = 3.0

    def build_options(self) -> list[tuple[str, int]]:
        every, timeout = int(self.every * 1000), int(self.timeout * 1000)
        return [
            ("grpc.keepalive_time_ms", every),
            ("grpc.keepalive_timeout_ms", timeout),
            (
                "grpc.http2.ping_timeout_ms",
                timeout,
            ),  # for the ping itself: the one before is off as soon as anything is read
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", every),
            (
                "grpc.http2.min_recv_ping_interval_without_data_ms",
                50,
            ),  # whatever the other side has been told
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
        ]


def open_channel(address: str, security: Security | None, keepalive: Keepalive | None = None) -> grpc.Channel:
    """Return a channel of its own: no proxy, no retries, no back-off left over from an earlier one."""
    options = [
        *(keepalive or Keepalive()).build_options(),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]
    if security is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, security.load_channel_credentials(), options)


class DaemonThreadExecutor(Executor):
    """An executor with a daemon thread of its own for every call: streams last, and must not keep a process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            future.set_running_or_notify_cancel()
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # as every executor: gRPC looks at the future
                future.set_exception(error)

        threading.Thread(target=run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()
        return future
