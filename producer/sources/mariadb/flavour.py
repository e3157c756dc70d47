"""MariaDB: reports the log position of a consistent snapshot, hides hash columns, and does not log
foreign keys' actions.
"""

from __future__ import annotations

import re
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from producer.binlog_format import types as t
from producer.binlog_format.row_events import TableMapForm, make_metadata_parsers
from producer.errors import SourceRefusedError
from producer.sources.binlog.flavour import BinlogFlavour, ExecutedGtids, FailoverRules, RunQuery, log_point
from producer.sources.chunk_data import LowWatermark
from producer.sources.grants import TABLE_RIGHTS, Rights
from producer.sources.mariadb.mariadb_gtids import (
    STRICT_MODE,
    DomainComparison,
    DomainOrder,
    MariadbGtidSet,
    find_executed,
    has_reached_gtids,
)
from schemas.io.mysql_columns import CatalogColumn
from schemas.io.server_errors import parse_server_version
from schemas.wire.position import LogPoint, parse_binlog_file_number

_LOG_STATUS = "SHOW MASTER STATUS"
_XA_LOGGED_AT_PREPARE = (10, 5)
_XA_ORDERED = (10, 5, 23)
"""The first version of 10.5 on which a test with two contending sessions has shown the order."""
_VIRTUAL_LOGGED = (10, 5)
"""10.2.11 logs NULL for a VIRTUAL column without an index; 10.5.23 does not."""


class MariaDBVisibility:
    """The consistent snapshot's own log position.

    START TRANSACTION WITH CONSISTENT SNAPSHOT takes InnoDB's snapshot and the log position that belongs
    to it under one lock; the status variables binlog_snapshot_file/position contain it.
    """

    def is_start_visible(self, connection: Connection[Any], started: LogPoint) -> bool:
        del connection, started
        return True  # LOW is a position, which is compared with the stream's

    def begin_snapshot(self, cursor: Cursor) -> LowWatermark:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {name.lower(): value for name, value in cursor.fetchall()}
        file = found.get("binlog_snapshot_file")
        if not file:
            raise SourceRefusedError(
                "the source gives no binlog_snapshot_file for a consistent snapshot",
                "set log_bin and restart it",
            )
        return LowWatermark((parse_binlog_file_number(file), int(found["binlog_snapshot_position"])), None)

    def log_end(self, cursor: Cursor) -> LogPoint:
        cursor.execute(_LOG_STATUS)
        return log_point(cursor.fetchone())


def is_stored_unusually(column: CatalogColumn) -> bool:
    """Return whether MariaDB logs a column as times with fractions were before 10.1.

    Only a comment in the type shows it. Times without a fraction can be read in their old form, too.
    """
    if column.data_type.lower() in ("enum", "set"):
        return False  # a label may be anything
    comment = re.search(r"/\*.*", column.declared, re.DOTALL)
    if comment is None:
        return False
    return "mariadb-5.3" in comment[0].lower() and bool(column.fsp)


def _is_before(version: str, numbers: tuple[int, ...]) -> bool:
    """Return whether a VERSION() is before `numbers`; a text without a version is not."""
    found = parse_server_version(version)
    return bool(found) and found < numbers


def _has_gtids(_query: RunQuery, captured: str | None, now: str | None) -> bool:
    return has_reached_gtids(captured, now)


def _read_executed(query: RunQuery, captured: MariadbGtidSet) -> ExecutedGtids:
    (row,) = query("SELECT @@global.gtid_binlog_state AS logged, @@global.gtid_slave_pos AS applied")
    logged = MariadbGtidSet.parse(row["logged"] or "")
    applied = MariadbGtidSet.parse(row["applied"] or "")
    executed, unshown = find_executed(captured, logged, applied)
    return ExecutedGtids(executed, logged, unshown, applied)


def _read_gtids_at(query: RunQuery, file: str, pos: int) -> str:
    """Return the last GTIDs before a place, and those that were applied before the log began: a server that
    was built from a backup has them in gtid_slave_pos alone."""
    (row,) = query(
        "SELECT CONCAT_WS(',', NULLIF(BINLOG_GTID_POS(%s, %s), ''), NULLIF(@@global.gtid_slave_pos, '')) "
        "AS gtids",
        (file, pos),
    )
    return str(row["gtids"] or "")


def _read_grants(query: RunQuery) -> list[str]:
    return [str(value) for row in query("SHOW GRANTS") for value in row.values()]


MARIADB_FLAVOUR = BinlogFlavour(
    type="mariadb",
    is_of=lambda version: "mariadb" in version.lower(),
    log_status=(_LOG_STATUS,),
    table_map=TableMapForm(make_metadata_parsers(t.CHARACTER | {t.GEOMETRY}), hidden_hashes=True),
    logs_virtual=lambda version: not _is_before(version, _VIRTUAL_LOGGED),
    stored_otherwise=is_stored_unusually,
    runs_ahead=False,  # queries about a table wait for running statements on it
    delivered=lambda: None,
    visibility=lambda _settings: MariaDBVisibility(),
    logs_cascades_from=None,
    converts_times=False,
    limits_reads=lambda seconds: (
        f"SET SESSION max_statement_time = {seconds}",
        "SET SESSION max_statement_time = 0",
    ),
    own="CONCAT(@@global.hostname, ':', @@global.port)",
    uuid="NULL",
    gtids="@@global.gtid_binlog_state",
    captured_gtids=MariadbGtidSet.parse,
    has_gtids=_has_gtids,
    replicates_from=("SHOW ALL SLAVES STATUS",),
    xa_recover="XA RECOVER",
    failover=FailoverRules(
        setting="gtid_strict_mode",
        without="numbers of GTIDs may repeat or fall",
        remedy=STRICT_MODE,
        errant_remedy="build the replica anew, or let a failover to it copy these tables; do not write to "
        "replicas directly (read_only = ON, and no rights to write in spite of it)",
        list_event="Gtid_list",
        writer="@@global.server_id",
        executed=_read_executed,
        compare_log=DomainComparison,
        make_order=lambda before: DomainOrder(MariadbGtidSet.parse(before)),
        read_gtids_at=_read_gtids_at,
    ),
    logs_xa_at_commit=lambda version: _is_before(version, _XA_LOGGED_AT_PREPARE),
    logs_xa_in_order=lambda version: not _XA_LOGGED_AT_PREPARE <= parse_server_version(version) < _XA_ORDERED,
    rights=Rights(
        status="BINLOG MONITOR",
        gives_status=frozenset({"REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"}),
        sources="SLAVE MONITOR",
        before="REPLICATION CLIENT",  # 10.5 has split it
        routines="SHOW CREATE ROUTINE",
        routines_table=("mysql", "proc"),
        routines_before="SELECT ON mysql.proc",
        foreign_keys=TABLE_RIGHTS - {"SELECT"},
    ),
    grants=_read_grants,
)
