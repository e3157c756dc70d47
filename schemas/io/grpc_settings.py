"""The settings of gRPC that all connections of rowlock share: how a connection is checked, how long a message
may be, and the threads of a server. gRPC itself is not imported here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

MAX_MESSAGE = 16 * 1024 * 1024
"""Largest message in bytes. An agent with a hundred thousand units sends about eleven million."""

ChannelOption = tuple[str, int | str]

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

    def build_server_options(self) -> list[ChannelOption]:
        """Return the options of a server, which shares its port with no other process."""
        return [("grpc.so_reuseport", 0), *self._build_options()]

    def build_client_options(self) -> list[ChannelOption]:
        """Return the options of a channel that shares nothing with others: no proxy, no retries, no back-off
        of an earlier one.
        """
        return [
            *self._build_options(),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        ]

    def _build_options(self) -> list[ChannelOption]:
        every, timeout = int(self.every * 1000), int(self.timeout * 1000)
        return [
            ("grpc.keepalive_time_ms", every),
            ("grpc.keepalive_timeout_ms", timeout),
            # for the ping itself: the timeout above ends as soon as anything is read
            ("grpc.http2.ping_timeout_ms", timeout),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", every),
            # whatever the other side uses
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 50),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
        ]


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
