"""Finds statements that may change definitions in the packets of a binlog dump. Pure.

The server sends every byte of the log, so most of the work is skipping events: only the type of nearly
all of them is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import AlterPart, BinlogEvent
from producer.binlog_format.payload import PayloadBody, yield_payload_events
from producer.definitions.index import EVERY_TABLE, TouchedTable, yield_touched_tables
from producer.sources.binlog.large_packets import LargePacket
from schemas.wire.position import LogPoint, parse_binlog_file_number

_TYPE = 5  # offset of an event's type in its packet
_HEARTBEATS = (log.HEARTBEAT, log.HEARTBEAT_V2)
_READ = frozenset(
    {
        log.ROTATE, log.FORMAT_DESCRIPTION, *_HEARTBEATS, log.QUERY, log.QUERY_COMPRESSED, log.MARIADB_GTID,
        log.TRANSACTION_PAYLOAD,
    }
)  # fmt: skip
_NO_CHANGE = (b"\0BEGIN", b"\0COMMIT")  # the whole statement: a zero byte follows the database's name


class FoundStatement(NamedTuple):
    """A statement on tables: its start, and the tables."""

    at: LogPoint
    tables: tuple[TouchedTable, ...]


class StatementWalker:
    """Reads the packets of a dump from `file`, `pos` on.

    `point`: the place after the last event. `server_id`: of the server that sends; None until it has
    sent something.
    """

    def __init__(self, file: str, pos: int, *, checksum: bool) -> None:
        self.file = file
        self.server_id: int | None = None
        self._pos = pos
        self._checksum = checksum
        self._part: AlterPart | None = None

    @property
    def point(self) -> LogPoint:
        return parse_binlog_file_number(self.file), self._pos

    def read_statements(self, packets: Sequence[bytes]) -> list[FoundStatement]:
        """Return the statements in `packets` (as producer.sources.binlog.binlog_dump returns them)."""
        found: list[FoundStatement] = []
        packet = b""
        for packet in packets:
            if packet[_TYPE] in _READ:
                self._read_event(packet, found)
            else:
                self._pos += (packet.size if isinstance(packet, LargePacket) else len(packet)) - 1
        if (
            packet and packet[_TYPE] not in _READ
        ):  # the log has events that are not sent (MariaDB's annotations)
            self._pos = log.widen_offset(log.parse_header(packet)[4], self._pos) or self._pos
        return found

    def _read_event(self, packet: bytes, found: list[FoundStatement]) -> None:
        timestamp, kind, server_id, size, end, flags = log.parse_header(packet)
        if kind == log.ROTATE:
            self.server_id = server_id
            self.file, self._pos = log.parse_rotate(packet[1:])
            return
        if kind == log.FORMAT_DESCRIPTION:
            self._read_format(packet)
        if kind == log.FORMAT_DESCRIPTION or kind in _HEARTBEATS:
            self._pos = max(self._pos, log.widen_offset(end, self._pos))
            return
        start = log.widen_offset(end, self._pos + size) - size if end else self._pos
        self._pos = start + size
        body = self._get_body(packet)
        if kind == log.MARIADB_GTID:
            self._part = log.parse_mariadb_gtid(body, server_id).alter
        elif kind != log.QUERY or not body.endswith(_NO_CHANGE):
            event = BinlogEvent(kind, timestamp, server_id, flags, self.file, start, self._pos, body)
            found += [
                FoundStatement((parse_binlog_file_number(self.file), start), tables)
                for tables in self._list_changes(event)
            ]

    def _get_body(self, packet: bytes) -> bytes:
        checksum = 4 if self._checksum else 0
        if not isinstance(packet, LargePacket):
            return packet[20 : len(packet) - checksum]
        stop = packet.size - checksum
        if packet[_TYPE] == log.TRANSACTION_PAYLOAD:
            return PayloadBody.build(
                packet[20:], stop - 20, lambda start: packet.open_slice(20 + start, stop)
            )
        return packet.open_source(20, stop).take(stop - 20)

    def _read_format(self, packet: bytes) -> None:
        """Read whether the events that follow have a checksum."""
        self._checksum = packet[-5] == 1

    def _list_changes(self, event: BinlogEvent) -> list[tuple[TouchedTable, ...]]:
        try:
            inner = yield_payload_events(event) if event.type == log.TRANSACTION_PAYLOAD else [event]
            changes = [
                tuple(yield_touched_tables(log.parse_statement_event(each), self._part))
                for each in inner
                if each.type in log.QUERIES
            ]
        except DecodeError:
            return [(TouchedTable(EVERY_TABLE),)]
        return [tables for tables in changes if tables]
