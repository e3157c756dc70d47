"""A connection to a target ends soon after its server is cut off."""

from __future__ import annotations

import socket
import sys

import pytest

from consumer.targets.silence import SILENCE_S, limit_silence


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
