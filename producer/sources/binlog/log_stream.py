"""The source's log as a stream of events that is never silently dead.

`LogStream` adds to the raw connection what every reader of a binlog needs: file and offsets of each event, checksums
verified and removed, artificial events dropped, and silence noticed: the server is asked for a heartbeat each
`DUMP_HEARTBEAT_S` seconds, and when nothing at all came for `SILENCE` seconds the connection counts as lost.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import BinlogEvent, parse_header
from producer.errors import StreamStoppedError, TransientSourceError
from producer.sources.binlog.binlog_dump import DumpConnection
from producer.sources.binlog.log_proof import HEAD, build_other_history_error, check_event
from producer.sources.source_errors import source_errors
from schemas.findings import START_OVER
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import LogProof

DUMP_HEARTBEAT_S = 1.0
SILENCE = 15.0
#: Seconds that the server waits for us to read on; its default is a minute.
PATIENCE_OF_SERVER = 24 * 3600
_ARTIFICIAL = 0x20
_checksum_at = struct.Struct("<I").unpack_from
_OF_THE_STREAM = frozenset({log.ROTATE, log.FORMAT_DESCRIPTION, log.HEARTBEAT, log.HEARTBEAT_V2})


class PacketSource(Protocol):
    """The source of packets for LogStream: a DumpConnection, or a recording in a test."""

    checksum: bool

    def read_packets(self, timeout: float) -> list[bytes]: ...
    def close(self) -> None: ...


class NoEventError(TransientSourceError):
    """The log was opened, and no event came."""


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
        self._recent: list[BinlogEvent] = []  # what the last read that brought something brought
        self._closing: BinlogEvent | None = None  # the ROTATE that ended the file before
        self._ahead: list[BinlogEvent] = []

    def read_events(self, timeout: float) -> list[BinlogEvent]:
        """Return the events that arrive within `timeout` seconds; empty when none came."""
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return ahead
        events = self._decode_events(self._read_arrived_packets(timeout))
        if events:
            self._recent = events
        return events

    def _read_arrived_packets(self, timeout: float) -> list[bytes]:
        with source_errors():
            packets = self._packets.read_packets(timeout)
        if packets:
            self._heard = self._clock()
        elif self._clock() - self._heard > SILENCE:
            raise TransientSourceError(
                f"the source was silent for {SILENCE:.0f} s although it sends a heartbeat each second"
            )
        return packets

    def require_proven_event(self, proof: LogProof) -> None:
        """Read the first event, which must be the proven one; the stream goes on behind it.

        Raises SourceRefusedError when it is another one, else like `read`.
        """
        try:
            first, rest = self._read_first_events()
        except StreamStoppedError as error:  # no event begins there
            raise build_other_history_error(f"{proof.file}:{proof.start}", str(error)) from None
        check_event(proof, first)
        self._recent, self._ahead = [first, *rest], rest

    def read_first_event(self) -> BinlogEvent:
        """Read and return the first event behind the format description; the stream is of no further use."""
        return self._read_first_events()[0]

    def _read_first_events(self) -> tuple[BinlogEvent, list[BinlogEvent]]:
        """Return the first event, a ROTATE included, and those that came with it."""
        deadline = self._clock() + SILENCE
        while self._clock() < deadline:
            packets = self._read_arrived_packets(DUMP_HEARTBEAT_S)
            for number, packet in enumerate(packets, start=1):
                event = self._decode_event(packet) or self._closing
                if event is not None:
                    return event, self._decode_events(packets[number:])
        raise NoEventError(f"the source sent no event within {SILENCE:.0f} s from {self.file}:{self._pos}")

    def find_evidence(self, file: str, pos: int) -> tuple[BinlogEvent, ...]:
        """Return the event that ends at `file`, `pos`, and at a file's beginning the last one of the file before.

        Empty unless it came with the last read that brought something. No copy is made, nothing computed.
        """
        if self._closing is not None and (self._closing.file, self._closing.end) == (file, pos):
            return (self._closing,)
        for event in reversed(self._recent):
            if event.end == pos and event.file == file:
                before = self._closing if event.type in HEAD else None
                return (event,) if before is None else (event, before)
        return ()

    def _decode_events(self, packets: list[bytes]) -> list[BinlogEvent]:
        return [event for packet in packets if (event := self._decode_event(packet)) is not None]

    @property
    def point(self) -> tuple[str, int]:
        """The place where the log goes on, as (file, offset): behind everything that was read."""
        return self.file, self._pos

    def close(self) -> None:
        self._packets.close()

    def _decode_event(self, packet: bytes) -> BinlogEvent | None:
        timestamp, kind, server_id, size, end, flags = parse_header(packet)
        if kind in _OF_THE_STREAM:
            self._record_stream_event(packet)
            return None
        if size != len(packet) - 1:
            raise StreamStoppedError(
                f"{self.file}:{end}: an event of {size} bytes came as {len(packet) - 1} bytes"
            )
        body = self._verify_checksum(packet, end)
        start, near = self._pos, self._pos + size
        if end and end != near:  # MariaDB leaves it 0 inside a transaction
            near = log.widen_offset(end, near)
            start = near - size
        self._pos = near
        # As BinlogEvent(…), which takes twice as long: one is made for each event of the log.
        return tuple.__new__(BinlogEvent, (kind, timestamp, server_id, flags, self.file, start, near, body))

    def _record_stream_event(self, packet: bytes) -> None:
        """Note what an event says that is of the stream, and no matter of its readers."""
        timestamp, kind, server_id, size, end, flags = parse_header(packet)
        if kind == log.ROTATE:
            self._rotate_file(
                packet, BinlogEvent(kind, timestamp, server_id, flags, self.file, end - size, end, b"")
            )
            return
        if kind == log.FORMAT_DESCRIPTION:
            self._checksum = packet[-5] == 1
        # An artificial one has 0 here; a heartbeat says how far the server has read.
        self._pos = max(self._pos, log.widen_offset(end, self._pos))

    def _rotate_file(self, packet: bytes, event: BinlogEvent) -> None:
        """Go on in the next file; an artificial event of the same name follows the one that closes a file."""
        body = None if event.flags & _ARTIFICIAL else self._verify_checksum(packet, event.end)
        try:
            file, pos = log.parse_rotate(packet[1:])
        except DecodeError as error:
            raise StreamStoppedError(f"{self.file}:{self._pos}: {error}") from error
        if parse_binlog_file_number(file) < parse_binlog_file_number(self.file):
            raise StreamStoppedError(
                f"{self.file}:{self._pos}: the log goes on in {file}, which comes before it: what follows would be taken for what was "
                f"captured before. If the log was reset: {START_OVER}"
            )
        if body is not None:
            self._closing = event._replace(body=body)
        elif file != self.file:
            self._closing = None
        self.file, self._pos = file, pos

    def _verify_checksum(self, packet: bytes, end: int) -> bytes:
        if not self._checksum:
            return packet[20:]
        body = packet[20:-4]
        if crc32(body, crc32(packet[1:20])) != _checksum_at(packet, len(packet) - 4)[0]:
            raise StreamStoppedError(
                f"{self.file}:{end}: the event's checksum is wrong; the log or the network is damaged: "
                "check the server's log file with mysqlbinlog --verify-binlog-checksum"
            )
        return body


def open_stream(settings: dict[str, Any], *, server_id: int, file: str, pos: int) -> LogStream:
    """Connect and start the dump at `file`, `pos`. Raises like `LogStream.read`."""
    # A transaction that was unpacked or spilled may be published for minutes, while nobody reads the connection.
    settings = {**settings, "init_command": f"SET SESSION net_write_timeout = {PATIENCE_OF_SERVER}"}
    with source_errors():
        connection = DumpConnection(
            settings, server_id=server_id, file=file, pos=pos, heartbeat=DUMP_HEARTBEAT_S
        )
    return LogStream(connection, file, pos)
