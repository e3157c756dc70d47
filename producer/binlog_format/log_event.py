"""Events of the log as capture sees them: header fields, body, and the few bodies that it reads itself.

Row and TABLE_MAP bodies stay bytes for the codec. Of the others only what transactions need is parsed,
and by length: an unknown status variable in a QUERY event must never stop the stream. Formats: MySQL's
libs/mysql/binlog/event, MariaDB's sql/log_event.h.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import Literal, NamedTuple
from zlib import crc32

from producer.binlog_format.errors import DecodeError, UndecodableRow
from producer.binlog_format.statement_text import decode_statement_text

QUERY, STOP, ROTATE = 2, 3, 4
FORMAT_DESCRIPTION, XID, EXECUTE_LOAD_QUERY, TABLE_MAP = 15, 16, 18, 19
INCIDENT, HEARTBEAT = 26, 27
GTID, ANONYMOUS_GTID = 33, 34
XA_PREPARE, PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_V2, GTID_TAGGED = 38, 39, 40, 41, 42
MARIADB_GTID, QUERY_COMPRESSED = 162, 165

DECODABLE_ROW_EVENTS = frozenset({23, 24, 25, 30, 31, 32, 166, 167, 168, 169, 170, 171})
#: All row events, including those with rows that cannot be read.
ANY_ROWS = DECODABLE_ROW_EVENTS | {PARTIAL_UPDATE_ROWS}
#: Events without content for capture: variables of statements, annotations, checkpoints, lists of GTIDs.
IGNORED = frozenset({1, 3, 5, 13, 14, 17, 9, 10, 11, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164})

MARIADB_STANDALONE, MARIADB_GROUP_COMMIT, MARIADB_PREPARED_XA, MARIADB_COMPLETED_XA = 1, 2, 64, 128

_HEADER = struct.Struct("<IBIIIH")
_QUERY = struct.Struct("<IIBHH")
_LOAD_EXTRA = 13  # file id, and the place of the file's name in the statement
#: Events that contain the text of a statement: see `parse_statement_event`.
QUERIES = frozenset({QUERY, QUERY_COMPRESSED, EXECUTE_LOAD_QUERY})
HEADER_SIZE = 19
_ROTATE_NAME, _CHECKSUM = HEADER_SIZE + 8, 4  # where its name begins; bytes of a checksum
_NO_BACKSLASH_ESCAPES, _STRICT, _NO_ZEROS = (
    1 << 20,
    1 << 21 | 1 << 22,
    1 << 23 | 1 << 24,
)  # of sql_mode, as both servers number it
_INVALID_DATES, _PADDED = 1 << 25, 1 << 31
_THREAD_SPECIFIC = 4  # in an event's flags: the statement depends on its session, mostly by a temporary table


class BinlogEvent(NamedTuple):
    """An event. `start`, `end`: offsets in the log file `file`. `body`: without header and checksum."""

    type: int
    timestamp: int
    server_id: int
    flags: int
    file: str
    start: int
    end: int
    body: bytes


def widen_offset(end: int, near: int) -> int:
    """Return the offset after an event from its lower 32 bits in the header: the one nearest to `near`;
    0 stays 0.

    A file grows beyond 2^32 by one large transaction.
    """
    return end + ((near - end + (1 << 31)) >> 32 << 32) if end else 0


class SessionSettings(NamedTuple):
    """The settings of a statement's session by which a server converts values where an ALTER copies the
    rows.

    `padded`: CHAR is read with trailing spaces (sql_mode PAD_CHAR_TO_FULL_LENGTH). `zeroes_dates`: a
    date that the sql_mode does not allow becomes zero without an error. `zone`: the time zone in which
    the statement read or wrote a TIMESTAMP; "": it did not, or the server (MariaDB) does not log it.
    """

    padded: bool = False
    zeroes_dates: bool = False
    zone: str = ""


class LoggedStatement(NamedTuple):
    """A statement.

    `escapes`: whether a backslash escapes in its strings (sql_mode NO_BACKSLASH_ESCAPES is off).

    `temporary`: its table may be a temporary one of its session, which hides another of the same name.
    """

    db: str
    sql: str
    escapes: bool = True
    temporary: bool = False
    settings: SessionSettings = SessionSettings()


def parse_header(packet: bytes) -> tuple[int, int, int, int, int, int]:
    """Return (timestamp, type, server_id, size, end, flags) of a packet that begins with the OK byte."""
    return _HEADER.unpack_from(packet, 1)


def parse_query(body: bytes, extra: int = 0, flags: int = 0) -> LoggedStatement:
    """Parse a QUERY body. `extra`: bytes after its fixed part (EXECUTE_LOAD_QUERY: 13).

    `flags`: of the event's header.
    """
    _, _, db_length, _, status_length = _QUERY.unpack_from(body)
    at = _QUERY.size + extra + status_length
    db = body[at : at + db_length].decode("utf-8", "replace")
    found, whole = parse_status_variables(body[at - status_length : at])
    mode = int.from_bytes(found.get(_SQL_MODE, b""), "little")
    client = int.from_bytes(found[_CHARSET][:2], "little") if _CHARSET in found else None
    text = decode_statement_text(body[at + db_length + 1 :], client)
    temporary = bool(flags & _THREAD_SPECIFIC) and not _is_on_base_table(found, whole)
    zone = found.get(_TIME_ZONE, b"\0")[1:].decode("utf-8", "replace")
    settings = SessionSettings(bool(mode & _PADDED), not mode & _STRICT and not _takes_any_date(mode), zone)
    return LoggedStatement(db, text, not mode & _NO_BACKSLASH_ESCAPES, temporary, settings)


def _takes_any_date(mode: int) -> bool:
    return bool(mode & _INVALID_DATES) and not mode & _NO_ZEROS


_SQL_MODE, _CHARSET, _TIME_ZONE, _UPDATED_DBS, _DDL_XID = 1, 4, 5, 12, 17
#: Status variables of a QUERY event (both servers: sql/log_event.h) and their sizes; the others contain
#: their length.
_SIZES = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    128: 3,
    129: 8,
}
_TOO_MANY_DBS = 254


def parse_status_variables(data: bytes) -> tuple[dict[int, bytes], bool]:
    """Return the status variables of a QUERY event, and whether they are complete: reading ends at an
    unknown one.
    """
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        end = _find_status_end(code, data, at)
        if end is None or end > len(data):
            return found, False
        found[code], at = data[at:end], end
    return found, True


def _find_status_end(code: int, data: bytes, at: int) -> int | None:
    """Return the end of the variable `code` that begins at `at`; None: it is unknown, or cut off."""
    if code in _SIZES:
        return at + _SIZES[code]
    if at >= len(data):
        return None
    match code:
        case 5 | 6:  # time zone, catalog
            return at + 1 + data[at]
        case 2:  # catalog of MySQL 5.0, with a zero byte
            return at + 2 + data[at]
        case 11:  # invoker: user and host
            host = at + 1 + data[at]
            return host + 1 + data[host] if host < len(data) else None
        case 12:  # databases that it updates: their number, and each with a zero byte
            for _ in range(0 if data[at] == _TOO_MANY_DBS else data[at]):
                at = data.find(b"\0", at + 1)
                if at < 0:
                    return None
            return at + 1
    return None


def _is_on_base_table(found: dict[int, bytes], whole: bool) -> bool:
    """Return whether a statement is on a base table although it is marked as one of a session with
    temporary tables.

    MySQL marks every statement in a routine after one that used a temporary table. It logs the databases
    of the tables that a statement opened, which TRUNCATE does with a temporary table only, and numbers
    the changes of base tables.
    """
    return whole and _DDL_XID in found and _UPDATED_DBS not in found


def parse_statement_event(event: BinlogEvent) -> LoggedStatement:
    """Return the statement of a QUERY event, MariaDB's QUERY_COMPRESSED or EXECUTE_LOAD_QUERY (LOAD
    DATA).

    Raises DecodeError for one that cannot be unpacked.
    """
    if event.type == QUERY_COMPRESSED:
        return parse_query(_unpack_query_body(event.body), flags=event.flags)
    return parse_query(event.body, _LOAD_EXTRA if event.type == EXECUTE_LOAD_QUERY else 0, event.flags)


def _unpack_query_body(body: bytes) -> bytes:
    """Return the body of a QUERY_COMPRESSED event as that of a QUERY event: only the statement's text is
    packed.
    """
    _, _, db_length, _, status_length = _QUERY.unpack_from(body)
    text = _QUERY.size + status_length + db_length + 1
    return body[:text] + unpack_compressed(body[text:], "a compressed statement")


def parse_gtid(body: bytes) -> str:
    """Return "uuid:number" of a MySQL GTID event."""
    return f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}"


def read_gtid_commit_ms(body: bytes) -> int | None:
    """Return the commit time in ms since 1970 of a MySQL (also anonymous) GTID event; None before MySQL 8."""
    at = 42  # after flags, uuid, number, kind of logical clock, last_committed, sequence_number
    if len(body) < at + 7:
        return None
    micros = int.from_bytes(body[at : at + 7], "little") & ((1 << 55) - 1)
    return micros // 1000


AlterPart = Literal["start", "commit", "rollback"]
"""A part of an ALTER that MariaDB logs in parts (binlog_alter_two_phase). All parts have its text; only
`commit` is the change.
"""

_START_ALTER, _COMMIT_ALTER, _ROLLBACK_ALTER = 2, 4, 8


class MariadbGtid(NamedTuple):
    """A MariaDB GTID event.

    `text`: "domain-server-number". `xid`: as XA COMMIT writes it, without blanks and quotes. `alter`:
    which part of an ALTER.
    """

    text: str
    flags: int
    xid: str
    alter: AlterPart | None = None


def parse_mariadb_gtid(body: bytes, server_id: int) -> MariadbGtid:
    """Parse the body of a MariaDB GTID event."""
    number, domain, flags = struct.unpack_from("<QIB", body)
    at, xid = 13 + (8 if flags & MARIADB_GROUP_COMMIT else 0), ""
    if flags & (MARIADB_PREPARED_XA | MARIADB_COMPLETED_XA):
        form, first, second = struct.unpack_from("<IBB", body, at)
        data = body[at + 6 :]
        xid = f"X{data[:first].hex()},X{data[first : first + second].hex()},{form}"
        at += 6 + first + second
    return MariadbGtid(f"{domain}-{server_id}-{number}", flags, xid, _alter_part(body[at:]))


def _alter_part(extra: bytes) -> AlterPart | None:
    """Read the flags after the fixed part: absent before MariaDB 10.8, zero where the event is only
    padded.
    """
    flags = extra[0] if extra else 0
    if flags & _ROLLBACK_ALTER:
        return "rollback"
    if flags & _COMMIT_ALTER:
        return "commit"
    return "start" if flags & _START_ALTER else None


def parse_rotate(event: bytes) -> tuple[str, int]:
    """Return (file, position) that follow, from a whole event: header and body. Raises DecodeError.

    A matching checksum shows that there is one; for an artificial ROTATE neither the session's nor the
    log's setting does. The form of the name does not show it either: four bytes after binlog.000005 may
    be "A.06".
    """
    end = len(event)
    if end > _ROTATE_NAME + _CHECKSUM and crc32(event[:-_CHECKSUM]) == int.from_bytes(
        event[-_CHECKSUM:], "little"
    ):
        end -= _CHECKSUM
    name = event[_ROTATE_NAME:end]
    if not _is_file_name(name):
        raise DecodeError(
            f"a ROTATE names {name!r} as the file that follows: the log or the network is damaged"
        )
    return name.decode(), int.from_bytes(event[_ROTATE_NAME - 8 : _ROTATE_NAME], "little")


def _is_file_name(name: bytes) -> bool:
    stem, dot, number = name.rpartition(b".")
    return bool(stem) and bool(dot) and number.isdigit()


def unpack_compressed(packed: bytes, what: str) -> bytes:
    """Unpack a byte (bits 4–6 algorithm, 0–2 size of the length), the length (big-endian), and the data.

    At most the given length is unpacked. Raises UndecodableRow, with `what` as the name of the event.
    """
    if not packed:
        raise UndecodableRow(f"{what} is empty")
    header = packed[0]
    if header & 0x70:
        raise UndecodableRow(
            f"{what} has the unknown algorithm {header >> 4 & 7}", "SET GLOBAL log_bin_compress=OFF"
        )
    start = 1 + (header & 7)
    length = int.from_bytes(packed[1:start], "big")
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(packed[start:], length + 1)
    except zlib.error as error:
        raise UndecodableRow(f"{what} cannot be unpacked: {error}") from error
    if len(data) != length or not reader.eof:
        raise UndecodableRow(f"{what} unpacks to another length than its header states")
    return data
