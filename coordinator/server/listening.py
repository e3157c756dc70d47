"""A socket that listens before the server is ready: clients that connect meanwhile wait."""

from __future__ import annotations

import socket

from schemas.config.addresses import split_address


def open_listening_socket(address: str) -> socket.socket:
    """Return a socket that listens on "host:port" (port 0: a free one). Raises OSError if that is not
    possible.
    """
    host, port = split_address(address)
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(place[:2], family=family, backlog=128)
