"""Events of the log as capture sees them: header fields, body, and the few bodies that it reads itself.

Row and TABLE_MAP bodies stay bytes for the codec. Of the others only what transactions need is parsed, and by length:
an unknown status variable in a QUERY event must never stop the stream.
Formats: MySQL's libs/mysql/binlog/event, MariaDB's sql/log_event.h.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

QUERY, STOP, ROTATE = 2, 3, 4
FORMAT_DESCRIPTION, XID, EXECUTE_LOAD_QUERY, TABLE_MAP = 15, 16, 18, 19
INCIDENT, HEARTBEAT = 26, 27
GTID, ANONYMOUS_GTID = 33, 34
XA_PREPARE, PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_V2, GTID_TAGGED = 38, 39, 40, 41, 42
MARIADB_GTID, QUERY_COMPRESSED = 162, 165

ROW_EVENTS = frozenset({23, 24, 25, 30, 31, 32, 166, 167, 168, 169, 170, 171})
PRE_GA_ROW_EVENTS = frozenset({20, 21, 22})
#: Events that carry nothing for capture: variables of statements, annotations, checkpoints, lists of GTIDs.
IGNORED = frozenset({1, 3, 5, 13, 14, 17, 9, 10, 11, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164})
IGNORABLE_FLAG = 0x80

MARIADB_STANDALONE, MARIADB_GROUP_COMMIT, MARIADB_PREPARED_XA, MARIADB_COMPLETED_XA = 1, 2, 64, 128

_HEADER = struct.Struct("<IBIIIH")
_QUERY = struct.Struct("<IIBHH")
HEADER_SIZE = 19


class LogEvent(NamedTuple):
    """`start`, `end`: offsets in the log file; `file` the file they belong to; `body` without header and checksum."""

    type: int
    timestamp: int
    server_id: int
    flags: int
    file: str
    start: int
    end: int
    body: bytes


class Query(NamedTuple):
    db: str
    sql: str


def parse_header(packet: bytes) -> tuple[int, int, int, int, int, int]:
    """Return (timestamp, type, server_id, size, end, flags) of a packet that begins with the OK byte."""
    return _HEADER.unpack_from(packet, 1)


def parse_query(body: bytes, extra: int = 0) -> Query:
    """Parse a QUERY body; `extra` bytes follow its fixed part (EXECUTE_LOAD_QUERY: 13)."""
    _, _, db_length, _, status_length = _QUERY.unpack_from(body)
    at = _QUERY.size + extra + status_length
    db = body[at : at + db_length].decode("utf-8", "replace")
    return Query(db, body[at + db_length + 1 :].decode("utf-8", "replace"))


def parse_gtid(body: bytes) -> str:
    """Return "uuid:number" of a MySQL GTID event."""
    return f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}"


def commit_ms(body: bytes) -> int | None:
    """Return the commit time in ms since 1970 of a MySQL (also anonymous) GTID event; None before MySQL 8."""
    at = 42  # behind flags, uuid, number, kind of logical clock, last_committed, sequence_number
    if len(body) < at + 7:
        return None
    micros = int.from_bytes(body[at : at + 7], "little") & ((1 << 55) - 1)
    return micros // 1000


class MariadbGtid(NamedTuple):
    """`text`: "domain-server-number"; `xid`: as XA COMMIT writes it, blanks and quotes removed."""

    text: str
    flags: int
    xid: str


def parse_mariadb_gtid(body: bytes, server_id: int) -> MariadbGtid:
    """Parse the body of a MariaDB GTID event."""
    number, domain, flags = struct.unpack_from("<QIB", body)
    xid = ""
    if flags & (MARIADB_PREPARED_XA | MARIADB_COMPLETED_XA):
        at = 13 + (8 if flags & MARIADB_GROUP_COMMIT else 0)
        form, first, second = struct.unpack_from("<IBB", body, at)
        data = body[at + 6 :]
        xid = f"X{data[:first].hex()},X{data[first : first + second].hex()},{form}"
    return MariadbGtid(f"{domain}-{server_id}-{number}", flags, xid)


def parse_rotate(body: bytes, checksum: bool) -> tuple[str, int]:
    """Return (file, position) that follow. Servers differ in whether an artificial ROTATE carries a checksum."""
    name = body[8:]
    if checksum and not _is_file_name(name):
        name = name[:-4]
    if not _is_file_name(name) and _is_file_name(body[8:-4]):
        name = body[8:-4]
    return name.decode(), int.from_bytes(body[:8], "little")


def _is_file_name(name: bytes) -> bool:
    stem, dot, number = name.rpartition(b".")
    return bool(stem) and bool(dot) and number.isdigit()
