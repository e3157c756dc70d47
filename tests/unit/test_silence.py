"""A connection to a target ends soon after its server is cut off."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer.attempt.transactions import MAX_TRANSACTION_TRIES, retry_transient
from consumer.errors import ServerSilentError, TargetConfigError, TransientError
from consumer.targets.silence import SILENCE_S, TARGET_CONNECT_S, limit_silence, mark_silence


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own option")
def test_tcp_ends_after_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            limit_silence(client)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_S * 1000
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            limit_silence(client, 40)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 40_000


def test_another_kind_of_socket_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        limit_silence(one)


def test_only_a_connection_that_waited_in_vain_found_a_silent_server() -> None:
    now, refused = time.monotonic(), TransientError("refused")
    assert mark_silence(refused, now) is refused
    silent = mark_silence(TransientError("nothing", "look"), now - TARGET_CONNECT_S)
    assert isinstance(silent, ServerSilentError)
    assert str(silent.problem.action) == "look"
    wrong = TargetConfigError("no such database")
    assert mark_silence(wrong, now - TARGET_CONNECT_S) is wrong


@pytest.mark.parametrize(
    ("error", "tries"), [(ServerSilentError("nothing"), 1), (TransientError("lost"), MAX_TRANSACTION_TRIES)]
)
def test_a_silent_server_is_not_asked_again(error: TransientError, tries: int) -> None:
    asked: list[int] = []

    def ask() -> Iterator[Any]:
        asked.append(1)
        raise error
        yield

    with pytest.raises(TransientError):
        for _ in retry_transient(ask):  # type: ignore[arg-type]
            pass
    assert len(asked) == tries
