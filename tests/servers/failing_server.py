"""A relay before a server of MySQL's protocol that answers one chosen statement with an error, or cuts its
connection."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers.relay import CutError, Relay

PLANTED = "planted fault"
_QUERY = 3  # COM_QUERY
_TURN = b"\x01"  # sequence number of an answer to a statement


@dataclass(frozen=True)
class Fault:
    """An answer of the server. `code` 0: none, the connection is cut."""

    code: int
    state: str = "HY000"

    def packet(self) -> bytes:
        body = b"\xff" + struct.pack("<H", self.code) + b"#" + self.state.encode() + PLANTED.encode()
        return struct.pack("<I", len(body))[:3] + _TURN + body


UNKNOWN_COLUMN, DENIED, LOST = Fault(1054, "42S22"), Fault(1142, "42000"), Fault(0)


class FailingServer(Relay):
    """Counts the statements of all connections from `reset` on, and lets number `fails` (from 0) fail with
    `fault`."""

    def __init__(self, behind: int) -> None:
        super().__init__(behind)
        self._counting = threading.Lock()
        self.statements: list[str] = []
        self._fails: int | None = None
        self._fault = LOST

    def reset(self, fails: int | None = None, fault: Fault = LOST) -> None:
        with self._counting:
            self.statements, self._fails, self._fault = [], fails, fault

    @property
    def has_failed(self) -> bool:
        with self._counting:
            return self._fails is not None and len(self.statements) > self._fails

    def _is_planted(self, reported: bytes) -> bool:
        if len(reported) < 5 or reported[3] != 0 or reported[4] != _QUERY:
            return False
        with self._counting:
            self.statements.append(reported[5:].decode(errors="replace"))
            return len(self.statements) - 1 == self._fails

    def pieces(self, side: socket.socket) -> Iterator[bytes]:
        is_client = side.getsockname()[1] == self.port
        for piece in super().pieces(side):
            if not is_client or not self._is_planted(piece):
                yield piece
            elif self._fault.code:
                side.sendall(self._fault.packet())
            else:
                raise CutError
