"""A proxy before a source that holds its log back: capture reads nothing after a released place of it.

So capture lags by exactly as much as the test asks for, by no timing: catalogue queries pass at once and show
what the source is now. A connection may read as far as the log went when it asked for it, whatever is
released: capture's look-ahead (producer/definitions/scan.py) opens one of its own, and must see what lies
ahead.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_DUMP = b"\x12"
"""The command that asks for a log by position, as capture does; what asks by GTID looks at a history, and is
let through."""
_ROTATE, _HEARTBEAT, _HEARTBEATS = 4, 27, (27, 41)
_BEAT_S = 1.0
_HEADER = struct.Struct("<IBIIIH")
Place = tuple[int, int]
"""(number of the log file, position in it)."""


@dataclass(slots=True)
class Line:
    """The packets of one log connection between the server and capture. Pure.

    Packets go in as they come, and come out when they end at or before `released` or `least`; `released`
    None: everything does. While something is held, the server's heartbeats are dropped, as they carry a
    place; `beat` is one that carries none.
    """

    released: Place | None = None
    least: Place = (0, 0)
    _place: Place = (0, 0)
    _held: list[tuple[Place, bytes]] = field(default_factory=list)
    _server_id: int = 0
    _number: int | None = None  # of the last packet that left: the client counts them

    def feed(self, packet: bytes) -> None:
        """Take one packet with its four bytes of length and number."""
        if packet[4:5] == b"\0" and len(packet) >= 5 + _HEADER.size:
            _, kind, self._server_id, _, end, _ = _HEADER.unpack_from(packet, 5)
            if kind in _HEARTBEATS and self._held:
                return
            self._place = max(self._place, (self._place[0], end))
            self._held.append((self._place, packet))
            if kind == _ROTATE:
                self._place = max(self._place, (_file(packet), 0))
        else:
            self._held.append((self._place, packet))

    def leaving(self) -> list[bytes]:
        """Return the packets that may go on now, and forget them."""
        count = 0
        for place, _ in self._held:
            if self.released is not None and place > max(self.released, self.least):
                break
            count += 1
        out = [self._numbered(packet) for _, packet in self._held[:count]]
        del self._held[:count]
        return out

    def beat(self) -> list[bytes]:
        """Return a heartbeat, if something is held: the server sends none while its log grows."""
        if not self._held:
            return []
        body = b"\0" * 8
        payload = b"\0" + _HEADER.pack(0, _HEARTBEAT, self._server_id, _HEADER.size + len(body), 0, 0) + body
        return [self._numbered(len(payload).to_bytes(3, "little") + b"\0" + payload)]

    def _numbered(self, packet: bytes) -> bytes:
        self._number = packet[3] if self._number is None else (self._number + 1) % 256
        return packet[:3] + bytes([self._number]) + packet[4:]


def _file(packet: bytes) -> int:
    """Return the number of the file that a ROTATE event names (its checksum, if any, follows the
    name)."""
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
    """Listens on `port` for one server. `hold(place)` lets the log through up to `place`, `hold(None)` all of
    it.

    `end`: returns where the server's log ends now.
    """

    def __init__(self, host: str, server_port: int, end: Callable[[], Place]) -> None:
        self._server = (host, server_port)
        self._end = end
        self._released: Place | None = None
        self._moved = threading.Condition()
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
                    if any(each[3] == 0 and each[4:5] == _DUMP for each in packets(waiting)):
                        way.line.least = self._end()
                        way.dumping = True
                way.server.sendall(data)

    def _down(self, way: _Way) -> None:
        try:
            with way.ended():
                while data := way.server.recv(1 << 20):
                    if way.dumping:
                        self._come(way, data)
                    else:
                        way.client.sendall(data)
        finally:
            with self._moved:
                way.over = True
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

    def _release(self, way: _Way) -> None:
        """Send what is released, and a beat where nothing is, as long as the connection lives."""
        with way.ended():
            while out := self._next(way):
                way.client.sendall(b"".join(out))

    def _next(self, way: _Way) -> list[bytes]:
        """Wait for what may be sent; empty: the connection is over."""
        due = time.monotonic() + _BEAT_S
        with self._moved:
            while not way.over:
                way.line.released = self._released
                if out := way.line.leaving():
                    return out
                if time.monotonic() >= due:
                    if out := way.line.beat():
                        return out
                    due = time.monotonic() + _BEAT_S
                self._moved.wait(_BEAT_S)
        return []


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
