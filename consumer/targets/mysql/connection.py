"""The connection to MySQL and MariaDB (PyMySQL), the only place that handles its errors.

The differences between the servers are data in `Flavour`. Sessions run READ COMMITTED (fewer gap locks,
so fewer deadlocks between lanes) and count matched rows, not changed ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import DictCursor

from consumer.errors import (
    CommitUnknownError,
    ConsumerError,
    MissingGrantError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.dialect_components import Rows, SingleStatements
from consumer.targets.mysql.errors import (
    COMMIT_UNKNOWN,
    CONNECTION_LOST,
    DATABASE_REFUSED,
    build_consumer_error,
    get_error_code,
)
from consumer.targets.mysql.locks import (
    MARIADB_10_4_LOCKS,
    MARIADB_LOCKS,
    MYSQL_5_LOCKS,
    MYSQL_LOCKS,
    LockViews,
    MySqlLocks,
)
from consumer.targets.mysql.rights import grant_to_connect, parse_account
from consumer.targets.mysql.values import render_literal
from consumer.targets.silence import TARGET_CONNECT_S, limit_silence, mark_silence
from consumer.targets.sql import Fragment, Params
from schemas.errors import ServerConnectError
from schemas.io.certificates import read_peer_expiry
from schemas.io.mysql_connection import connect_mysql
from schemas.io.server_errors import OLDEST_TARGETS, parse_server_version

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from schemas.config.model import TargetConfig

LOCK_WAIT_S = 10
"""Seconds to wait for locks of rows and, for LOCK TABLES and ALTER TABLE, of tables; the servers'
default for the latter is a day or more.
"""
#: A statement on a dead server ends after this. Only changes of tables take long
#: (alterer.STATEMENT_S).
READ_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Flavour:
    """The differences between the servers of this protocol, as data."""

    product: str
    locks: LockViews
    """How the server shows locks."""
    foreign: str
    """InnoDB's own table of foreign keys."""
    settings: tuple[str, ...] = ()
    """Session settings beyond the common ones."""
    whole_texts: bool = False
    """Whether a unique index may be over values of any length."""
    key_parts: int = 16
    """The most columns of an index."""
    page_value_bytes: int = 40
    """See ServerLimits."""
    page_reference_bytes: int = 40
    """See ServerLimits."""
    since: tuple[int, ...] = ()
    """The first version that this is true of."""
    before: Flavour | None = None
    """What is true of the versions before `since`."""

    def choose_for(self, version: str) -> Flavour:
        """Return what is true of the server with this VERSION()."""
        if self.before is None or parse_server_version(version) >= self.since:
            return self
        return self.before.choose_for(version)


_MARIADB_10_2 = Flavour(
    "MariaDB",
    MARIADB_10_4_LOCKS,
    "INNODB_SYS_FOREIGN",
    key_parts=32,
    page_value_bytes=255,
    page_reference_bytes=20,
)
_MARIADB_10_4 = replace(
    _MARIADB_10_2,
    # long IN lists stay index ranges; a paused worker's open transaction is ended by the server
    settings=("in_predicate_conversion_threshold = 0", "idle_transaction_timeout = 120"),
    whole_texts=True,
    since=(10, 4, 8),
    before=_MARIADB_10_2,
)
FLAVOURS = {
    "mysql": Flavour(
        "MySQL",
        MYSQL_LOCKS,
        "INNODB_FOREIGN",
        since=(8, 0, 3),
        before=Flavour("MySQL", MYSQL_5_LOCKS, "INNODB_SYS_FOREIGN"),
    ),
    "mariadb": replace(_MARIADB_10_4, locks=MARIADB_LOCKS, since=(10, 5, 2), before=_MARIADB_10_4),
}
"""Of the newest versions, which lead to those of the earlier ones."""


