"""The source's log as a stream of events that detects a dead connection.

`LogStream` adds what every reader of a binlog needs to the raw connection: the file and offsets of each
event, verified and removed checksums, and the removal of artificial events. It also detects silence: the
server sends a heartbeat every `DUMP_HEARTBEAT_S` seconds, and after `SILENCE` seconds without any packet
the connection is considered lost.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

import structlog

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.large_rows import cut_rows_event
from producer.binlog_format.log_event import BinlogEvent, parse_header
from producer.binlog_format.payload import PayloadBody
from producer.errors import SourceRefusedError, StreamStoppedError, TransientSourceError
from producer.sources.binlog.binlog_dump import DumpConnection, choose_dump_start
from producer.sources.binlog.large_packets import LargePacket, OpenFile, open_temporary_file
from producer.sources.binlog.log_proof import HEAD, build_other_history_error, check_event
from producer.sources.source_session import source_errors
from schemas.findings import START_OVER
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import LogProof

_log = structlog.get_logger("capture")

DUMP_HEARTBEAT_S = 1.0
SILENCE = 15.0
#: Seconds for which the server waits for the next read; its default is one minute.
PATIENCE_OF_SERVER = 24 * 3600
_ARTIFICIAL = 0x20
_checksum_at = struct.Struct("<I").unpack_from
_CUT_OFF = "truncated in the middle of event"
"""What both servers report at an event whose end is not in the file."""
_OF_THE_STREAM = frozenset({log.ROTATE, log.FORMAT_DESCRIPTION, log.HEARTBEAT, log.HEARTBEAT_V2})
_NOTED = _OF_THE_STREAM | {log.TABLE_MAP}
_HEAD = 20
"""Where an event's body begins in its packet."""
_PAYLOAD_HEAD = 64
"""Bytes that contain the head of a TRANSACTION_PAYLOAD event's body."""
_MAX_MAPS = 4096
"""Tables with a TABLE_MAP that is kept for a large row event after it: more than any statement has."""


class NoEventError(TransientSourceError):
    """The log was opened, and no event arrived."""


