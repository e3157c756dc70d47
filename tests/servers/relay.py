"""Relays between clients and a server, which change or lose what is sent: piece by piece, a piece being what
arrives or a whole frame.

`tests.servers.proxy` breaks a network without looking at what goes over it; these look.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Self


class CutError(Exception):
    """Both sides of a connection are closed here."""


class Talk:
    """One connection: what becomes of what its sides say. Raises CutError; None: it is lost."""

    def asked(self, reported: bytes) -> bytes | None:
        return reported

    def answered(self, reported: bytes) -> bytes | None:
        return reported


class Relay:
    """Listens at `port` (0: a free one) and passes on to `behind`, both of this machine. Used in a `with`."""

    def __init__(self, behind: int, port: int = 0) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def talk(self) -> Talk:
        """Return what a new connection is treated by."""
        return Talk()

    def pieces(self, side: socket.socket) -> Iterator[bytes]:
        """Yield what a side says, to its end."""
        while data := side.recv(65536):
            yield data

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            open_ = list(self._sockets)
        for each in open_:
            _end(each)
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._behind))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            talk = self.talk()
            self._start(self._pass, client, server, talk, True)
            self._start(self._pass, server, client, talk, False)

    def _pass(self, one: socket.socket, other: socket.socket, talk: Talk, asks: bool) -> None:
        with contextlib.suppress(OSError, CutError):
            for piece in self.pieces(one):
                passed = talk.asked(piece) if asks else talk.answered(piece)
                if passed is not None:
                    other.sendall(passed)
        for each in (one, other):
            _end(each)
        with self._lock:
            self._sockets -= {one, other}


def _end(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()


class CuttingProxy(Relay):
    """Once armed, it passes on what a client says next, then cuts the connection.

    The server has got the statement, the client never gets an answer: the outcome is unknown.
    """

    armed = False

    def talk(self) -> Talk:
        return _Cutting(self)


class _Cutting(Talk):
    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy, self._asked = proxy, False

    def asked(self, reported: bytes) -> bytes:
        self._asked = self._proxy.armed
        return reported

    def answered(self, reported: bytes) -> bytes:
        if self._asked:
            raise CutError  # the server is done with it
        return reported
