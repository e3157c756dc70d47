"""A connection to a source with a binlog, and its queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from producer.sources.binlog.flavour import BinlogFlavour
from schemas.config.model import SourceConfig
from schemas.io.mysql_connection import MYSQL_SESSION_SQL

_PARSE_ERROR = 1064


def connect_settings(source: SourceConfig) -> dict[str, Any]:
    """Return arguments for pymysql.connect that set the session variables on which the text of values
    and of SHOW statements depends.
    """
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
        "init_command": MYSQL_SESSION_SQL,
        **_build_tls_arguments(source),
    }


def _build_tls_arguments(source: SourceConfig) -> dict[str, Any]:
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


class SourceSession:
    """One connection (autocommit) to a server of the make `flavour`. Raises pymysql errors."""

    def __init__(self, connection: Connection[Any], flavour: BinlogFlavour) -> None:
        self.connection = connection
        self.flavour = flavour

    @property
    def alive(self) -> bool:
        """True if the server answers on this connection."""
        try:
            self.connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()

    def run_query(self, sql: str, arguments: Iterable[object] = ()) -> list[dict[str, Any]]:
        with closing(self.connection.cursor(DictCursor)) as cursor:
            cursor.execute(sql, tuple(arguments) or None)
            return list(cursor.fetchall())

    def run_first_known(self, statements: Sequence[str]) -> list[dict[str, Any]]:
        """Run the first of the statements that the server knows.

        They are equivalent, the newest form first.
        """
        for statement in statements[:-1]:
            try:
                return self.run_query(statement)
            except pymysql.err.ProgrammingError as error:
                if error.args[0] != _PARSE_ERROR:
                    raise
        return self.run_query(statements[-1])
