"""The source's own state (log, identity, variables, grants), and its tables through schemas.io.mysql_catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from producer.flavours.flavour import BinlogFlavour
from producer.flavours.known import flavour_of
from producer.sources.changes import LogFile
from producer.sources.survey import MISSING, Surveyed, judge
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError
from schemas.io.mysql_catalog import charset_ids, list_tables, missing_table, names_of, read_tables
from schemas.io.mysql_connection import SESSION_SQL, open_connection
from schemas.io.mysql_foreign_keys import cascading_foreign_keys
from schemas.table.names import Names
from schemas.wire.records import Identity, StoredPosition, table_topic, topic_refusal

TableName = tuple[str, str]
_PARSE_ERROR = 1064


class Server(NamedTuple):
    """`own`: uuid, or host and port; `server_id`: as the events that it sends itself name it."""

    own: str
    server_id: int


def connect_settings(source: SourceConfig) -> dict[str, Any]:
    """Arguments for pymysql.connect: the session in which values, and the text of SHOW statements, keep their meaning."""
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
        "init_command": SESSION_SQL,
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

    def __init__(
        self, connection: Connection[Any], flavour: BinlogFlavour, place: tuple[str, str] | None = None
    ) -> None:
        """`place`: (Kafka prefix, the source's name) of the tables' topics; None: they have none of their own."""
        self.connection = connection
        self.flavour = flavour
        self._place = place
        self.cascades = Cascades(self)

    @property
    def alive(self) -> bool:
        """Tell whether the server answers on this connection."""
        try:
            self.connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()

    # --- tables

    @cached_property
    def names(self) -> Names:
        """The server's rule for comparing names of databases and tables; it does not change while the server runs."""
        return names_of(self.connection)

    def table_names(self, patterns: Sequence[str]) -> list[TableName]:
        """Return the tables that `patterns` take, sorted."""
        return list_tables(self.connection, patterns)

    def charsets(self) -> dict[int, str]:
        """Return the character set of every collation id."""
        return charset_ids(self.connection)

    def survey(self, names: Collection[TableName]) -> dict[TableName, Surveyed]:
        """Return what each table is and whether it can be captured, by a handful of queries for all of them."""
        found = {
            name: judge(name, entry, self.flavour.stored_otherwise)
            for name, entry in read_tables(self.connection, names).items()
        }
        for name, surveyed in list(found.items()):
            if surveyed.table is not None and (refusal := self._no_topic(name)) is not None:
                found[name] = Surveyed(None, refusal)
        for name in self.cascades.children(found):
            if found[name].table is not None and (reason := self.cascades.unlogged(name)) is not None:
                found[name] = Surveyed(None, reason)
        return found

    def _no_topic(self, name: TableName) -> str | None:
        """Return why Kafka takes no topic for a table; None: it does, or the table has none of its own."""
        return topic_refusal(table_topic(*self._place, *name), ".".join(name)) if self._place else None

    def unfit(self, name: TableName) -> str | None:
        """Return why a table cannot be captured; None: it can."""
        found = self.survey([name])[name]
        return missing_table(name) if found == MISSING else found.reason

    def without_transactions(self, name: TableName) -> str | None:
        """Return the table's engine if it has no transactions."""
        rows = self.query(
            "SELECT t.engine AS engine FROM information_schema.tables t JOIN information_schema.engines e "
            "ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s AND COALESCE(e.transactions, 'NO') <> 'YES'",
            name,
        )
        return str(rows[0]["engine"]) if rows else None

    def rows_about(self, name: TableName) -> int | None:
        """Return how many rows the server thinks that a table has; None: there is none."""
        rows = self.query(
            "SELECT table_rows AS about FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            name,
        )
        return int(rows[0]["about"]) if rows and rows[0]["about"] is not None else None

    def partitioning(self, name: TableName) -> str | None:
        """Return by what a table is partitioned ("RANGE", "LIST COLUMNS" …), "" if it is not, None if there is none or several say."""
        rows = self.query(
            "SELECT DISTINCT COALESCE(partition_method, '') AS method FROM information_schema.partitions "
            "WHERE table_schema = %s AND table_name = %s",
            name,
        )
        return str(rows[0]["method"]).upper() if len(rows) == 1 else None

    # --- the server

    def query(self, sql: str, arguments: Iterable[object] = ()) -> list[dict[str, Any]]:
        with closing(self.connection.cursor(DictCursor)) as cursor:
            cursor.execute(sql, tuple(arguments) or None)
            return list(cursor.fetchall())

    def first_known(self, statements: Sequence[str]) -> list[dict[str, Any]]:
        """Run the first of the statements that the server knows: they are names of one thing, the newest first."""
        for statement in statements[:-1]:
            try:
                return self.query(statement)
            except pymysql.err.ProgrammingError as error:
                if error.args[0] != _PARSE_ERROR:
                    raise
        return self.query(statements[-1])

    def variables(self) -> dict[str, str]:
        """Return all global variables, names in lower case."""
        return {row["Variable_name"].lower(): row["Value"] for row in self.query("SHOW GLOBAL VARIABLES")}

    def log_end(self) -> tuple[str, int] | None:
        """Return file and position of the end of the log; None: no binary log."""
        rows = self._log_status()
        return (rows[0]["File"], int(rows[0]["Position"])) if rows else None

    def log_filters(self) -> tuple[str, str]:
        """Return which databases alone the log has, and which it has not (comma-separated; empty: no filter)."""
        rows = self._log_status()
        return (
            (str(rows[0]["Binlog_Do_DB"] or ""), str(rows[0]["Binlog_Ignore_DB"] or "")) if rows else ("", "")
        )

    def _log_status(self) -> list[dict[str, Any]]:
        return self.first_known(self.flavour.log_status)

    def log_files(self) -> list[LogFile]:
        """Return the log's files, oldest first. Raises OperationalError 1381 without a binary log."""
        return [LogFile(row["Log_name"], int(row["File_size"])) for row in self.query("SHOW BINARY LOGS")]

    def server(self) -> Server:
        """Return which server answers on this connection: not another one behind the same address."""
        row = self.query(f"SELECT {self.flavour.own} AS own, @@global.server_id AS id")[0]
        return Server(str(row["own"]), int(row["id"]))

    def identity(self) -> Identity:
        row = self.query(
            f"SELECT {self.flavour.uuid} AS uuid, @@global.server_id AS id, @@version AS version, "
            f"{self.flavour.gtids} AS gtids"
        )[0]
        gtid_set = (row["gtids"] or "").replace("\n", "") or None
        return Identity(
            server_uuid=row["uuid"], server_id=int(row["id"]), version=row["version"], gtid_set=gtid_set
        )

    def has_gtids(self, stored: StoredPosition, now: Identity) -> bool:
        """Tell whether the server has all transactions that the record's identity lists."""
        return self.flavour.has_gtids(self.query, stored.identity.gtid_set, now.gtid_set)

    def grants(self) -> list[str]:
        """Return the lines of SHOW GRANTS, those of the roles in force included."""
        return self.flavour.grants(self.query)


class Cascades:
    """The actions of foreign keys, and whether the server logs the rows that they change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def children(self, names: Collection[TableName]) -> list[TableName]:
        """Return those of `names` that have foreign keys whose actions might not be logged."""
        if not names or self.logged():
            return []
        rows = self._catalog.query(
            "SELECT DISTINCT table_schema AS db, table_name AS name FROM information_schema.key_column_usage "
            "WHERE referenced_table_name IS NOT NULL AND table_schema IN %s",
            [tuple({db for db, _ in names})],
        )
        return [name for row in rows if (name := (row["db"], row["name"])) in names]

    def unlogged(self, name: TableName) -> str | None:
        """Return why a table's rows may change without an event of their own (a foreign key's action); None: they cannot."""
        if self.logged():
            return None
        try:
            cascades = cascading_foreign_keys(self._catalog.connection, *name)
        except SchemaError as error:
            return str(error)
        if not cascades:
            return None
        native = "set innodb_native_foreign_keys = OFF and restart the server, " if self._could_log() else ""
        return (
            f"table {name[0]}.{name[1]} has foreign keys whose actions this server does not log "
            f"({'; '.join(cascades)}): {native}use NO ACTION and change the child rows in the application, or exclude the table"
        )

    def logged(self) -> bool:
        """Tell whether the server logs the rows that a foreign key's action changes."""
        if not self._could_log():
            return False
        return self._catalog.variables().get("innodb_native_foreign_keys", "OFF").upper() in ("OFF", "0")

    def _could_log(self) -> bool:
        since = self._catalog.flavour.logs_cascades_from
        if since is None:
            return False
        version = self._catalog.query("SELECT VERSION() AS v")[0]["v"]
        return tuple(int(part) for part in version.split("-")[0].split(".")[:2]) >= since


def open_catalog(source: SourceConfig, place: tuple[str, str] | None = None) -> Catalog:
    """Connect; `place`: see Catalog. Raises pymysql errors."""
    own = place if source.topics == "table" else None
    return Catalog(open_connection(**connect_settings(source)), flavour_of(source), place=own)
