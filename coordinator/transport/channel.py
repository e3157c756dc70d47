"""The gRPC settings that both ends of the transport share: method names, channel options, threads.

The stubs are made by hand with bytes in and out: `wire` does the rest, and a frame is parsed in one
place only.
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

#: The name is the same in every version of the protocol, so that a peer of another version can be
#: recognised as one (`wire`).
SERVICE = "rowlock.coordination.v1.Coordination"
HEARTBEAT_METHOD = f"/{SERVICE}/Heartbeat"
ASK_LEADER = f"/{SERVICE}/AskLeader"
#: An agent with a hundred thousand units sends about eleven million bytes.
MAX_MESSAGE = 16 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The times at which a connection is checked, in seconds. Their sum has to be well below the lease, since
    nothing else detects a one-way cut or a paused peer.
    """

    every: float = 2.0
    """Between two pings."""
    timeout: float = 3.0
    """The connection is lost if nothing comes back within this time."""

    def build_options(self) -> list[tuple[str, int]]:
        every, timeout = int(self.every * 1000), int(self.timeout * 1000)
        return [
            ("grpc.keepalive_time_ms", every),
            ("grpc.keepalive_timeout_ms", timeout),
            (
                "grpc.http2.ping_timeout_ms",
                timeout,
            ),  # for the ping itself: the timeout above ends as soon as anything is read
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", every),
            (
                "grpc.http2.min_recv_ping_interval_without_data_ms",
                50,
            ),  # whatever the other side uses
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
        ]


def open_channel(address: str, security: Security | None, keepalive: Keepalive | None = None) -> grpc.Channel:
    """Return a channel that shares nothing with others: no proxy, no retries, no back-off of an earlier
    one.
    """
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
    """An executor that starts a daemon thread for every call: streams last long, and must not keep a
    process alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            future.set_running_or_notify_cancel()
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # as in every executor: gRPC reads the future
                future.set_exception(error)

        threading.Thread(target=run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()
        return future
