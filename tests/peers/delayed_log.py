"""A proxy before a source that holds its log back: capture reads nothing behind a released place of it.

So capture is behind by exactly as much as the test wants, by no timing: catalogue queries pass at once and show what the
source is now. Of several connections that read the log at once only the first is held back, capture's own; the others are
its look-ahead (producer/definitions/scan.py), which must see what stands ahead.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_DUMPS = (b"\x12", b"\x1e")
"""The commands that ask for a log, by position and by GTID."""
_ROTATE, _HEARTBEATS = 4, (27, 41)
_HEADER = struct.Struct("<IBIIIH")
Place = tuple[int, int]
"""(number of the log file, position in it)."""


@dataclass(slots=True)
class Line:
    """What stands on one log connection between the server and capture. Pure.

    Packets go in as they come, and come out when they end at or before `released`; None: everything does.
    """

    released: Place | None = None
    _file: int = 0
    _held: list[tuple[Place, bytes]] = field(default_factory=list)

    def feed(self, packet: bytes) -> None:
        """Take one packet with its four bytes of length and number."""
        place = (self._file, 0)
        if packet[4:5] == b"\0" and len(packet) >= 5 + _HEADER.size:
            _, kind, _, _, end, _ = _HEADER.unpack_from(packet, 5)
            if kind in _HEARTBEATS and self._held:
                return  # it would tell a place whose events are held
            if kind == _ROTATE:
                self._file = _number(packet)
            place = (place[0], end)
        self._held.append((place, packet))

    def leaving(self) -> list[bytes]:
        """Return the packets that may go on now, and forget them."""
        count = 0
        for place, _ in self._held:
            if self.released is not None and place > self.released:
                break
            count += 1
        out = [packet for _, packet in self._held[:count]]
        del self._held[:count]
        return out


def _number(packet: bytes) -> int:
    """Return the number of the file that a ROTATE event names (its checksum, if any, stands behind the name)."""
    name = re.search(rb"\.(\d{6})", packet[5 + _HEADER.size + 8 :])
    return int(name.group(1)) if name else 0


def packets(data: bytearray) -> list[bytes]:
    """Take the complete packets off the front of `data`."""
    out = []
    while len(data) >= 4:
        size = 4 + int.from_bytes(data[:3], "little")
        if len(data) < size:
            break
        out.append(bytes(data[:size]))
        del data[:size]
    return out


class DelayedLog:
    """Listens on `port` for one server. `hold(place)` lets the log through up to `place`, `hold(None)` all of it."""

    def __init__(self, host: str, server_port: int) -> None:
        self._server = (host, server_port)
        self._released: Place | None = None
        self._moved = threading.Condition()
        self._reading: object | None = None  # the connection that is held back
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def hold(self, place: Place | None) -> None:
        with self._moved:
            self._released = place
            self._moved.notify_all()

    def close(self) -> None:
        self.hold(None)
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                way = _Way(client, server)
                self._start(self._up, way)
                self._start(self._down, way)

    def _up(self, way: _Way) -> None:
        """Client to server; a dump command tells what the connection is for."""
        with way.ended():
            waiting = bytearray()
            while data := way.client.recv(65536):
                if not way.dumping:
                    waiting += data
                    way.dumping = any(each[3] == 0 and each[4:5] in _DUMPS for each in packets(waiting))
                way.server.sendall(data)

    def _down(self, way: _Way) -> None:
        try:
            with way.ended():
                while data := way.server.recv(1 << 20):
                    if way.dumping and self._mine(way):
                        self._come(way, data)
                    else:
                        way.client.sendall(data)
        finally:
            with self._moved:
                way.over = True
                self._reading = None if self._reading is way else self._reading
                self._moved.notify_all()

    def _come(self, way: _Way, data: bytes) -> None:
        if not way.releasing:
            way.releasing = True
            self._start(self._release, way)
        way.coming += data
        with self._moved:
            for each in packets(way.coming):
                way.line.feed(each)
            self._moved.notify_all()

    def _mine(self, way: _Way) -> bool:
        with self._moved:
            if self._reading is None:
                self._reading = way
            return self._reading is way

    def _release(self, way: _Way) -> None:
        """Send what is released, as long as the connection lives."""
        with way.ended():
            while True:
                with self._moved:
                    way.line.released = self._released
                    while not (out := way.line.leaving()) and not way.over:
                        self._moved.wait()
                        way.line.released = self._released
                    if not out:
                        return
                way.client.sendall(b"".join(out))


@dataclass(slots=True, eq=False)
class _Way:
    client: socket.socket
    server: socket.socket
    dumping: bool = False
    releasing: bool = False
    over: bool = False
    line: Line = field(default_factory=Line)
    coming: bytearray = field(default_factory=bytearray)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Close both ends when one of the directions has ended."""
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            for each in (self.client, self.server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
