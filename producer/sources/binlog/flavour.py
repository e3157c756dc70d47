"""The description of a make of server, as data and functions, so that no other module depends on the
make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from producer.binlog_format.row_events import TableMapForm
from producer.errors import SourceRefusedError
from producer.sources.chunk_data import LowWatermark
from producer.sources.grants import Rights
from producer.sources.mysql.mysql_gtids import GtidSet, LogComparison
from schemas.io.mysql_columns import CatalogColumn
from schemas.wire.position import LogPoint, parse_binlog_file_number

#: Executes a statement with arguments and returns its rows, by column name. Raises pymysql errors.
RunQuery = Callable[..., list[dict[str, Any]]]


class SnapshotVisibility(Protocol):
    """The differences between servers: the part of the log that a SELECT certainly sees, and where the
    log ends.
    """

    def is_start_visible(self, connection: Connection[Any], started: LogPoint) -> bool:
        """Return whether everything before `started`, where the stream began, is visible by now."""
        ...

    def begin_snapshot(self, cursor: Cursor) -> LowWatermark:
        """Open a transaction with a first SELECT that sees at least what the returned LOW describes."""
        ...

    def log_end(self, cursor: Cursor) -> LogPoint: ...


class GtidOrder(Protocol):
    """Checks that the GTIDs of a log have the order that a failover relies on."""

    def accept(self, gtid: str, /) -> None:
        """Take the next transaction of the log. Raises SourceRefusedError."""
        ...


class ExecutedGtids(NamedTuple):
    """The transactions that a server has: those that it has `executed`, and those that are or were in its log
    (`logged`). `unshown`: the last captured GTIDs of domains of which it shows nothing: it lacks these, or
    it has applied and forgotten them. `applied`: those that it does not wait for, also if it has skipped
    them.
    """

    executed: GtidSet
    logged: GtidSet
    unshown: tuple[str, ...] = ()
    applied: GtidSet = GtidSet()


@dataclass(frozen=True)
class FailoverRules:
    """The rules by which the GTIDs of a make of server show where its log continues another one.

    `setting`: the variable that has to be ON at all servers; `without`: what is wrong else; `remedy`: how to
    set it. `errant_remedy`: what to do about transactions that a replica has and the primary lacks.
    `list_event`: the event, as SHOW BINLOG EVENTS names it, with the GTIDs of all that is before a file.
    `writer`: an SQL expression, the server's name in GTIDs. `executed`: returns what the server has, as far
    as it concerns the captured set that it is given. `compare_log`: takes the captured set, what is before a
    file, and what the server has logged. `make_order`: takes the GTIDs of all that is before; None: every
    order of GTIDs is right. `find_unexecuted`: takes pymysql's settings and GTIDs, and returns where the
    first logged transaction starts that is not one of them (None: there is none); None: use `read_gtids_at`,
    which returns the last GTID of each domain before a place of the log.
    """

    setting: str
    without: str
    remedy: str
    errant_remedy: str
    list_event: str
    writer: str
    executed: Callable[[RunQuery, Any], ExecutedGtids]
    compare_log: Callable[[Any, Any, Any], LogComparison]
    make_order: Callable[[str], GtidOrder] | None = None
    find_unexecuted: Callable[[dict[str, Any], str], LogPoint | None] | None = None
    read_gtids_at: Callable[[RunQuery, str, int], str] | None = None


@dataclass(frozen=True)
class BinlogFlavour:
    """A make of server. `type`: its name in the configuration.

    `is_of`: whether a server of this VERSION() is of this make.

    The log. `log_status`: equivalent statements that show where it ends, the newest name first.
    `table_map`: the form of its TABLE_MAP events. `logs_virtual`: whether a server of this VERSION() logs the
    values of VIRTUAL columns. `stored_otherwise`: whether a column's values have a
    form in the log that its type does not show. `runs_ahead`: a transaction is in the log, and sent,
    before it is visible and before its GTID counts as executed. `delivered`: creates the set of GTIDs
    that the stream delivers, if a snapshot's LOW is such a set; returns None if LOW is a position.
    `visibility`: takes pymysql's settings. `logs_cascades_from`: the first version that logs what
    foreign keys' actions change, when innodb_native_foreign_keys is off; None: no version does.
    `converts_times`: an ALTER that copies rows converts each TIMESTAMP to its session's time zone and
    back. `limits_reads`: takes a number of seconds, and returns the statements that limit a session's
    reads to it and that remove the limit.

    The server. `own`, `uuid` and `gtids`: SQL expressions for the server that answers, its uuid, and its
    log's GTIDs. `captured_gtids`: parses those of a position record. `has_gtids`: whether the server
    (its GTIDs are the last argument) has all of a record's. `replicates_from`: equivalent statements
    that list the servers that this one replicates, the newest name first. `xa_recover`: lists the XA
    transactions that are prepared, with XIDs that are bytes or hexadecimal. `logs_xa_at_commit`: whether a
    server of this VERSION() logs the rows of an XA transaction at its COMMIT, not at its PREPARE.
    `logs_xa_in_order`: whether it logs XA COMMITs in the order in which it executes them.

    `failover`: how capture continues at another server.

    The user. `rights`: the names of the rights that it needs. `grants`: returns the lines of SHOW
    GRANTS, active roles included.
    """

    type: str
    is_of: Callable[[str], bool]
    log_status: tuple[str, ...]
    table_map: TableMapForm
    logs_virtual: Callable[[str], bool]
    stored_otherwise: Callable[[CatalogColumn], bool]
    runs_ahead: bool
    delivered: Callable[[], GtidSet | None]
    visibility: Callable[[dict[str, Any]], SnapshotVisibility]
    logs_cascades_from: tuple[int, int] | None
    converts_times: bool
    limits_reads: Callable[[int], tuple[str, str]]
    own: str
    uuid: str
    gtids: str
    captured_gtids: Callable[[str], GtidSet]
    has_gtids: Callable[[RunQuery, str | None, str | None], bool]
    replicates_from: tuple[str, ...]
    xa_recover: str
    failover: FailoverRules
    logs_xa_at_commit: Callable[[str], bool]
    logs_xa_in_order: Callable[[str], bool]
    rights: Rights
    grants: Callable[[RunQuery], list[str]]


def log_point(row: tuple[Any, ...] | None) -> LogPoint:
    """Return where the log ends, from a row of the status statement.

    Raises SourceRefusedError without a log.
    """
    if row is None:
        raise SourceRefusedError("the source has no binary log", "set log_bin and restart it")
    return parse_binlog_file_number(row[0]), int(row[1])
