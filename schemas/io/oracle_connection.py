"""Connections to Oracle (python-oracledb in thin mode, without an installed client), with the session
state in which values keep their meaning.

All code that reads or writes values of an Oracle (capture, snapshot, apply, verify) connects through
this module. The result is a DB-API connection; in its rows NUMBER is a Decimal, a LOB its whole content
(str or bytes), and a value with a time zone is in UTC, without the zone.
"""

from __future__ import annotations

import ssl
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from schemas.config.secrets import add_secret_place
from schemas.errors import ServerConnectError
from schemas.io.certificates import OwnCertificate, explain_refused_certificate, probe_expiry
from schemas.io.endpoints import explain_wrong_service
from schemas.io.refused_logins import CORRECT_LOGIN, REFUSED_LOGINS

if TYPE_CHECKING:
    from oracledb import Connection
    from pydantic import SecretStr

    from schemas.config.model import TlsConfig

#: Its name for people, as `explain_wrong_service` expects it.
ORACLE_LISTENER = "an Oracle listener"
CONNECT_S = 10.0
#: Minutes after which the driver checks whether a silent server still exists.
PROBE_MIN = 1
#: Instants are shown and read in UTC; texts of numbers and dates have one form, if a statement makes
#: any.
ORACLE_SESSION_SQL = (
    "ALTER SESSION SET TIME_ZONE = '+00:00' NLS_NUMERIC_CHARACTERS = '.,' NLS_DATE_FORMAT = 'YYYY-MM-DD "
    "HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF' NLS_SORT = BINARY NLS_COMP = BINARY"
)
_REFUSED_USER = "ORA-01017"
#: From memory, except for the driver's own texts (DPY); to be verified by `make test-oracle`.
_REMEDIES: dict[str, str] = {
    _REFUSED_USER: CORRECT_LOGIN,
    "ORA-01005": "give the password in the configuration",
    "ORA-28000": "the account is locked: ALTER USER … ACCOUNT UNLOCK",
    "ORA-28001": "the password has expired: ALTER USER … IDENTIFIED BY …",
    "ORA-01045": "the user may not log in: GRANT CREATE SESSION TO the user",
    "ORA-12514": "the listener does not know the service: correct `database` (a service "
    "name, see `lsnrctl services`)",
    "ORA-12505": "the listener does not know the service: correct `database` (a service name, not a SID)",
    "DPY-6001": "the listener does not know the service: correct `database` (a service "
    "name, see `lsnrctl services`)",
    "DPY-6003": "the listener does not know the service: correct `database` (a service name, not a SID)",
    "DPY-3001": "the server wants native network encryption, which needs an Oracle client: let the server "
    "accept TLS (tcps), or connections without it (SQLNET.ENCRYPTION_SERVER = ACCEPTED)",
    "DPY-3010": "the driver needs Oracle 12.1 or later",
    "DPY-3015": "the user's password has a verifier of Oracle 10 only: set the password again",
    "DPY-6005": "nothing answers there: check host and port, and whether the listener runs",
}
_UNREACHABLE = "DPY-6005"
#: A retry may help: the instance starts or stops, or has no room for another session.
_TRANSIENT = frozenset({
    _UNREACHABLE, "DPY-4011", "DPY-6000", "ORA-00018", "ORA-00020", "ORA-01033", "ORA-01034", "ORA-01089",
    "ORA-01109", "ORA-03113", "ORA-03114", "ORA-12516", "ORA-12519", "ORA-12520", "ORA-12528", "ORA-12537",
    "ORA-12541", "ORA-12547",
})  # fmt: skip


class OracleServer(Protocol):
    """A server in the configuration. `database`: the service name."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def user(self) -> str: ...
    @property
    def password(self) -> SecretStr: ...
    @property
    def database(self) -> str: ...
    @property
    def tls(self) -> TlsConfig | None: ...


def open_oracle(config: OracleServer, *, program: str = "rowlock") -> Connection:
    """Open a connection, not in autocommit mode. `program`: its name in V$SESSION.

    Raises ServerConnectError with the remedy.
    """
    import oracledb

    password = config.password.get_secret_value()
    try:
        with REFUSED_LOGINS.try_login(config.host, config.port, config.user, password, _is_refused_user):
            made = oracledb.connect(
                user=config.user, password=password, host=config.host, port=config.port,
                service_name=config.database, tcp_connect_timeout=CONNECT_S, expire_time=PROBE_MIN,
                program=program[:48], **build_oracle_tls_arguments(config.tls),
            )  # fmt: skip
        made.outputtypehandler = _choose_fetch_type
        with made.cursor() as cursor:
            cursor.execute(ORACLE_SESSION_SQL)
    except oracledb.Error as error:
        raise _explain_connect_error(error, config) from error
    return made


def _is_refused_user(error: Exception) -> bool:
    return get_oracle_error_code(error) == _REFUSED_USER


def build_oracle_tls_arguments(tls: TlsConfig | None) -> dict[str, Any]:
    """Return the driver's arguments for TLS settings: an SSL context of Python, so that no wallet is
    needed.
    """
    if tls is None:
        return {}
    context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
    context.check_hostname = False  # the driver compares names itself, by Oracle's rules
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        context.load_cert_chain(str(tls.cert), str(tls.key) if tls.key else None)
    return {"protocol": "tcps", "ssl_context": context, "ssl_server_dn_match": tls.verify == "full"}


def read_oracle_expiry(config: OracleServer) -> datetime | None:
    """Return when the certificate expires that the server presents, over another connection: the driver does
    not show it. None: without TLS. Raises OSError.
    """
    if config.tls is None:
        return None
    return probe_expiry(config.host, config.port, OwnCertificate(config.tls.cert, config.tls.key))


def get_oracle_error_code(error: Exception) -> str:
    """Return the code "ORA-00001" or "DPY-4011" of a driver's error; "": it has none."""
    return str(getattr(error.args[0], "full_code", "")) if error.args else ""


def format_oracle_error(error: Exception) -> str:
    """Return the server's message in one line, without its code and the driver's pointer to a help page."""
    message = str(getattr(error.args[0], "message", error.args[0])) if error.args else str(error)
    text = " ".join(message.partition("Help:")[0].split())
    return text.removeprefix(f"{get_oracle_error_code(error)}: ")


def _choose_fetch_type(cursor: Any, metadata: Any) -> Any:
    """Return the fetch type of a column: numbers exactly, and LOBs whole, in the same round trip."""
    from decimal import Decimal

    import oracledb

    if metadata.type_code is oracledb.DB_TYPE_NUMBER:
        return cursor.var(Decimal, arraysize=cursor.arraysize)
    whole = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }.get(metadata.type_code)
    return None if whole is None else cursor.var(whole, arraysize=cursor.arraysize)


def _explain_connect_error(error: Exception, config: OracleServer) -> ServerConnectError:
    code = get_oracle_error_code(error)
    certificate = explain_refused_certificate(error)
    remedy = certificate or add_secret_place(_REMEDIES.get(code, "see the server's message"), config.password)
    if not certificate and (code == _UNREACHABLE or not code):
        remedy = explain_wrong_service(config.host, config.port, ORACLE_LISTENER) or remedy
    where = f"{config.user}@{config.host}:{config.port}/{config.database}"
    return ServerConnectError(
        f"cannot connect to Oracle as {where}: {format_oracle_error(error)} ({code or type(error).__name__})",
        remedy,
        transient=code in _TRANSIENT and not certificate,
    )
