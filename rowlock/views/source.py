"""A source as the command line reads it: the end of its log, and the selected tables with their
definitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rowlock.errors import CommandError
from rowlock.views.retention import RetentionLimits
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError, TableNotFoundError
from schemas.findings import add_exclusion
from schemas.io.certificates import read_peer_expiry
from schemas.io.mysql_accounts import format_account
from schemas.io.mysql_catalog import list_tables, read_name_rules, read_tables
from schemas.io.mysql_connection import connect_source
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error, is_access_denied
from schemas.problems import Problem
from schemas.table.left_out import LeftOutColumns, explain_needed_column
from schemas.table.model import Table
from schemas.table.names import format_table_text
from schemas.table.online_ddl import find_tool_tables
from schemas.wire.position import parse_binlog_file_number

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from producer.sources.source_view import SourceView

#: The statement was renamed; servers know one or both names.
_LOG_END = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


@contextlib.contextmanager
def source_connection(source: SourceConfig, name: str) -> Iterator[Connection[Any]]:
    """Connect to a source with MySQL's protocol. Raises CommandError that names the source, also for
    errors in the block.
    """
    import pymysql

    try:
        with contextlib.closing(connect_source(source)) as conn:
            yield conn
    except SchemaError as error:
        raise CommandError.wrap_error(f"source {name}", error) from error
    except (pymysql.MySQLError, OSError) as error:
        raise CommandError(
            f"source {name}: {format_mysql_error(error)}", choose_mysql_remedy(error)
        ) from error


@contextlib.contextmanager
def source_view(source: SourceConfig, name: str) -> Iterator[SourceView]:
    """Open the view of a source, for kinds that have one. Raises CommandError that names the source,
    also for errors in the block.
    """
    from producer.errors import CaptureError

    module, _, attribute = SOURCE_KINDS[source.type].view.partition(":")
    try:
        view: SourceView = getattr(import_module(module), attribute)(source, name)
        with contextlib.closing(view):
            yield view
    except CaptureError as error:
        raise CommandError.wrap_error(f"source {name}", error) from error


def has_view(source: SourceConfig) -> bool:
    """Return whether a source is read through a view of its own instead of MySQL's protocol."""
    return bool(SOURCE_KINDS[source.type].view)


def read_source_expiry(source: SourceConfig, name: str) -> datetime | None:
    """Return when the certificate expires that a source presents; None: without TLS. Raises CommandError,
    OSError.
    """
    if has_view(source):
        with source_view(source, name) as view:
            return view.read_certificate_expiry()
    with source_connection(source, name) as conn:
        stream: Any = conn
        return read_peer_expiry(stream._sock)


def read_log_end(source: SourceConfig, name: str) -> tuple[int, int]:
    """Return (number of the current log file, its end). Raises CommandError."""
    import pymysql

    refusals = list[pymysql.MySQLError]()
    with source_connection(source, name) as conn, conn.cursor() as cursor:
        for statement in _LOG_END:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                refusals.append(error)
                continue
            row = cursor.fetchone()
            if row:
                return parse_binlog_file_number(str(row[0])), int(row[1])
        denied = [each for each in refusals if is_access_denied(each)]
        seen = "; ".join(map(format_mysql_error, denied or refusals)) or "the server has no binary log"
        remedy = _build_log_grant(source, conn) if denied else "switch log_bin on"
        raise CommandError(f"source {name}: its log position cannot be read: {seen}", remedy)


def _build_log_grant(source: SourceConfig, conn: Connection[Any]) -> str:
    """Return the GRANT of the right to read which log files there are, as this server knows it."""
    from producer.sources.catalog import get_flavour

    with conn.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        [(account,)] = cursor.fetchall()
        cursor.execute("SHOW PRIVILEGES")
        known = {str(row[0]).upper() for row in cursor.fetchall()}
    user, _, host = str(account).rpartition("@")
    right = get_flavour(source).rights.select_known(known).status
    return f"GRANT {right} ON *.* TO {format_account(user, host)};"


class RetainedLog(NamedTuple):
    """The retention of a server's log, and its files as (name, bytes), oldest first."""

    kept: RetentionLimits
    files: tuple[tuple[str, int], ...]

    def count_bytes_from(self, file: str) -> int:
        """Return the bytes of `file` and all later files; 0 if it does not exist."""
        names = [name for name, _ in self.files]
        return sum(size for _, size in self.files[names.index(file) :]) if file in names else 0


_DAYS_S = 86_400.0
_EXPIRY = (
    "binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge",
    "max_binlog_total_size", "binlog_space_limit",
)  # fmt: skip


def read_source_log(source: SourceConfig, name: str) -> RetainedLog:
    """Return the retention of the source's log, and its files. Raises CommandError."""
    import pymysql

    names = ", ".join(f"'{each}'" for each in _EXPIRY)
    with source_connection(source, name) as conn, conn.cursor() as cursor:
        try:
            cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
            variables = {str(row[0]).lower(): str(row[1]) for row in cursor.fetchall()}
            cursor.execute("SHOW BINARY LOGS")
            files = tuple((str(row[0]), int(row[1])) for row in cursor.fetchall())
        except pymysql.MySQLError as error:
            remedy = _build_log_grant(source, conn) if is_access_denied(error) else choose_mysql_remedy(error)
            what = f"source {name}: how long it keeps its log cannot be read: {format_mysql_error(error)}"
            raise CommandError(what, remedy) from error
    return RetainedLog(log_kept(variables), files)


