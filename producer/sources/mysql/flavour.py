"""MySQL: GTIDs show what is visible, and a transaction is in the log before it is visible."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from producer.binlog_format import types as t
from producer.binlog_format.log_event import parse_rotate
from producer.binlog_format.row_events import TableMapForm, make_metadata_parsers
from producer.sources.binlog.flavour import BinlogFlavour, ExecutedGtids, FailoverRules, RunQuery, log_point
from producer.sources.chunk_data import LowWatermark
from producer.sources.grants import TABLE_RIGHTS, Rights
from producer.sources.mysql.mysql_gtids import GtidSet, SetComparison
from schemas.io.mysql_connection import open_connection
from schemas.wire.position import LogPoint, parse_binlog_file_number

_PARSE_ERROR = 1064
_NO_ROLES = (_PARSE_ERROR, 1046, 1305)
"""MySQL 5.7 has no roles, and takes the function for one of the current database, of which there is none."""
_LOG_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
_DUMP_GTID, _NON_BLOCK = 0x1E, 1
_ROTATE, _GTID, _GTID_TAGGED = 4, 33, 42


class MySQLVisibility:
    """Visibility by gtid_executed, read before the SELECT opens InnoDB's snapshot: it contains a GTID
    after the engine's commit.

    What was in the log before the stream began is visible once a dump that leaves out gtid_executed
    begins at or after that point: `first_outside(executed)` returns where it begins.
    """

    def __init__(self, first_outside: Callable[[str], LogPoint | None]) -> None:
        self._first_outside = first_outside

    def is_start_visible(self, connection: Connection[Any], started: LogPoint) -> bool:
        with connection.cursor(Cursor) as cursor:
            executed = _read_gtid_executed(cursor)
        first = self._first_outside(executed)
        return first is None or first >= started

    def begin_snapshot(self, cursor: Cursor) -> LowWatermark:
        cursor.execute("START TRANSACTION READ ONLY")
        return LowWatermark(None, GtidSet.parse(_read_gtid_executed(cursor)))

    def log_end(self, cursor: Cursor) -> LogPoint:
        try:
            cursor.execute(_LOG_STATUS[0])
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _PARSE_ERROR:
                raise
            cursor.execute(_LOG_STATUS[1])
        return log_point(cursor.fetchone())


def _read_gtid_executed(cursor: Cursor) -> str:
    cursor.execute("SELECT @@GLOBAL.gtid_executed")
    row = cursor.fetchone()
    return str(row[0]).replace("\n", "") if row else ""


def find_first_unexecuted(settings: dict[str, Any], executed: str) -> LogPoint | None:
    """Return where the first logged transaction that is not in `executed` starts; None: there is none.

    Uses a dump by GTID (COM_BINLOG_DUMP_GTID) that does not wait at the log's end. The server skips the
    transactions of the set.
    """
    connection: Any = open_connection(**settings)
    server_id = random.randrange(1 << 30, 1 << 31)  # noqa: S311 - must differ from other dumps, nothing more
    with contextlib.closing(connection):
        with connection.cursor() as cursor:
            cursor.execute("SET @source_binlog_checksum = 'NONE', @master_binlog_checksum = 'NONE'")
        executed_set = GtidSet.parse(executed).encode()
        head = struct.pack("<HIIQI", _NON_BLOCK, server_id, 0, 4, len(executed_set))
        connection._execute_command(_DUMP_GTID, head + executed_set)
        return _find_first_gtid_event(connection)


def _find_first_gtid_event(connection: Any) -> LogPoint | None:
    file = 0
    while True:
        packet = connection._read_packet()  # raises the server's errors
        if packet.is_eof_packet():
            return None
        event = packet.get_all_data()[1:]
        if event[4] == _ROTATE:
            file = parse_binlog_file_number(parse_rotate(event)[0])
        elif event[4] in (_GTID, _GTID_TAGGED):
            size, end = struct.unpack_from("<II", event, 9)
            return file, end - size


def _has_gtids(query: RunQuery, captured: str | None, _now: str | None) -> bool:
    row = query("SELECT GTID_SUBSET(%s, @@global.gtid_executed) AS inside", (captured or "",))[0]
    return bool(row["inside"])


def _read_executed(query: RunQuery, _captured: GtidSet) -> ExecutedGtids:
    executed = GtidSet.parse(str(query("SELECT @@global.gtid_executed AS gtids")[0]["gtids"]))
    return ExecutedGtids(executed, executed)


def _read_grants(query: RunQuery) -> list[str]:
    """Return the lines of SHOW GRANTS.

    Alone it only names the active roles; with USING it adds their privileges.
    """
    roles = _read_active_roles(query)
    statement = f"SHOW GRANTS FOR CURRENT_USER() USING {roles}" if roles else "SHOW GRANTS"
    return [str(value) for row in query(statement) for value in row.values()]


def _read_active_roles(query: RunQuery) -> str:
    try:
        role = query("SELECT CURRENT_ROLE() AS role")[0]["role"]
    except pymysql.MySQLError as error:
        if error.args[0] not in _NO_ROLES:
            raise
        return ""
    return "" if role in (None, "NONE") else str(role)


MYSQL_FLAVOUR = BinlogFlavour(
    type="mysql",
    is_of=lambda version: "mariadb" not in version.lower(),
    log_status=_LOG_STATUS,
    table_map=TableMapForm(make_metadata_parsers(t.CHARACTER | {t.VECTOR}), hidden_hashes=False),
    logs_virtual=lambda _version: True,
    stored_otherwise=lambda _column: False,
    runs_ahead=True,
    delivered=GtidSet,
    visibility=lambda settings: MySQLVisibility(partial(find_first_unexecuted, settings)),
    logs_cascades_from=(9, 6),
    converts_times=True,
    limits_reads=lambda seconds: (
        f"SET SESSION max_execution_time = {seconds * 1000}",
        "SET SESSION max_execution_time = 0",
    ),
    own="@@global.server_uuid",
    uuid="@@global.server_uuid",
    gtids="@@global.gtid_executed",
    captured_gtids=GtidSet.parse,
    has_gtids=_has_gtids,
    replicates_from=("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"),
    xa_recover="XA RECOVER CONVERT XID",
    failover=FailoverRules(
        setting="gtid_mode",
        without="one of the two servers has no GTIDs",
        remedy="set gtid_mode to ON on all servers of the source",
        errant_remedy="if they are harmless, commit an empty transaction with each of these GTIDs at the "
        "primary; do not write to replicas directly (super_read_only = ON)",
        list_event="Previous_gtids",
        writer="@@global.server_uuid",
        executed=_read_executed,
        compare_log=SetComparison,
        find_unexecuted=find_first_unexecuted,
    ),
    logs_xa_at_commit=lambda _version: False,
    logs_xa_in_order=lambda _version: True,
    rights=Rights(
        status="REPLICATION CLIENT",
        gives_status=frozenset({"REPLICATION CLIENT", "SUPER"}),
        sources="REPLICATION CLIENT",
        before="REPLICATION CLIENT",
        routines="SHOW_ROUTINE",
        routines_table=None,
        routines_before="SELECT ON *.*",
        foreign_keys=TABLE_RIGHTS,
    ),
    grants=_read_grants,
)
