"""The source's own state (log, identity, variables, grants), and its tables through schemas.mysql_catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from producer.decoders.charsets import decoder_of
from producer.positions import LogFile, gtids_contained
from schemas.config import SourceConfig
from schemas.errors import SchemaError, TableNotFoundError
from schemas.mysql_catalog import cascading_foreign_keys, list_tables, read_table
from schemas.records import Identity, StoredPosition
from schemas.table import Table

TableName = tuple[str, str]
_PARSE_ERROR = 1064


def connect_settings(source: SourceConfig) -> dict[str, Any]:
    """Arguments for pymysql.connect; the session's time zone is UTC, like the wire values of TIMESTAMP."""
    return {
        "host": source.host,
        "port": source.port,
        "user": source.user,
        "password": source.password.get_secret_value(),
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": 10,
        "read_timeout": 60,
        "write_timeout": 60,
        "init_command": "SET time_zone = '+00:00'",
        **_tls(source),
    }


def _tls(source: SourceConfig) -> dict[str, Any]:
    tls = source.tls
    if tls is None:
        return {"ssl_disabled": True}
    return {
        "ssl_ca": str(tls.ca) if tls.ca else None,
        "ssl_cert": str(tls.cert) if tls.cert else None,
        "ssl_key": str(tls.key) if tls.key else None,
        "ssl_verify_cert": tls.verify != "none",
        "ssl_verify_identity": tls.verify == "full",
    }


class Catalog:
    """The catalogue through one connection (autocommit). Raises pymysql errors."""

    def __init__(self, connection: Connection[Any], *, mariadb: bool) -> None:
        self.connection = connection
        self.mariadb = mariadb

    @property
    def alive(self) -> bool:
        """Whether the server answers on this connection."""
        try:
            self.connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()

    # --- tables

    def table_names(self, patterns: Sequence[str]) -> list[TableName]:
        """Return the tables that `patterns` take, sorted."""
        return list_tables(self.connection, patterns)

    def table(self, name: TableName) -> Table | None:
        """Return a definition; None: no such table. Raises SchemaError for one that cannot be captured."""
        try:
            return read_table(self.connection, *name)
        except TableNotFoundError:
            return None

    def unfit(self, name: TableName) -> str | None:
        """Return why a table cannot be captured; None: it can."""
        try:
            table = read_table(self.connection, *name)
        except SchemaError as error:
            return str(error)
        if (engine := self._without_transactions(name)) is not None:
            return (
                f"table {name[0]}.{name[1]} has the engine {engine}, whose changes no ROLLBACK takes back and no snapshot "
                "reads consistently: ALTER TABLE … ENGINE=InnoDB, or exclude the table"
            )
        if otherwise := self._logged_otherwise(name):
            return (
                f"table {name[0]}.{name[1]}: {', '.join(otherwise)}: these have a form of their own in the binlog, which is not "
                "supported: ALTER TABLE … MODIFY them to the plain type, or exclude the table"
            )
        if (undecodable := undecodable_columns(table)) is not None:
            return f"table {name[0]}.{name[1]}: {undecodable}"
        cascades = [] if self.logs_cascades() else cascading_foreign_keys(self.connection, *name)
        if cascades:
            return (
                f"table {name[0]}.{name[1]} has foreign keys whose actions this server does not log "
                f"({'; '.join(cascades)}): use NO ACTION and change the child rows in the application, or exclude the table"
            )
        return None

    def _without_transactions(self, name: TableName) -> str | None:
        """Return the table's engine if it has no transactions."""
        rows = self.query(
            "SELECT t.engine AS engine FROM information_schema.tables t JOIN information_schema.engines e "
            "ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s AND COALESCE(e.transactions, 'NO') <> 'YES'",
            name,
        )
        return str(rows[0]["engine"]) if rows else None

    def _logged_otherwise(self, name: TableName) -> list[str]:
        """Return the columns that MariaDB logs compressed, or as times with fractions were before 10.1, with their types.

        It says so in a comment in the type alone. Times without a fraction are read in their old form, too.
        """
        if not self.mariadb:
            return []
        rows = self.query(
            "SELECT column_name AS name, column_type AS declared FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s AND data_type NOT IN ('enum', 'set') AND (column_type LIKE '%%/*%%COMPRESSED%%' "
            "OR column_type LIKE '%%/*%%mariadb-5.3%%' AND datetime_precision > 0) ORDER BY ordinal_position",
            name,
        )
        return [f"column {row['name']} {row['declared']}" for row in rows]

    def logs_cascades(self) -> bool:
        """MySQL logs the rows that a foreign key's action changes from 9.6 on; MariaDB does not."""
        if self.mariadb:
            return False
        version = self.query("SELECT VERSION() AS v")[0]["v"]
        if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < (9, 6):
            return False
        return self.variables().get("innodb_native_foreign_keys", "OFF").upper() in ("OFF", "0")

    # --- the server

    def query(self, sql: str, arguments: Iterable[object] = ()) -> list[dict[str, Any]]:
        with closing(self.connection.cursor(DictCursor)) as cursor:
            cursor.execute(sql, tuple(arguments) or None)
            return list(cursor.fetchall())

    def variables(self) -> dict[str, str]:
        """Return all global variables, names in lower case."""
        return {row["Variable_name"].lower(): row["Value"] for row in self.query("SHOW GLOBAL VARIABLES")}

    def log_end(self) -> tuple[str, int] | None:
        """Return file and position of the end of the log; None: no binary log."""
        try:
            rows = self.query("SHOW MASTER STATUS" if self.mariadb else "SHOW BINARY LOG STATUS")
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _PARSE_ERROR:
                raise
            rows = self.query("SHOW MASTER STATUS")
        return (rows[0]["File"], int(rows[0]["Position"])) if rows else None

    def log_files(self) -> list[LogFile]:
        """Return the log's files, oldest first. Raises OperationalError 1381 without a binary log."""
        return [LogFile(row["Log_name"], int(row["File_size"])) for row in self.query("SHOW BINARY LOGS")]

    def identity(self) -> Identity:
        gtids = "@@global.gtid_binlog_state" if self.mariadb else "@@global.gtid_executed"
        uuid = "NULL" if self.mariadb else "@@global.server_uuid"
        row = self.query(
            f"SELECT {uuid} AS uuid, @@global.server_id AS id, @@version AS version, {gtids} AS gtids"
        )[0]
        gtid_set = (row["gtids"] or "").replace("\n", "") or None
        return Identity(
            server_uuid=row["uuid"], server_id=int(row["id"]), version=row["version"], gtid_set=gtid_set
        )

    def has_gtids(self, stored: StoredPosition, now: Identity) -> bool:
        """Tell whether the server has all transactions that the record's identity lists."""
        if self.mariadb:
            return gtids_contained(stored.identity.gtid_set, now.gtid_set)
        row = self.query(
            "SELECT GTID_SUBSET(%s, @@global.gtid_executed) AS inside", (stored.identity.gtid_set or "",)
        )[0]
        return bool(row["inside"])

    def grants(self) -> list[str]:
        return [str(value) for row in self.query("SHOW GRANTS") for value in row.values()]


def undecodable_columns(table: Table) -> str | None:
    """Return which columns hold text that capture cannot decode, and what to do; None: none does. Pure."""
    for column in table.columns:
        try:
            decoder_of(column.type.charset)
        except LookupError as error:
            return f"column {column.name}: {error}: ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4, or exclude the table"
    return None


def open_catalog(source: SourceConfig) -> Catalog:
    """Connect. Raises pymysql errors."""
    return Catalog(pymysql.connect(**connect_settings(source)), mariadb=source.type == "mariadb")