def log_kept(variables: Mapping[str, str]) -> RetentionLimits:
    """Return the retention by a server's settings (those in _EXPIRY that it has). Pure.

    0 means for ever. If both are set, the one in seconds has priority over the one in days.
    """
    seconds = float(variables.get("binlog_expire_logs_seconds", 0))
    days = float(variables.get("expire_logs_days", 0))
    age, by = (seconds, "binlog_expire_logs_seconds") if seconds else (days * _DAYS_S, "expire_logs_days")
    purges = variables.get("binlog_expire_logs_auto_purge", "ON") == "ON"
    limits = ((int(variables.get(setting, 0)), setting) for setting in _EXPIRY[3:])
    limit, limit_by = next((each for each in limits if each[0]), (None, ""))
    return RetentionLimits(age if age and purges else None, by, limit, limit_by)


def estimate_tables(
    source: SourceConfig, name: str, tables: Sequence[tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    """Return "db.table" → (rows, bytes) by the server's estimates, for the existing ones of `tables`.
    Raises CommandError.
    """
    import pymysql

    if not tables:
        return {}
    if has_view(source):
        with source_view(source, name) as view:
            return {format_table_text(*table): sizes for table, sizes in view.estimate_sizes(tables).items()}
    placeholders = ", ".join(["(%s, %s)"] * len(tables))
    query = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(TABLE_ROWS, 0), COALESCE(DATA_LENGTH, 0) "
        f"FROM information_schema.TABLES WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({placeholders})"
    )
    with source_connection(source, name) as conn, conn.cursor() as cursor:
        try:
            cursor.execute(query, [part for table in tables for part in table])
            return {
                format_table_text(db, table): (int(rows), int(size))
                for db, table, rows, size in cursor.fetchall()
            }
        except pymysql.MySQLError as error:
            raise CommandError(
                f"source {name}: the sizes of its tables cannot be read: {error.args[-1]}"
            ) from error


_NO_STORED_FIGURES = "SET SESSION information_schema_stats_expiry = 0"
"""MySQL 8 shows a table's next number as it was up to a day ago; other servers have no such setting."""
_UNKNOWN_SETTING = 1193


def read_next_numbers(
    source: SourceConfig, name: str, tables: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return (db, table) → the number that AUTO_INCREMENT gives the next row. A table that the source does
    not show is left out. Raises CommandError.
    """
    import pymysql

    marks = ", ".join(["(%s, %s)"] * len(tables))
    query = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, AUTO_INCREMENT FROM information_schema.TABLES "
        f"WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({marks})"
    )
    with source_connection(source, name) as conn, conn.cursor() as cursor:
        try:
            cursor.execute(_NO_STORED_FIGURES)
        except pymysql.MySQLError as error:
            if error.args[0] != _UNKNOWN_SETTING:
                raise
        cursor.execute(query, [part for table in tables for part in table])
        return {(str(db), str(table)): int(number or 1) for db, table, number in cursor.fetchall()}


class SelectedTables(NamedTuple):
    """The tables that a source's patterns select."""

    tables: list[Table]
    unfit: dict[tuple[str, str], Problem]
    """(db, table) → why it cannot be replicated."""


def _select_by_view(source: SourceConfig, name: str) -> SelectedTables:
    found = SelectedTables([], {})
    with source_view(source, name) as view:
        surveyed = view.list_tables()
    for place, each in surveyed.items():
        if each.table is not None:
            found.tables.append(each.table)
        elif each.problem is not None:
            found.unfit[place] = each.problem
    return found


def read_selected_tables(source: SourceConfig, name: str) -> SelectedTables:
    """Return the definitions of the tables that the source's patterns select. Raises CommandError."""
    found = SelectedTables([], {})
    if has_view(source):
        return _select_by_view(source, name)
    with source_connection(source, name) as conn:
        listed = list_tables(conn, source.tables)
        rules = read_name_rules(conn)
        of_tools = find_tool_tables(
            listed, source.online_ddl.names, rules.fold_patterns(source.tables), set(listed)
        )
        columns = LeftOutColumns(source.left_out_columns, rules)
        for place, entry in read_tables(conn, [name for name in listed if name not in of_tools]).items():
            if isinstance(entry.table, TableNotFoundError):
                continue  # dropped since it was listed
            if isinstance(entry.table, SchemaError):
                problem = entry.table.problem
                found.unfit[place] = replace(problem, remedy=add_exclusion(problem.remedy, *place))
            elif (needed := explain_needed_column(entry.table, columns.list_columns(place))) is not None:
                found.unfit[place] = replace(needed, remedy=add_exclusion(needed.remedy, *place))
            else:
                found.tables.append(msgspec.structs.replace(columns.apply_to(entry.table), left_out=()))
    return found
