"""A TCP proxy for fault tests: cuts one direction or both without closing anything, as a broken network does.

`up` is from the client to the server. A cut direction swallows nothing: what was on the way arrives when it
heals, as with TCP's retransmissions. `close_connections` resets what there is. With `stall` a connection
stops once a text has come down so many times, until `go_on`: a reader of a table whose rows hold the text is
stopped within it, however fast the machine is.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from types import TracebackType

_CHUNK = 65536
_DRIP_S = 5.0


class Stall:
    """A limit of each connection: it stops before `text` comes down for more than about `times` times.

    A byte gets through now and then, so that the reader does not take the server for dead.
    """

    def __init__(self, text: bytes, times: int) -> None:
        self.text, self.times = text, times
        self.over = threading.Event()


class _Pipe:
    """One direction of one connection: a thread that copies while it may."""

    def __init__(
        self,
        origin: socket.socket,
        to: socket.socket,
        gate: threading.Event,
        name: str,
        stall: Stall | None = None,
    ) -> None:
        self._origin, self._to, self._gate, self._stall, self._seen = origin, to, gate, stall, 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._gate.wait()
                data = self._origin.recv(_CHUNK)
                self._gate.wait()
                if not data:
                    break
                self._to.sendall(self._after_stall(data))
            self._to.shutdown(socket.SHUT_WR)

    def _after_stall(self, data: bytes) -> bytes:
        """Wait while the connection is stalled; return what is left to pass on."""
        if (stall := self._stall) is not None:
            self._seen += data.count(stall.text)
            while self._seen > stall.times and len(data) > 1 and not stall.over.wait(_DRIP_S):
                self._to.sendall(data[:1])
                data = data[1:]
        return data

    def join(self) -> None:
        self._thread.join(5)


class TcpProxy:
    """Listens on `listen` (port 0: a free one, see `port`) and passes on to `host`:`target_port` until
    `close`."""

    def __init__(
        self,
        target_port: int,
        *,
        host: str = "127.0.0.1",
        listen: tuple[str, int] = ("127.0.0.1", 0),
        stall: Stall | None = None,
    ) -> None:
        self._target = (host, target_port)
        self._stall = stall
        self._up, self._down = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._pipes: list[_Pipe] = []
        self._closing = False
        self.accepted = 0
        self.heal()
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, *, up: bool = True, down: bool = True) -> None:
        """Hold back everything in these directions, of connections now and later."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def heal(self) -> None:
        self._up.set()
        self._down.set()

    def go_on(self) -> None:
        """End `stall` for all connections."""
        if self._stall is not None:
            self._stall.over.set()

    def close_connections(self) -> None:
        """Reset every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def close(self) -> None:
        self._closing = True
        self.heal()
        self.go_on()
        self._thread.join(5)
        self._listener.close()
        self.close_connections()
        for pipe in self._pipes:
            pipe.join()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closing:
                if selector.select(0.05):
                    self._connect(self._listener.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=60)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self.accepted += 1
        with self._lock:
            self._sockets += [client, server]
        name = f"proxy-{self.port}-{self.accepted}"
        self._pipes += [
            _Pipe(client, server, self._up, f"{name}-up"),
            _Pipe(server, client, self._down, f"{name}-down", self._stall),
        ]
