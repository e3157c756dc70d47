"""A binlog built event by event, for tests of what reads one."""

from __future__ import annotations

import struct
from itertools import count

import zstandard

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent

CAPTURED, OTHER = ("bank", "acct"), ("bank", "log")
IDS = {CAPTURED: 7, OTHER: 8}


class Log:
    """Builds a log file event by event."""

    def __init__(self, file: str = "binlog.000009") -> None:
        self.file = file
        self.events: list[BinlogEvent] = []
        self.pos = 4
        self.numbers = count(1)
        self.checksums = False
        self.now_ms = 1_700_000_000_000  # the server's time

    def add(self, kind: int, body: bytes, flags: int = 0) -> None:
        end = self.pos + 19 + len(body) + 4 * self.checksums
        self.events.append(BinlogEvent(kind, self.now_ms // 1000, 1, flags, self.file, self.pos, end, body))
        self.pos = end

    def query(self, sql: str, db: str = "bank") -> None:
        head = struct.pack("<IIBHH", 1, 0, len(db), 0, 3)
        self.add(log.QUERY, head + b"\xfa\xfb\xfc" + db.encode() + b"\0" + sql.encode())

    def gtid(self, *, timed: bool = False) -> None:
        """`timed`: with the commit time in microseconds, as MySQL 8 writes it."""
        uuid = bytes(range(16))
        time = (self.now_ms * 1000).to_bytes(7, "little") if timed else b""
        self.add(log.GTID, b"\0" + uuid + struct.pack("<Q", next(self.numbers)) + b"\2" + bytes(16) + time)

    def mariadb_gtid(self, flags: int, xid: bytes = b"") -> None:
        self.add(log.MARIADB_GTID, struct.pack("<QIB", next(self.numbers), 0, flags) + xid)

    def rows(self, name: tuple[str, str], values: list[int]) -> None:
        table_id = struct.pack("<Q", IDS[name])[:6]
        db, table = (part.encode() for part in name)
        names = bytes([len(db)]) + db + b"\0" + bytes([len(table)]) + table + b"\0"
        self.add(log.TABLE_MAP, table_id + b"\1\0" + names + b"\x01\x03\x00\x00")
        images = b"".join(b"\0" + struct.pack("<i", value) for value in values)
        self.add(30, table_id + b"\1\0" + b"\2\0" + b"\x01\x01" + images)

    def payload(self, inner: Log) -> None:
        """Add the events of `inner` as a compressed transaction."""
        plain = b"".join(
            struct.pack("<IBIIIH", e.timestamp, e.type, 1, 19 + len(e.body), 77, e.flags) + e.body
            for e in inner.events
        )
        packed = zstandard.ZstdCompressor().compress(plain)
        size = b"\xfe" + struct.pack("<Q", len(packed))
        self.add(log.TRANSACTION_PAYLOAD, b"\2\1\0" + bytes([1, len(size)]) + size + b"\0" + packed)

    def xid(self) -> None:
        self.add(log.XID, bytes(8))
