"""A connection to a source with a binlog: its session, its server's state (log, identity, variables,
grants), and its tables.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.server_state import ServerState
from producer.sources.source_session import SourceSession, connect_settings
from producer.sources.table_catalog import TableCatalog
from schemas.config.model import SourceConfig
from schemas.io.mysql_connection import open_connection
from schemas.table.left_out import ColumnsOption

BINLOG_FLAVOURS = {flavour.type: flavour for flavour in (MYSQL_FLAVOUR, MARIADB_FLAVOUR)}


def get_flavour(source: SourceConfig) -> BinlogFlavour:
    """Return the make of a source."""
    return BINLOG_FLAVOURS[source.type]


class Catalog:
    """One connection to a source, and the queries about its server and tables that use it. `columns`: the
    source's option.

    All raise pymysql errors.
    """

    def __init__(
        self, connection: Connection[Any], flavour: BinlogFlavour, columns: ColumnsOption | None = None
    ) -> None:
        self.session = SourceSession(connection, flavour)
        self.server = ServerState(self.session)
        self.tables = TableCatalog(self.session, self.server, columns)

    def close(self) -> None:
        self.session.close()


def open_catalog(source: SourceConfig) -> Catalog:
    """Return a catalog with a new connection. Raises pymysql errors."""
    connection = open_connection(**connect_settings(source))
    return Catalog(connection, get_flavour(source), source.left_out_columns)
