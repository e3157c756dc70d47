"""Waits until the catalog shows the statements in the log, for servers with a log that is ahead of the
catalog (MySQL).

A statement is in the log, and sent to replicas, before its commit makes it visible: for a moment on most
servers, for seconds on one that waits for a replica's answer (semi-synchronous replication). The catalog
would still show the table before the statement. MariaDB answers queries about a table only when no
statement on it is running, and its statements are in the log by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pymysql

from producer.definitions.index import TableName
from producer.errors import TransientSourceError
from producer.sources.catalog import Catalog
from producer.sources.source_session import SourceSession, connect_settings
from schemas.config.model import SourceConfig
from schemas.values.mysql import quote_name
from schemas.wire.position import LogPoint

_PATIENCE = 30  # seconds
_POLL = 0.05
_INVISIBLE_TABLE_ERRORS = frozenset({1146, 1049, 1142})  # no such table, no such database, may not read it


def await_transaction(session: SourceSession, gtid: str | None, names: Collection[TableName]) -> None:
    """Return once the changes of transaction `gtid` to `names` are visible.

    `gtid` None: the transaction has no GTID.

    Raises TransientSourceError after half a minute, and pymysql errors.
    """
    if not session.flavour.runs_ahead:
        return
    if gtid is None:
        _await_statements(session, names)
        return
    row = session.run_query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s) AS late", (gtid, _PATIENCE))[0]
    if row["late"]:
        raise TransientSourceError(
            f"transaction {gtid} is in the source's log, but not visible after {_PATIENCE} s"
        )


def _await_statements(session: SourceSession, names: Collection[TableName]) -> None:
    """Open each table: a statement that changes it blocks this until it is visible."""
    session.run_query(f"SET SESSION lock_wait_timeout = {_PATIENCE}")
    for db, table in names:
        try:
            session.run_query(f"SELECT 1 FROM {quote_name(db)}.{quote_name(table)} LIMIT 0")
        except pymysql.MySQLError as error:
            if error.args[0] not in _INVISIBLE_TABLE_ERRORS:
                raise


def await_log(
    catalog: Catalog,
    source: SourceConfig,
    point: LogPoint,
    names: Collection[TableName],
    beat: Callable[[], None],
) -> None:
    """Return once everything in the log before `point` is visible, at least the changes to `names`.

    Raises TransientSourceError, SourceRefusedError, and pymysql errors.
    """
    if not catalog.session.flavour.runs_ahead or not names:
        return
    if catalog.server.read_variables().get("gtid_mode") != "ON":
        _await_statements(catalog.session, names)
        return
    visibility = catalog.session.flavour.visibility(connect_settings(source))
    deadline = time.monotonic() + _PATIENCE
    while not visibility.is_start_visible(catalog.session.connection, point):
        beat()
        if time.monotonic() > deadline:
            raise TransientSourceError(
                f"transactions in the source's log are not visible after {_PATIENCE} s"
            )
        time.sleep(_POLL)
