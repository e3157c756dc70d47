"""A connection to a source with a binlog, and its queries.

Errors of the driver become errors of capture here (`source_errors`). No other module translates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from producer.errors import CaptureError, SourceRefusedError, TransientSourceError
from producer.sources.binlog.flavour import BinlogFlavour
from schemas.config.model import SourceConfig
from schemas.errors import ServerConnectError
from schemas.findings import START_OVER
from schemas.io.certificates import explain_refused_certificate
from schemas.io.mysql_connection import MYSQL_SESSION_SQL
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error

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


_PURGED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: purged, or the position is not in the file
_TRANSIENT = frozenset(
    {1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1927, 2003, 2006, 2013, 2055, 4031}
)


@contextmanager
def source_errors() -> Iterator[None]:
    """Translate driver errors and refused connections to TransientSourceError or SourceRefusedError."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise _translate_mysql_error(error) from error
    except ServerConnectError as error:
        kind = TransientSourceError if error.transient else SourceRefusedError
        raise kind.from_problem(error.problem) from error


def _translate_mysql_error(error: pymysql.MySQLError) -> CaptureError:
    """Return the error of capture for a driver error: transient, or refused with a remedy."""
    code = error.args[0] if error.args else 0
    text = format_mysql_error(error)
    connecting = code in _TRANSIENT
    if connecting and (remedy := explain_refused_certificate(error)) is not None:
        return SourceRefusedError(f"a certificate is refused: {text}", remedy)
    if connecting or isinstance(error, pymysql.InterfaceError):
        return TransientSourceError(f"the source cannot be reached at the moment: {text}")
    if code == _PURGED:
        return SourceRefusedError(
            f"the source cannot continue the log at capture's position: {text}",
            f"if the log was purged, keep it longer (binlog_expire_logs_seconds), and {START_OVER}",
        )
    return SourceRefusedError(f"the source refuses capture: {text}", choose_mysql_remedy(error))