class MySqlLink(SingleStatements):
    """A `consumer.targets.dialect_components.Link` over PyMySQL."""

    def __init__(self, target: TargetConfig, flavour: Flavour, name: str) -> None:
        self._target = target
        self._newest = self.flavour = flavour
        """Of the newest versions until `connect`, then of the server's."""
        self._name = name
        self._where = f"{flavour.product} at {target.host}:{target.port}/{target.database}"
        self._raw: Connection[Any] | None = None
        self.affected = 0
        self._lock_wait_s: float = LOCK_WAIT_S
        self.max_packet = 0
        self.account = ""

    @property
    def locks(self) -> MySqlLocks:
        return MySqlLocks(self, self.flavour.locks)

    @property
    def raw(self) -> Connection[Any]:
        if self._raw is None or not self._raw.open:
            raise TransientError(f"the connection to {self._where} is lost")
        return self._raw

    def connect(self) -> None:
        if self._raw is not None and self._raw.open:
            return
        target, began = self._target, time.monotonic()
        try:
            self._raw = connect_mysql(
                target.host, target.port, target.user, target.password, target.database,
                connect_timeout=TARGET_CONNECT_S, read_timeout=READ_TIMEOUT_S, write_timeout=READ_TIMEOUT_S,
                program_name=self._name[:63], oldest=OLDEST_TARGETS,
                **build_tls_arguments(target),
            )  # fmt: skip
        except ServerConnectError as error:
            cause = error.__cause__
            is_refused = isinstance(cause, pymysql.MySQLError) and get_error_code(cause) == DATABASE_REFUSED
            if is_refused and (grant := grant_to_connect(error.problem.what, target.user, target.database)):
                raise MissingGrantError(error.problem.what, grant) from error
            kind = TransientError if error.transient else TargetConfigError
            login = (target.host, target.port, target.user, target.password.get_secret_value())
            raise mark_silence(kind.from_problem(error.problem), began, login) from error
        try:
            self._prepare_session()
        except ConsumerError:
            self.close()
            raise

    def _prepare_session(self) -> None:
        limit_silence(self.raw._sock)  # type: ignore[attr-defined]
        [(packet, account, version)] = self.execute(
            "SELECT @@max_allowed_packet, CURRENT_USER(), VERSION()", []
        )
        self.max_packet, self.account = int(str(packet)), parse_account(str(account))
        self.flavour = self._newest.choose_for(str(version))
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", [])
        settings = (
            f"innodb_lock_wait_timeout = {LOCK_WAIT_S}",
            f"lock_wait_timeout = {LOCK_WAIT_S}",
            "lc_messages = 'en_US'",  # which right a message asks for is read from its English text
            *self.flavour.settings,
        )
        self.execute(f"SET SESSION {', '.join(settings)}", [])
        self._lock_wait_s = LOCK_WAIT_S

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        wait_s = lock_wait_s or LOCK_WAIT_S
        if wait_s != self._lock_wait_s:
            self.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(wait_s))}", [])
            self._lock_wait_s = wait_s
        self.execute("BEGIN", [])
        return self.execute(text, params)

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        (text, params), *others = fragments
        return [self.begin_transaction(None, text, params), *(self.execute(*fragment) for fragment in others)]

    def execute(self, text: str, params: Params) -> Rows:
        return self.send_statement(text % tuple(render_literal(value) for value in params))

    def send_statement(self, text: str) -> Rows:
        """Run a finished statement."""
        with self.translate_errors(text), self.raw.cursor() as cursor:
            self.affected = cursor.execute(text)
            return list(cursor.fetchall())

    def select_whole(self, text: str) -> list[dict[str, object]]:
        """Run a finished SELECT; return rows by column name."""
        with self.translate_errors(text), self.raw.cursor(DictCursor) as cursor:
            cursor.execute(text)
            return [dict(row) for row in cursor.fetchall()]

    def commit(self) -> None:
        try:
            self.raw.commit()
        except pymysql.MySQLError as error:
            if get_error_code(error) in COMMIT_UNKNOWN:
                self.close()
                raise CommitUnknownError(f"{self._where} did not answer COMMIT: {error}") from error
            raise build_consumer_error(error, self._where, self.account) from error

    def roll_back(self) -> None:
        if self._raw is None or not self._raw.open:
            return
        try:
            self._raw.rollback()
        except pymysql.MySQLError:  # the server rolls back when the connection ends
            self.close()

    def get_connection_id(self) -> int:
        return int(self.raw.thread_id())  # type: ignore[no-untyped-call]

    def read_certificate_expiry(self) -> datetime | None:
        stream: Any = self.raw
        return read_peer_expiry(stream._sock)

    def ping(self) -> bool:
        try:
            return self.execute("SELECT 1", []) == [(1,)]
        except ConsumerError:
            return False

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None and raw.open:
            try:
                raw.close()
            except pymysql.MySQLError:  # the QUIT failed: the socket is closed all the same
                raw._force_close()  # type: ignore[attr-defined]

    @contextmanager
    def translate_errors(self, statement: str = "") -> Iterator[None]:
        """Translate PyMySQL's errors; the only place that inspects them, except for COMMIT."""
        try:
            yield
        except pymysql.MySQLError as error:
            if get_error_code(error) in CONNECTION_LOST:
                self.close()
            raise build_consumer_error(error, self._where, self.account, statement) from error


def build_tls_arguments(target: TargetConfig) -> dict[str, Any]:
    """Return the driver's arguments for the target's TLS settings."""
    tls = target.tls
    if tls is None:
        return {}
    files = {"ssl_ca": tls.ca, "ssl_cert": tls.cert, "ssl_key": tls.key}
    return {
        "ssl_verify_cert": tls.verify != "none",
        "ssl_verify_identity": tls.verify == "full",
        **{key: str(file) for key, file in files.items() if file},
    }
