"""The source's log as a stream of events that is never silently dead.

`LogStream` adds to the raw connection what every reader of a binlog needs: file and offsets of each event, checksums
verified and removed, artificial events dropped, and silence noticed: the server is asked for a heartbeat each
`HEARTBEAT` seconds, and when nothing at all came for `SILENCE` seconds the connection counts as lost.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import pymysql

from producer import log_event as log
from producer.errors import SourceRefusedError, StreamStoppedError, TransientSourceError
from producer.library import DumpConnection
from producer.log_event import LogEvent
from schemas.findings import START_OVER

HEARTBEAT = 1.0
SILENCE = 15.0
_PURGED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: purged, or the position is not in the file
_TRANSIENT = frozenset(
    {1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1927, 2003, 2006, 2013, 2055, 4031}
)


class PacketSource(Protocol):
    """What LogStream reads from: a DumpConnection, or a recording in a test."""

    checksum: bool

    def read(self, timeout: float) -> list[bytes]: ...
    def close(self) -> None: ...


class LogStream:
    """Events from `file`, `pos` on. `read` raises TransientSourceError, SourceRefusedError or StreamStoppedError."""

    def __init__(
        self, packets: PacketSource, file: str, pos: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._packets = packets
        self._checksum = packets.checksum
        self.file = file
        self._pos = pos  # behind the last event
        self._clock = clock
        self._heard = clock()

    def read(self, timeout: float) -> list[LogEvent]:
        """Return the events that arrive within `timeout` seconds; empty when none came."""
        try:
            packets = self._packets.read(timeout)
        except pymysql.MySQLError as error:
            raise source_error(error) from error
        if packets:
            self._heard = self._clock()
        elif self._clock() - self._heard > SILENCE:
            raise TransientSourceError(
                f"the source was silent for {SILENCE:.0f} s although it sends a heartbeat each second"
            )
        return [event for packet in packets if (event := self._event(packet)) is not None]

    @property
    def point(self) -> tuple[str, int]:
        """Where the log goes on, as (file, offset): behind everything that was read."""
        return self.file, self._pos

    def close(self) -> None:
        self._packets.close()

    def _event(self, packet: bytes) -> LogEvent | None:
        timestamp, kind, server_id, size, end, flags = log.parse_header(packet)
        if kind == log.ROTATE:
            self.file, self._pos = log.parse_rotate(packet[20:], self._checksum)
            return None
        if kind in (log.FORMAT_DESCRIPTION, log.HEARTBEAT, log.HEARTBEAT_V2):
            if kind == log.FORMAT_DESCRIPTION:
                self._checksum = packet[-5] == 1
            # An artificial one has 0 here; a heartbeat says how far the server has read.
            self._pos = max(self._pos, end)
            return None
        if size != len(packet) - 1:
            raise StreamStoppedError(
                f"{self.file}:{end}: an event of {size} bytes came as {len(packet) - 1} bytes"
            )
        body = self._verified(packet, end)
        # MariaDB leaves the end 0 inside a transaction; the counter also goes on where 32 bits end.
        start = end - size if end >= size else self._pos
        self._pos = start + size
        return LogEvent(kind, timestamp, server_id, flags, self.file, start, self._pos, body)

    def _verified(self, packet: bytes, end: int) -> bytes:
        if not self._checksum:
            return packet[20:]
        if zlib.crc32(memoryview(packet)[1:-4]) != int.from_bytes(packet[-4:], "little"):
            raise StreamStoppedError(
                f"{self.file}:{end}: the event's checksum is wrong; the log or the network is damaged: "
                "check the server's log file with mysqlbinlog --verify-binlog-checksum"
            )
        return packet[20:-4]


def open_stream(settings: dict[str, Any], *, server_id: int, file: str, pos: int) -> LogStream:
    """Connect and start the dump at `file`, `pos`. Raises like `LogStream.read`."""
    try:
        connection = DumpConnection(settings, server_id=server_id, file=file, pos=pos, heartbeat=HEARTBEAT)
    except pymysql.MySQLError as error:
        raise source_error(error) from error
    return LogStream(connection, file, pos)


def source_error(error: pymysql.MySQLError) -> Exception:
    """Translate a driver error: transient, or refused with what to do."""
    code = error.args[0] if error.args else 0
    text = error.args[1] if len(error.args) > 1 else str(error)
    if code in _TRANSIENT or isinstance(error, pymysql.InterfaceError):
        return TransientSourceError(f"the source cannot be reached just now: {text} ({code})")
    if code == _PURGED:
        return SourceRefusedError(
            f"the source cannot continue the log where capture stands: {text} ({code}). If the log was purged: "
            f"keep it longer (binlog_expire_logs_seconds), and {START_OVER}"
        )
    return SourceRefusedError(f"the source refuses capture: {text} ({code})")