class LogStream:
    """The events from `file`, `pos` on. `find_current_file`: returns the file that the server writes now.

    Reading raises TransientSourceError, SourceRefusedError or StreamStoppedError.
    """

    def __init__(
        self,
        packets: DumpConnection,
        file: str,
        pos: int,
        clock: Callable[[], float] = time.monotonic,
        find_current_file: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._packets = packets
        self._find_current_file = find_current_file
        self._checksum = packets.checksum
        self.file = file
        self._pos = pos  # after the last event
        self._clock = clock
        self._heard = clock()
        self._received = 0  # bytes, a part of a packet included
        self._recent: list[BinlogEvent] = []  # the events of the last read that returned any
        self._closing: BinlogEvent | None = None  # the ROTATE that ended the file before
        self._ahead: list[BinlogEvent] = []
        self._unread: list[bytes] = []
        self._maps: dict[bytes, bytes] = {}  # a table's id → the body of its last TABLE_MAP

    def read_events(self, timeout: float) -> list[BinlogEvent]:
        """Return the events that arrive within `timeout` seconds; empty when none came."""
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return ahead
        try:
            packets = self._read_arrived_packets(timeout)
        except SourceRefusedError as error:
            self._raise_half_written(error)
            raise
        events = self._decode_events(packets)
        if events:
            self._recent = events
        return events

    def _raise_half_written(self, error: SourceRefusedError) -> None:
        """Raise TransientSourceError if the server is still writing the event that `error` calls truncated.

        In the current file the event's end may follow, also after a full disk; a closed file is damaged.
        """
        if _CUT_OFF in str(error).lower() and self._find_current_file() == self.file:
            raise TransientSourceError(
                f"the event of {self.file} after {self._pos} is not complete yet: {error.problem.what}"
            ) from error

    def _read_arrived_packets(self, timeout: float) -> list[bytes]:
        if self._unread:
            unread, self._unread = self._unread, []
            return unread
        with source_errors():
            packets = self._packets.read_packets(timeout)
        if packets or self._packets.received_bytes != self._received:
            self._heard, self._received = self._clock(), self._packets.received_bytes
        elif self._clock() - self._heard > SILENCE:
            raise TransientSourceError(
                f"the source was silent for {SILENCE:.0f} s although it sends a heartbeat each second"
            )
        return packets

    def skip_to(self, pos: int) -> None:
        """Read the events of this file before `pos`, and forget them.

        Raises StreamStoppedError if no event begins there, otherwise like `read_events`.
        """
        file, moved = self.file, self._clock()
        while self._pos < pos:
            before = self._pos
            if self._clock() - moved > SILENCE:
                raise NoEventError(f"the source sends no event of {file} after {before}, up to {pos}")
            packets = self._read_arrived_packets(DUMP_HEARTBEAT_S)
            for number, packet in enumerate(packets, start=1):
                self._decode_event(packet)
                if self.file != file or self._pos >= pos:
                    self._unread = packets[number:]
                    break
            if self.file != file:
                break
            if self._pos > before:
                moved = self._clock()
        if (self.file, self._pos) != (file, pos):
            raise StreamStoppedError(f"{file}: no event begins at {pos}, the next one is at {self._pos}")

    def require_proven_event(self, proof: LogProof) -> None:
        """Read the first event, which must be the proven one; the stream continues after it.

        Raises SourceRefusedError when the event differs, otherwise like `read_events`.
        """
        try:
            first, rest = self._read_first_events()
        except StreamStoppedError as error:  # no event begins there
            raise build_other_history_error(f"{proof.file}:{proof.start}", str(error)) from None
        check_event(proof, first)
        self._recent, self._ahead = [first, *rest], rest

    def read_first_event(self) -> BinlogEvent:
        """Read and return the first event after the format description.

        The stream cannot be used afterwards.
        """
        return self._read_first_events()[0]

    def _read_first_events(self) -> tuple[BinlogEvent, list[BinlogEvent]]:
        """Return the first event, which may be a ROTATE, and the events that arrived with it."""
        deadline = self._clock() + SILENCE
        while self._clock() < deadline:
            packets = self._read_arrived_packets(DUMP_HEARTBEAT_S)
            for number, packet in enumerate(packets, start=1):
                event = self._decode_event(packet) or self._closing
                if event is not None:
                    return event, self._decode_events(packets[number:])
        raise NoEventError(f"the source sent no event within {SILENCE:.0f} s from {self.file}:{self._pos}")

    def find_evidence(self, file: str, pos: int) -> tuple[BinlogEvent, ...]:
        """Return the event that ends at `file`, `pos`, and at a file's beginning also the last event of
        the file before.

        Empty unless the event arrived with the last read that returned any. Copies and computes nothing.
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
        """The place where the log continues, as (file, offset), after everything that was read."""
        return self.file, self._pos

    def close(self) -> None:
        self._packets.close()

    def _decode_event(self, packet: bytes) -> BinlogEvent | None:
        timestamp, kind, server_id, size, end, flags = parse_header(packet)
        if kind in _NOTED:
            if kind != log.TABLE_MAP:
                self._record_stream_event(packet)
                return None
            self._note_table_map(packet)
        if size != len(packet) - 1:
            kind, body = self._read_large_packet(packet, size, end)
        else:
            body = self._verify_checksum(packet, end)
        start, near = self._pos, self._pos + size
        if end and end != near:  # MariaDB writes 0 inside a transaction
            near = log.widen_offset(end, near)
            start = near - size
        self._pos = near
        # As BinlogEvent(…), which takes twice as long: one is created for each event of the log.
        return tuple.__new__(BinlogEvent, (kind, timestamp, server_id, flags, self.file, start, near, body))

    def _note_table_map(self, packet: bytes) -> None:
        body = packet[_HEAD:-4] if self._checksum else packet[_HEAD:]
        self._maps.pop(body[:6], None)
        self._maps[body[:6]] = body
        if len(self._maps) > _MAX_MAPS:
            del self._maps[next(iter(self._maps))]

    def _read_large_packet(self, packet: bytes, size: int, end: int) -> tuple[int, bytes]:
        """Return type and body of an event that is not in memory: of a row event without its large values."""
        found = packet.size if isinstance(packet, LargePacket) else len(packet)
        if size != found - 1 or not isinstance(packet, LargePacket):
            raise StreamStoppedError(f"{self.file}:{end}: an event of {size} bytes came as {found - 1} bytes")
        stop = self._verify_large_checksum(packet, end)
        kind = parse_header(packet)[1]
        if kind in log.ANY_ROWS:
            return cut_rows_event(kind, packet.open_source(_HEAD, stop), self._maps)
        if kind == log.TRANSACTION_PAYLOAD:
            head = packet.open_slice(_HEAD, stop).read(_PAYLOAD_HEAD)
            return kind, PayloadBody.build(
                head, stop - _HEAD, lambda start: packet.open_slice(_HEAD + start, stop)
            )
        return kind, packet.open_source(_HEAD, stop).take(stop - _HEAD)

    def _verify_large_checksum(self, packet: LargePacket, end: int) -> int:
        """Return where the event ends in its packet."""
        if not self._checksum:
            return packet.size
        stop, found = packet.size - 4, 0
        for block in packet.yield_blocks(1, stop):
            found = crc32(block, found)
        if found != int.from_bytes(packet.open_slice(stop, packet.size).read(4), "little"):
            raise self._build_damage_error(end)
        return stop

    def _build_damage_error(self, end: int) -> StreamStoppedError:
        return StreamStoppedError(
            f"{self.file}:{end}: the event's checksum is wrong; the log or the network is damaged",
            "check the server's log file with mysqlbinlog --verify-binlog-checksum",
        )

    def _record_stream_event(self, packet: bytes) -> None:
        """Process an event that concerns the stream itself and not its readers: the checksum setting,
        the offset, a ROTATE.
        """
        timestamp, kind, server_id, size, end, flags = parse_header(packet)
        if kind == log.ROTATE:
            end = log.widen_offset(end, self._pos + size)
            self._rotate_file(
                packet, BinlogEvent(kind, timestamp, server_id, flags, self.file, end - size, end, b"")
            )
            return
        if kind == log.FORMAT_DESCRIPTION:
            self._checksum = packet[-5] == 1
        # An artificial event has 0 here; a heartbeat has the offset up to which the server has read.
        self._pos = max(self._pos, log.widen_offset(end, self._pos))

    def _rotate_file(self, packet: bytes, event: BinlogEvent) -> None:
        """Continue in the next file.

        After the event that closes a file an artificial one names the same next file.
        """
        body = None if event.flags & _ARTIFICIAL else self._verify_checksum(packet, event.end)
        try:
            file, pos = log.parse_rotate(packet[1:])
        except DecodeError as error:
            raise StreamStoppedError.wrap_error(f"{self.file}:{self._pos}", error) from error
        if parse_binlog_file_number(file) < parse_binlog_file_number(self.file):
            raise StreamStoppedError(
                f"{self.file}:{self._pos}: the log continues in {file}, which precedes it: its events would "
                "be mistaken for those that were captured before",
                f"if the log was reset, {START_OVER}",
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
            raise self._build_damage_error(end)
        return body


def open_stream(
    settings: dict[str, Any],
    *,
    server_id: int,
    file: str,
    pos: int,
    find_current_file: Callable[[], str | None] = lambda: None,
    open_file: OpenFile = open_temporary_file,
) -> LogStream:
    """Connect and start the dump at `file`, `pos`. Raises like `LogStream.read_events`."""
    # Publishing a transaction that was unpacked or spilled may take minutes in which the connection is
    # not read.
    settings = {**settings, "init_command": f"SET SESSION net_write_timeout = {PATIENCE_OF_SERVER}"}
    with source_errors():
        start = choose_dump_start(pos)
        connection = DumpConnection(
            settings,
            server_id=server_id,
            file=file,
            pos=start,
            heartbeat=DUMP_HEARTBEAT_S,
            open_file=open_file,
        )
    stream = LogStream(connection, file, start, find_current_file=find_current_file)
    if start != pos:
        _log.info("log file above 4 GiB is read from its beginning", file=file, pos=pos)
    try:
        stream.skip_to(pos)
    except BaseException:
        stream.close()
        raise
    return stream
