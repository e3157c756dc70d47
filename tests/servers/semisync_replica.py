"""A replica that only acknowledges: semi-synchronous replication's other side, with its acknowledgements in
our hand.

It asks for a dump like a semi-sync replica and answers each event that wants it with 0xEF, position and file
name (MySQL's semisync plugin and MariaDB's semisync_slave.cc), unless `hold` is set.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

import pymysql

_DUMP, _MAGIC, _ROTATE = 0x12, 0xEF, 4


class SemiSyncReplica:
    """Acknowledges everything until `hold()`; `release()` sends what was held back."""

    def __init__(self, port: int, file: str, pos: int) -> None:
        self._connection: Any = pymysql.connect(
            host="127.0.0.1", port=port, user="root", autocommit=True, ssl_disabled=True
        )
        with self._connection.cursor() as cursor:
            cursor.execute("SET @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1, "
            "@master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE', "
            "@mariadb_slave_capability = 4")  # fmt: skip
        self._file = file
        self._waiting: bytes | None = None
        self._held = False
        self._lock = threading.Lock()
        self.held_one = threading.Event()
        self._connection._execute_command(_DUMP, struct.pack("<IHI", pos, 0, 4_000_000_001) + file.encode())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hold(self) -> None:
        with self._lock:
            self._held = True
            self.held_one.clear()

    def release(self) -> None:
        with self._lock:
            self._held = False
            if self._waiting is not None:
                self._send(self._waiting)
                self._waiting = None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection._force_close()

    def _run(self) -> None:
        try:
            while True:
                self._event(self._read())
        except (pymysql.MySQLError, OSError, AttributeError, ValueError):
            return  # closed

    def _read(self) -> bytes:
        """Read a packet; the sequence number starts again after each acknowledgement, which PyMySQL does not
        expect."""
        header: bytes = self._connection._read_bytes(4)
        data: bytes = self._connection._read_bytes(int.from_bytes(header[:3], "little"))
        return data

    def _event(self, data: bytes) -> None:
        expected = data[1] == _MAGIC and data[2] == 1
        event = data[3:] if data[1] == _MAGIC else data[1:]
        if event[4] == _ROTATE:
            self._file = event[27:].split(b"\0")[0].decode()
        if not expected:
            return
        (end,) = struct.unpack_from("<I", event, 13)
        reply = bytes([_MAGIC]) + struct.pack("<Q", end) + self._file.encode()
        with self._lock:
            if self._held:
                self._waiting = reply
                self.held_one.set()
            else:
                self._send(reply)

    def _send(self, reply: bytes) -> None:
        self._connection._sock.sendall(struct.pack("<I", len(reply)) + reply)  # 3 bytes of length, sequence 0
