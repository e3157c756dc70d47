"""A source with a binlog as it is asked: its session, its server's state (log, identity, variables, grants), and its tables."""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from producer.flavours.flavour import BinlogFlavour
from producer.flavours.known import get_flavour
from producer.sources.server_state import ServerState
from producer.sources.source_session import SourceSession, connect_settings
from producer.sources.table_catalog import TableCatalog
from schemas.config.model import SourceConfig
from schemas.io.mysql_connection import open_connection


class Catalog:
    """`session`: the one connection over which all is asked; `server` and `tables`: what is asked. All raise pymysql errors."""

    def __init__(self, connection: Connection[Any], flavour: BinlogFlavour) -> None:
        self.session = SourceSession(connection, flavour)
        self.server = ServerState(self.session)
        self.tables = TableCatalog(self.session, self.server)

    def close(self) -> None:
        self.session.close()


def open_catalog(source: SourceConfig) -> Catalog:
    """Connect. Raises pymysql errors."""
    return Catalog(open_connection(**connect_settings(source)), get_flavour(source))
