"""Ports that answer as HTTP, accept in silence, or only listen."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """A port on the loopback interface where each connection gets `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

        def serve() -> None:
            while True:
                try:
                    conn, _ = server.accept()
                except OSError:
                    return
                with conn, contextlib.suppress(OSError):
                    answer(conn)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield port
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def silent(conn: socket.socket) -> None:
    """Says nothing until the peer goes."""
    while conn.recv(100):
        pass


def http(conn: socket.socket) -> None:
    request = conn.recv(100)
    conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" if request else b"")
