"""What the command line reads from a source: where its log ends, and which tables are selected, with definitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rowlock.errors import CommandError
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError, TableNotFoundError
from schemas.io.mysql_catalog import list_tables, read_tables
from schemas.io.mysql_connection import connect_source
from schemas.table.model import Table
from schemas.wire.position import binlog_file_number

if TYPE_CHECKING:
    from pymysql.connections import Connection

#: The statement was renamed; servers know one or both.
_LOG_END = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


@contextlib.contextmanager
def source_connection(source: SourceConfig, name: str) -> Iterator[Connection[Any]]:
    """Connect to a source. Raises CommandError that names it."""
    try:
        conn = connect_source(source)
    except SchemaError as error:
        raise CommandError(f"source {name}: {error}") from error
    try:
        yield conn
    finally:
        conn.close()


def log_end(source: SourceConfig, name: str) -> tuple[int, int]:
    """Return (number of the current log file, its end). Raises CommandError."""
    import pymysql

    refusals = []
    with source_connection(source, name) as conn, conn.cursor() as cursor:
        for statement in _LOG_END:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                refusals.append(str(error.args[-1]))
                continue
            row = cursor.fetchone()
            if row:
                return binlog_file_number(str(row[0])), int(row[1])
    seen = "; ".join(refusals) or "the server has no binary log"
    raise CommandError(
        f"source {name}: its log position cannot be read: {seen}; switch log_bin on, and GRANT REPLICATION CLIENT "
        f"(MariaDB: BINLOG MONITOR) ON *.* to {source.user}"
    )


class Selected(NamedTuple):
    """The tables that a source's patterns select. `unfit`: (db, table) → why it cannot be replicated."""

    tables: list[Table]
    unfit: dict[tuple[str, str], str]


def selected_tables(source: SourceConfig, name: str) -> Selected:
    """Read the definitions of the tables that the source's patterns select. Raises CommandError."""
    found = Selected([], {})
    with source_connection(source, name) as conn:
        for place, entry in read_tables(conn, list_tables(conn, source.tables)).items():
            if isinstance(entry.table, TableNotFoundError):
                continue  # dropped since it was listed
            if isinstance(entry.table, SchemaError):
                found.unfit[place] = str(entry.table)
            else:
                found.tables.append(entry.table)
    return found
