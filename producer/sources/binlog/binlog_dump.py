"""The connection of a binlog dump, and the only module that uses private names of mysql-replication.

The library connects, authenticates (TLS included), registers, agrees on checksums, asks for heartbeats
and sends the dump command. Its own read loop takes tens of microseconds for each event and decodes rows
column by column. So this module splits large socket reads into packets itself and returns them as bytes.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pymysql
from pymysqlreplication.binlogstream import BinLogStreamReader

from producer.binlog_format.large_rows import LARGE_EVENT
from producer.errors import TransientSourceError
from producer.sources.binlog.large_packets import LargePacketWriter, OpenFile, open_temporary_file
from schemas.io.mysql_connection import open_connection

LIBRARY_VERSION = "1.0.17"
_READ = 1 << 20
_MAX_PACKET = 0xFFFFFF
_CHECKSUMS = "@master_binlog_checksum = 'CRC32'"
_EOF, _ERR = 0xFE, 0xFF


BEGIN = 4
"""The offset of a file's first event."""
_LAST_START = (1 << 32) - 1


def choose_dump_start(pos: int) -> int:
    """Return the offset at which a dump can begin so that it contains the events from `pos` on.

    The command has 32 bits for it. One transaction can make a file longer, so its end is reached by reading
    the whole file.
    """
    return pos if pos <= _LAST_START else BEGIN


class DumpConnection:
    """A binlog dump that begins at `file`, `pos`. `open_file`: creates the file of a packet that is too large
    for memory.

    Raises pymysql's errors of connecting and of the dump command.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        server_id: int,
        file: str,
        pos: int,
        heartbeat: float,
        open_file: OpenFile = open_temporary_file,
    ) -> None:
        found = version("mysql-replication")
        if found != LIBRARY_VERSION:
            raise RuntimeError(
                f"mysql-replication {found} is installed, this adapter is for {LIBRARY_VERSION}"
            )
        # is_mariadb would start the dump by GTID; by file and position both servers speak the same
        # protocol.
        library: Any = BinLogStreamReader  # its constructor and privates are not typed
        self._reader = library(
            connection_settings=_with_checksums(settings),
            pymysql_wrapper=open_connection,
            server_id=server_id,
            resume_stream=True,
            blocking=True,
            log_file=file,
            log_pos=pos,
            slave_heartbeat=heartbeat,
            enable_logging=False,
        )
        try:
            self._reader._BinLogStreamReader__connect_to_stream()
        except BaseException:
            self._abandon_connection()
            raise
        self.checksum: bool = self._reader._BinLogStreamReader__use_checksum
        self._socket: socket.socket = self._reader._stream_connection._sock
        self._socket.settimeout(None)
        self._cutter = PacketSplitter(open_file)
        self.received_bytes = 0
        """How much the server has sent: a large packet takes time to arrive."""

    def read_packets(self, timeout: float) -> list[bytes]:
        """Return the packets that arrive within `timeout` seconds (binlog events: 0x00, then header and
        body); LargePacket for those above LARGE_EVENT bytes.

        The list is empty when none arrived. Raises TransientSourceError when the connection ends, and
        pymysql's errors when the server sends one.
        """
        if not self._is_readable(timeout):
            return []
        try:
            data = self._socket.recv(_READ)
        except OSError as error:
            raise TransientSourceError(f"the binlog connection broke: {error}") from error
        if not data:
            raise TransientSourceError("the server closed the binlog connection")
        self.received_bytes += len(data)
        packets = self._cutter.add_data(data)
        for packet in packets:
            if packet[0] != 0:
                _raise_for(packet)
        return packets

    def close(self) -> None:
        """End the connection without waiting for the server."""
        self._cutter.close()
        self._abandon_connection()

    def _is_readable(self, timeout: float) -> bool:
        pending = getattr(self._socket, "pending", None)  # TLS holds decrypted bytes that select does not see
        if pending is not None and pending():
            return True
        return bool(select.select([self._socket], [], [], timeout)[0])

    def _abandon_connection(self) -> None:
        connection = getattr(self._reader, "_stream_connection", None)
        if connection is not None:
            connection._force_close()


def _with_checksums(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a statement that announces checksum support: older files of the server
    may have checksums whatever it writes now.
    """
    before = settings.get("init_command")
    return {**settings, "init_command": f"{before}, {_CHECKSUMS}" if before else f"SET {_CHECKSUMS}"}


class PacketSplitter:
    """Splits the data of the connection into packets.

    The part of a large packet that has arrived is not copied at each read, and is written to a file of
    `open_file` once it has LARGE_EVENT bytes.
    """

    def __init__(self, open_file: OpenFile = open_temporary_file) -> None:
        self._rest: bytes | bytearray = b""
        self._open_file = open_file
        self._large: LargePacketWriter | None = None

    def add_data(self, data: bytes) -> list[bytes]:
        """Return the packets that are complete with `data`. Raises TransientSourceError if a file cannot be
        written.
        """
        if self._large is not None:
            return self._continue_large(self._large, data)
        if len(self._rest) < _READ:
            packets, self._rest = split_packets(bytes(self._rest) + data if self._rest else data)
            return packets
        grown = self._rest if isinstance(self._rest, bytearray) else bytearray(self._rest)
        grown += data
        self._rest = grown
        end = _find_chain_end(grown, 0, len(grown))
        if end is None:
            if len(grown) > LARGE_EVENT:
                self._rest, self._large = b"", LargePacketWriter(self._open_file)
                self._large.add_data(grown)
            return []
        with memoryview(grown) as view:
            first, rest = b"".join(_yield_parts(view, 0, end)), bytes(view[end:])
        packets, self._rest = split_packets(rest)
        return [first, *packets]

    def _continue_large(self, large: LargePacketWriter, data: bytes) -> list[bytes]:
        rest = large.add_data(data)
        if rest is None:
            return []
        self._large = None
        packets, self._rest = split_packets(rest)
        return [large.finish(), *packets]

    def close(self) -> None:
        if self._large is not None:
            self._large.close()


def split_packets(data: bytes) -> tuple[list[bytes], bytes]:
    """Split data of the connection into MySQL packets. Returns the packets and the incomplete rest.

    A payload of 2^24 - 1 bytes is continued in the next packet; such chains are joined.
    """
    packets = []
    at, size = 0, len(data)
    while (end := _find_chain_end(data, at, size)) is not None:
        packets.append(
            data[at + 4 : end] if end - at - 4 < _MAX_PACKET else b"".join(_yield_parts(data, at, end))
        )
        at = end
    return packets, data[at:]


def _find_chain_end(data: bytes | bytearray, at: int, size: int) -> int | None:
    while size - at >= 4:
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        at += 4 + length
        if at > size:
            return None
        if length < _MAX_PACKET:
            return at
    return None


def _yield_parts(data: bytes | memoryview, at: int, end: int) -> Iterator[bytes | memoryview]:
    while at < end:
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _raise_for(packet: bytes) -> None:
    if packet[0] == _ERR:
        pymysql.err.raise_mysql_exception(packet)
    if packet[0] == _EOF:
        raise TransientSourceError("the server ended the binlog stream")
    raise TransientSourceError(f"unexpected packet {packet[:1].hex()} in the binlog stream")
