"""Connections to MySQL and MariaDB, with the session state in which values keep their meaning.

Every reader and writer of values (snapshot, verify, apply) connects through this module; a pooled
connection of another origin must run MYSQL_SESSION_SQL first.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from schemas.config.secrets import add_secret_place
from schemas.errors import ServerConnectError, UnsupportedServerError
from schemas.io.certificates import explain_refused_certificate
from schemas.io.endpoints import MYSQL_SERVER, explain_wrong_service
from schemas.io.refused_logins import CORRECT_LOGIN, REFUSED_LOGINS
from schemas.io.server_errors import (
    OLDEST_SOURCES,
    OldestVersions,
    explain_mysql_version_refusal,
    note_read,
)

if TYPE_CHECKING:
    import ssl

    from pydantic import SecretStr
    from pymysql.connections import Connection

    from schemas.config.model import SourceConfig

#: Strict, so that a value is never truncated silently; zero and invalid dates are stored as they are
#: (no NO_ZERO_DATE, ALLOW_INVALID_DATES); 0 written to an AUTO_INCREMENT column stays 0; backslashes
#: escape, as PyMySQL writes them.
SQL_MODE = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
#: Bytes of a text that GROUP_CONCAT makes, if max_allowed_packet is no less: many more than keys of one page
#: have (schemas.values.packed).
PACKED_BYTES = 1 << 24
#: TIMESTAMP is an instant: shown and read in UTC.
MYSQL_SESSION_SQL = (
    f"SET SESSION time_zone = '+00:00', sql_mode = '{SQL_MODE}', group_concat_max_len = {PACKED_BYTES}"
)

#: Seconds that a server may take for each of its answers while a connection is made.
HANDSHAKE_S = 10
#: Seconds that a source may take for an answer: only its catalog and pages of rows are read here.
MYSQL_READ_TIMEOUT_S = 60
_LOST = 2013
_UNREACHABLE = frozenset({2002, 2003, 2006, 2013})
#: The server refuses user or password.
REFUSED_USER = frozenset({1045, 1698})
#: The account is locked; MySQL and MariaDB.
_LOCKED_USER = frozenset({3118, 4151})
_REMEDIES: dict[int, str] = {
    1044: "the user may not use this database: GRANT it",
    **dict.fromkeys(REFUSED_USER, CORRECT_LOGIN),
    **dict.fromkeys(_LOCKED_USER, "the account is locked: find out why, then ALTER USER … ACCOUNT UNLOCK"),
    1049: "the database does not exist: create it, or correct its name in the configuration",
    1040: "the server has no free connection: raise max_connections, or use fewer lanes",
    1129: "the server blocks this host after connection errors: run FLUSH HOSTS there",
    1130: "the server does not allow connections from this host: change the user's host part",
    1203: "the user has no free connection: raise max_user_connections, or use fewer lanes",
    **dict.fromkeys(_UNREACHABLE, "nothing answers there: check host and port, and whether the server runs"),
}
_TRANSIENT = _UNREACHABLE | {1040, 1053, 1203}


def connect_mysql(
    host: str,
    port: int,
    user: str,
    password: str | SecretStr,
    database: str | None = None,
    *,
    autocommit: bool = True,
    connect_timeout: int = 10,
    **options: Any,
) -> Connection[Any]:
    """Open a connection: utf8mb4, MYSQL_SESSION_SQL, affected rows = rows found (CLIENT.FOUND_ROWS).

    `options` go to open_connection (oldest, and those of pymysql.connect: read_timeout, ssl, …). Raises
    ServerConnectError with the remedy, which names the place of a refused `password` of the configuration.
    """
    import pymysql
    from pymysql.constants import CLIENT

    text = password if isinstance(password, str) else password.get_secret_value()
    flags = CLIENT.FOUND_ROWS | int(options.pop("client_flag", 0))
    try:
        return open_connection(
            host=host, port=port, user=user, password=text, database=database, charset="utf8mb4",
            autocommit=autocommit, connect_timeout=connect_timeout, client_flag=flags,
            init_command=MYSQL_SESSION_SQL, **options,
        )  # fmt: skip
    except (
        pymysql.MySQLError,
        RuntimeError,
        OSError,
    ) as error:  # a package for the log-in or a file of TLS is missing
        raise _explain_connect_error(error, user, host, port, password) from error


def open_connection(*, oldest: OldestVersions = OLDEST_SOURCES, **settings: Any) -> Connection[Any]:
    """Call pymysql.connect with `settings`; each answer of the handshake is limited to HANDSHAKE_S, or
    less by `read_timeout`.

    `oldest`: earlier servers are refused. Raises pymysql errors, whatever service answers there, and
    UnsupportedServerError.
    """
    import pymysql

    allowed = settings.get("read_timeout")
    limit = HANDSHAKE_S if allowed is None else min(HANDSHAKE_S, allowed)
    login = (settings["host"], settings["port"], settings["user"], settings["password"])
    try:
        with REFUSED_LOGINS.try_login(*login, _is_refused_user):
            made: Any = _make_connection_class()(**{**settings, "read_timeout": limit})
    except (struct.error, ValueError, IndexError) as error:  # the service is not MySQL
        raise pymysql.err.OperationalError(_LOST, f"the handshake cannot be read: {error}") from error
    made._read_timeout = allowed  # PyMySQL sets it on the socket before each read
    opened: Connection[Any] = made
    _require_supported(opened, oldest)
    return opened


def _is_refused_user(error: Exception) -> bool:
    return bool(error.args) and error.args[0] in REFUSED_USER | _LOCKED_USER


def _require_supported(connection: Connection[Any], oldest: OldestVersions) -> None:
    """Close the connection and raise UnsupportedServerError if the server is too old.

    A proxy may greet with its own version, so VERSION() decides if the handshake's version is too old.
    """
    greeting = str(connection.get_server_info())  # type: ignore[no-untyped-call]
    if explain_mysql_version_refusal(greeting, oldest) is None:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        found = cursor.fetchone()
    version = next(iter(found.values() if isinstance(found, dict) else found or ("",)))
    if (refused := explain_mysql_version_refusal(str(version), oldest)) is not None:
        connection.close()
        raise UnsupportedServerError(f"{connection.host}:{connection.port} {refused.what}", refused.remedy)


@functools.cache
def _make_connection_class() -> type[Connection[Any]]:
    """Return PyMySQL's connection class with two changes.

    Without TLS settings it encrypts if the server can and verifies nothing, with one TLS context for
    all such connections; unchanged it would read all certificates of the machine for each connection,
    some 40 ms, and then trust none of them. And an error has a note of what its statement read
    (schemas.io.server_errors).
    """
    import ssl

    import pymysql
    from pymysql.connections import Connection

    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE

    class _RowlockConnection(Connection):
        def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
            own: Any = super()
            made: ssl.SSLContext = own._create_ssl_ctx(sslp) if sslp else unverified
            return made

        def query(self, sql: Any, unbuffered: bool = False) -> int:
            try:
                return int(super().query(sql, unbuffered))
            except pymysql.MySQLError as error:
                note_read(error, sql)
                raise

    return _RowlockConnection


def connect_source(source: SourceConfig) -> Connection[Any]:
    """Open a connection to a source of the configuration: of several servers to one that accepts writes, or
    else to any that answers. Raises ServerConnectError with the remedy.
    """
    if not source.hosts:
        return _connect_source_server(source)
    opened: list[Connection[Any]] = []
    failed: ServerConnectError | None = None
    for server in source.list_servers():
        try:
            opened.append(_connect_source_server(server))
        except ServerConnectError as error:
            failed = failed or error
    if not opened:
        raise failed or ValueError("a source without servers")
    chosen = next(filter(_is_writable, opened), opened[0])
    for each in opened:
        if each is not chosen:
            each.close()
    return chosen


def _is_writable(connection: Connection[Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only")
        row: Any = cursor.fetchone()
    return not int(next(iter(row.values() if isinstance(row, dict) else row)))


def _connect_source_server(source: SourceConfig) -> Connection[Any]:
    return connect_mysql(
        source.host, source.port, source.user, source.password,
        read_timeout=MYSQL_READ_TIMEOUT_S, write_timeout=MYSQL_READ_TIMEOUT_S,
        **build_mysql_tls_options(source),
    )  # fmt: skip


def build_mysql_tls_options(source: SourceConfig) -> dict[str, Any]:
    """Return PyMySQL's options for the source's TLS settings."""
    if source.tls is None:
        return {}
    tls = source.tls
    files = {"ssl_ca": tls.ca, "ssl_cert": tls.cert, "ssl_key": tls.key}
    options: dict[str, Any] = {option: str(file) for option, file in files.items() if file is not None}
    return {
        **options,
        "ssl_verify_cert": tls.verify != "none",
        "ssl_verify_identity": tls.verify == "full",
        "ssl": {},
    }


def _explain_connect_error(
    error: Exception, user: str, host: str, port: int, password: str | SecretStr
) -> ServerConnectError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    certificate = explain_refused_certificate(error)
    remedy = certificate or _REMEDIES.get(code, "see the server's message")
    if code in REFUSED_USER:
        remedy = add_secret_place(remedy, password)
    if not certificate and (code in _UNREACHABLE or not code):
        remedy = explain_wrong_service(host, port, MYSQL_SERVER) or remedy
    return ServerConnectError(
        f"cannot connect to the database as {user}@{host}:{port}: "
        f"{error.args[-1] if error.args else error} ({code})",
        remedy,
        transient=code in _TRANSIENT and not certificate,
    )
