"""The model's log as servers write it: files of events, made by hand after the format's description.

A server that is asked for its log sends it file by file (`Dump`); what reads it is the product's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import NamedTuple
from zlib import crc32

import pymysql

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from schemas.table.model import Table
from schemas.wire.position import LogPoint, parse_binlog_file_number
from tests.kits.log import OTHER, Log
from tests.kits.row_images import DELETE, UPDATE, WRITE, bitmap, lenenc, sized

SourceRow = tuple[str, str | None, str | None, int]
"""(key, u1, u2, version)."""
Change = tuple[SourceRow | None, SourceRow | None]

FIRST = "binlog.000001"
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
"""Of the GTIDs of tests.kits.log."""
HEAD = 4
"""Bytes before a file's first event."""
_GTID_LIST, _PREVIOUS_GTIDS = 163, 35
_ARTIFICIAL = 0x20
_HEADER = struct.Struct("<IBIIIH")
_FORMAT = {False: bytes(58), True: bytes(53) + b"\1"}
"""The body of a FORMAT_DESCRIPTION event, of which only the last five bytes are read: whether events have
checksums. Those four are its own checksum, which it has also where others have none."""


def file_name(number: int) -> str:
    return f"binlog.{number:06d}"


def has_checksums(file: str) -> bool:
    """Every second file has them: SET GLOBAL binlog_checksum begins another file."""
    return parse_binlog_file_number(file) % 2 == 0


class RowPlace(NamedTuple):
    """Where a row stands: its number in the transaction, and where its event starts."""

    row: int
    at: LogPoint


@dataclass
class Binlog:
    """The files of a server; `mysql`: with MySQL's events, else MariaDB's. `purged`: files below this number
    are deleted.

    `life` grows when the server starts again: the readers of its log are cut off.
    """

    mysql: bool
    purged: int = 1
    life: int = 0
    last_gtid: int = 0
    _log: Log = field(default_factory=lambda: Log(FIRST))

    def __post_init__(self) -> None:
        self._open_file()

    @property
    def events(self) -> list[BinlogEvent]:
        return self._log.events

    @property
    def end(self) -> LogPoint:
        return parse_binlog_file_number(self._log.file), self._log.pos

    @property
    def files(self) -> list[tuple[str, int]]:
        """Name and size of each file that is there, the oldest first."""
        sizes = {event.file: event.end for event in self.events}
        return [(name, size) for name, size in sizes.items() if parse_binlog_file_number(name) >= self.purged]

    def rotate(self, *, crashed: bool = False) -> None:
        """Begin another file. `crashed`: the server is started again, and has not closed the one before."""
        new = file_name(self.end[0] + 1)
        if crashed:
            self.life += 1
        else:
            self._log.add(log.ROTATE, HEAD.to_bytes(8, "little") + new.encode())
        self._log.file, self._log.pos = new, HEAD
        self._open_file()

    def _open_file(self) -> None:
        self._log.checksums = has_checksums(self._log.file)
        self._log.add(log.FORMAT_DESCRIPTION, _FORMAT[self._log.checksums])
        self._log.add(_PREVIOUS_GTIDS if self.mysql else _GTID_LIST, struct.pack("<Q", self.last_gtid))

    def set_clock(self, now_ms: int) -> None:
        """Let what is written from now on have this time of the server."""
        self._log.now_ms = now_ms

    def group(self, db: str = "d", *, standalone: bool = False, xa: str = "", ends: str = "") -> Group:
        """Begin a transaction; `standalone`: of one statement that ends it; `xa`: that XA one; `ends`: that
        ends that one."""
        return Group(self, self._log, db, standalone=standalone, xa=xa, ends=ends)

    def cut_off(self) -> None:
        """The server dies while it writes the transaction at hand, and rolls it back when it starts again."""
        self.last_gtid -= 1
        self.rotate(crashed=True)


class Group:
    """A transaction that is being written. `start`, `gtid`: of it; `row`: rows so far, as positions count
    them."""

    def __init__(
        self, binlog: Binlog, written: Log, db: str, *, standalone: bool, xa: str, ends: str
    ) -> None:
        self._binlog, self._log, self._db, self._xa = binlog, written, db, xa
        self.start = binlog.end
        self.row = 0
        binlog.last_gtid += 1
        number = binlog.last_gtid
        written.numbers = count(number)
        if binlog.mysql:
            self.gtid = f"{UUID}:{number}"
            written.gtid(timed=True)
            if not standalone and not ends:
                self.sql(f"XA START {xid_text(xa)}" if xa else "BEGIN")
        else:
            self.gtid = f"0-1-{number}"
            flags = log.MARIADB_STANDALONE * standalone
            flags |= log.MARIADB_PREPARED_XA * bool(xa) | log.MARIADB_COMPLETED_XA * bool(ends)
            xid = (xa or ends).encode()
            written.mariadb_gtid(flags, struct.pack("<IBB", 1, len(xid), 0) + xid if xid else b"")

    @property
    def end(self) -> LogPoint:
        return self._binlog.end

    def sql(self, text: str) -> LogPoint:
        """Write a statement; returns where it starts."""
        start = self._binlog.end
        self._log.query(text, self._db)
        return start

    def others(self) -> None:
        """Write rows of a table that nobody captures."""
        self._log.rows(OTHER, [1, 2])
        self.row += 2

    def rows(self, table: Table, changes: Sequence[Change]) -> list[RowPlace]:
        """Write row events of a table; returns where each change stands."""
        places = []
        for kind, each in groupby(changes, _kind):
            group = list(each)
            images = [_image(table, row) for change in group for row in change if row is not None]
            present = b"\x0f" * (2 if kind == UPDATE else 1)
            self._log.add(log.TABLE_MAP, _table_map(table))
            places += [RowPlace(self.row + number, self._binlog.end) for number in range(len(group))]
            self._log.add(kind, _table_id(table) + b"\1\0\2\0" + lenenc(4) + present + b"".join(images))
            self.row += len(group)
        return places

    def commit(self) -> None:
        self._log.xid()

    def prepare(self, *, one_phase: bool = False) -> None:
        """End an XA transaction: prepared, or committed at once (only MySQL's log distinguishes the
        two)."""
        if self._binlog.mysql:
            self.sql(f"XA END {xid_text(self._xa)}")
        self._log.add(log.XA_PREPARE, b"\1" if one_phase else b"\0")


def xid_text(xid: str) -> str:
    """Return an XA transaction's name as statements in the log have it."""
    return f"X'{xid.encode().hex()}',X'',1"


class Dump:
    """A connection on which a server sends its log from `file`, `pos` on: what LogStream reads packets
    from."""

    checksum = True
    """What the session has asked for."""
    received_bytes = 0

    def __init__(self, binlog: Binlog, file: str, pos: int, rng: random.Random, size: int = 12) -> None:
        self._binlog, self._rng, self._size = binlog, rng, size
        self._life = binlog.life
        self._asked: tuple[str, int] | None = (file, pos)
        self._next = 0

    def read_packets(self, _timeout: float) -> list[bytes]:
        """Return up to `size` packets. Raises pymysql's errors."""
        if self._life != self._binlog.life:
            raise pymysql.err.OperationalError(2013, "Lost connection to server during query")
        if self._asked is not None:
            (file, pos), self._asked = self._asked, None
            return self._begin(file, pos)
        begin, self._next = (
            self._next,
            min(self._next + self._rng.randint(0, self._size), len(self._binlog.events)),
        )
        if begin == self._next == len(self._binlog.events):
            return self._heartbeat()
        packets = []
        for number in range(begin, self._next):
            event = self._binlog.events[number]
            if number and event.type == log.FORMAT_DESCRIPTION:
                before = self._binlog.events[number - 1].file
                packets.append(_rotation(event.file, HEAD, checksum=has_checksums(before)))
            packets.append(_packet(event))
        return packets

    def close(self) -> None: ...

    def _begin(self, file: str, pos: int) -> list[bytes]:
        events = self._binlog.events
        own = [number for number, event in enumerate(events) if event.file == file]
        if not own or parse_binlog_file_number(file) < self._binlog.purged:
            raise pymysql.err.OperationalError(
                1236, "Could not find first log file name in binary log index file"
            )
        if pos > events[own[-1]].end:
            raise pymysql.err.OperationalError(
                1236, "Client requested to start replication from position > file size"
            )
        self._next = next((number for number in own if events[number].start >= pos), own[-1] + 1)
        packets = [_rotation(file, pos, checksum=self.checksum)]
        if pos > HEAD:
            packets.append(_packet(events[own[0]]._replace(end=0, flags=_ARTIFICIAL)))
        return packets

    def _heartbeat(self) -> list[bytes]:
        if self._rng.random() < 0.5:
            return []
        last = self._binlog.events[-1]
        return [_packet(BinlogEvent(log.HEARTBEAT, 0, 1, 0, last.file, 0, last.end, last.file.encode()))]


def _rotation(file: str, pos: int, *, checksum: bool) -> bytes:
    """An event that tells which file follows, and stands in none."""
    body = pos.to_bytes(8, "little") + file.encode()
    return _packet(BinlogEvent(log.ROTATE, 0, 1, _ARTIFICIAL, file, 0, 0, body), checksum=checksum)


def _packet(event: BinlogEvent, *, checksum: bool | None = None) -> bytes:
    """Return an event as it is sent. `checksum` None: as its file has them."""
    has = has_checksums(event.file) if checksum is None else checksum
    size = _HEADER.size + len(event.body) + 4 * has
    head = _HEADER.pack(event.timestamp, event.type, event.server_id, size, event.end, event.flags)
    data = head + event.body
    return b"\0" + data + (struct.pack("<I", crc32(data)) if has else b"")


def _table_id(table: Table) -> bytes:
    return (100 + ord(table.name[0])).to_bytes(6, "little")


def _table_map(table: Table) -> bytes:
    return (
        _table_id(table) + b"\1\0" + sized(table.db.encode(), 1) + b"\0" + sized(table.name.encode(),
        1) + b"\0"
        + lenenc(4) + bytes([15, 15, 15, 8]) + lenenc(6) + (40).to_bytes(2, "little") * 3
        + bitmap([column.nullable for column in table.columns])
    )  # fmt: skip


def _kind(change: Change) -> int:
    before, after = change
    return WRITE if before is None else DELETE if after is None else UPDATE


def _image(table: Table, row: SourceRow) -> bytes:
    """Return the image of a row; `table` says in which order its columns stand."""
    named = dict(zip(("k", "u1", "u2"), row[:3], strict=True))
    texts = [named[column.name] for column in table.columns[:3]]
    stored = [b"" if text is None else sized(text.encode(), 1) for text in texts]
    return bitmap([text is None for text in [*texts, ""]]) + b"".join(stored) + row[3].to_bytes(8, "little")
