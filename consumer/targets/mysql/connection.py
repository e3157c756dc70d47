"""The connection to MySQL, MariaDB and TDSQL (PyMySQL), and the one place that translates its errors.

What differs between the servers is data in `Flavour`. Sessions run READ COMMITTED (fewer gap locks, so fewer
deadlocks between lanes) and count matched rows, not changed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import DictCursor

from consumer.errors import (
    UNDO,
    CommitUnknownError,
    ConsumerError,
    MissingGrantError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.checks.table_facts import Remark
from consumer.targets.dialect_components import Rows
from consumer.targets.mysql.errors import (
    COMMIT_UNKNOWN,
    CONNECTION_LOST,
    DENIED,
    ENTRY,
    code_of,
    kind_of,
    remedy_for,
)
from consumer.targets.mysql.rights import account_of, grant_for, grant_to_connect
from consumer.targets.mysql.values import literal
from consumer.targets.sql import Fragment, Params
from schemas.errors import ServerConnectError
from schemas.io.mysql_connection import connect_mysql

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from schemas.config.model import TargetConfig

LOCK_WAIT_S = 10
"""For locks of rows and, LOCK TABLES and ALTER TABLE, of tables: the servers' own patience with the latter is a day and more."""
#: A statement of a dead server ends after this. None of ours comes near it but a change of a table (altering.STATEMENT_S).
READ_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Flavour:
    """The differences between the servers of this protocol, as data.

    `blockers`: query for the connections that hold locks for which connection %s waits; `grant`: what it needs.
    `kill`: the right to end connections of other users.
    `settings`: session settings beyond the common ones. `foreign`: InnoDB's own table of foreign keys. `whole_texts`: a unique index may be
    one over a TEXT or BLOB without a length.
    """

    product: str
    blockers: str
    grant: str
    kill: str
    foreign: str
    settings: tuple[str, ...] = ()
    whole_texts: bool = False


# quoted, so that a refusal (which names the table alone) can be told by the statement
_DATA_LOCK_WAITS = """
SELECT DISTINCT b.PROCESSLIST_ID FROM `performance_schema`.`data_lock_waits` w
JOIN `performance_schema`.`threads` r ON r.THREAD_ID = w.REQUESTING_THREAD_ID
JOIN `performance_schema`.`threads` b ON b.THREAD_ID = w.BLOCKING_THREAD_ID
WHERE r.PROCESSLIST_ID = %s AND b.PROCESSLIST_ID IS NOT NULL"""
_INNODB_LOCK_WAITS = """
SELECT DISTINCT b.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w
JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id
JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
WHERE r.trx_mysql_thread_id = %s AND b.trx_mysql_thread_id <> 0"""

FLAVOURS = {
    "mysql": Flavour(
        "MySQL", _DATA_LOCK_WAITS, "SELECT ON performance_schema.*", "CONNECTION_ADMIN", "INNODB_FOREIGN"
    ),
    "mariadb": Flavour(
        "MariaDB",
        _INNODB_LOCK_WAITS,
        "PROCESS ON *.*",
        "CONNECTION ADMIN",
        "INNODB_SYS_FOREIGN",
        # long IN lists stay index ranges; a paused worker's open transaction is ended by the server
        ("in_predicate_conversion_threshold = 0", "idle_transaction_timeout = 120"),
        whole_texts=True,
    ),
}


class MySqlLink:
    """A `session.Link` over PyMySQL."""

    def __init__(self, target: TargetConfig, flavour: Flavour, name: str) -> None:
        self._target = target
        self._flavour = flavour
        self._name = name
        self._raw: Connection[Any] | None = None
        self._affected = 0
        self._lock_wait_s: float = LOCK_WAIT_S
        self.max_packet = 0
        self.account = ""

    @property
    def raw(self) -> Connection[Any]:
        if self._raw is None or not self._raw.open:
            raise TransientError(f"the connection to {self._where()} is lost")
        return self._raw

    @property
    def affected(self) -> int:
        return self._affected

    def _where(self) -> str:
        return f"{self._flavour.product} at {self._target.host}:{self._target.port}/{self._target.database}"

    def connect(self) -> None:
        if self._raw is not None and self._raw.open:
            return
        target = self._target
        try:
            self._raw = connect_mysql(
                target.host, target.port, target.user, target.password.get_secret_value(), target.database,
                read_timeout=READ_TIMEOUT_S, write_timeout=READ_TIMEOUT_S, program_name=self._name[:63],
                **tls_arguments(target),
            )  # fmt: skip
        except ServerConnectError as error:
            if grant := grant_to_connect(str(error)):
                raise MissingGrantError(str(error), grant) from error
            raise (TransientError if error.transient else TargetConfigError)(str(error)) from error
        self._prepare()

    def _prepare(self) -> None:
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", [])
        settings = (
            f"innodb_lock_wait_timeout = {LOCK_WAIT_S}",
            f"lock_wait_timeout = {LOCK_WAIT_S}",
            *self._flavour.settings,
        )
        self.execute(f"SET SESSION {', '.join(settings)}", [])
        self._lock_wait_s = LOCK_WAIT_S
        [(packet, account)] = self.execute("SELECT @@max_allowed_packet, CURRENT_USER()", [])
        self.max_packet, self.account = int(str(packet)), account_of(str(account))

    def durability(self) -> Remark | None:
        """Unlike elsewhere, this setting is the server's: a session cannot see to it by itself."""
        flush = int(str(self.execute("SELECT @@innodb_flush_log_at_trx_commit", [])[0][0]))
        if flush == 1:
            return None
        lost = "of the server's machine" if flush == 2 else "of the server"
        return Remark(
            f"innodb_flush_log_at_trx_commit is {flush}: a crash {lost} takes back commits of about a second that readers "
            "have seen. rowlock applies them again, but rows are seen going back",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            level="warning",
        )

    def begin(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        wanted = lock_wait_s or LOCK_WAIT_S
        if wanted != self._lock_wait_s:
            self.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(wanted))}", [])
            self._lock_wait_s = wanted
        self.execute("BEGIN", [])
        return self.execute(text, params)

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        (text, params), *others = fragments
        return [self.begin(None, text, params), *(self.execute(*fragment) for fragment in others)]

    def execute(self, text: str, params: Params) -> Rows:
        return self.send(self.mogrify(text, params))

    def mogrify(self, text: str, params: Params) -> str:
        """Return the statement with its values as the driver escapes them."""
        return text % tuple(literal(value) for value in params)

    def send(self, text: str) -> Rows:
        """Run a finished statement."""
        with self.translated(text), self.raw.cursor() as cursor:
            self._affected = cursor.execute(text)
            return list(cursor.fetchall())

    def select_whole(self, text: str) -> list[dict[str, object]]:
        """Run a finished SELECT; rows by column name."""
        with self.translated(text), self.raw.cursor(DictCursor) as cursor:
            cursor.execute(text)
            return [dict(row) for row in cursor.fetchall()]

    def commit(self) -> None:
        try:
            self.raw.commit()
        except pymysql.MySQLError as error:
            if code_of(error) in COMMIT_UNKNOWN:
                self.close()
                raise CommitUnknownError(f"{self._where()} did not answer COMMIT: {error}") from error
            raise self._error(error) from error

    def rollback(self) -> None:
        if self._raw is None or not self._raw.open:
            return
        try:
            self._raw.rollback()
        except pymysql.MySQLError:  # the server rolls back when the connection ends
            self.close()

    def identity(self) -> int:
        return int(self.raw.thread_id())  # type: ignore[no-untyped-call]

    def end_blockers_of(self, identity: int) -> list[int]:
        try:
            found = [int(str(row[0])) for row in self.execute(self._flavour.blockers, [identity])]
        except MissingGrantError as error:
            raise MissingGrantError(
                f"{error.seen}: to end a dead worker's connection rowlock must see who holds a lock",
                f"GRANT {self._flavour.grant} TO {self.account};",
            ) from error
        return [each for each in found if self.kill(each)]

    def kill(self, connection: int) -> bool:
        """End a connection; tell whether it was there."""
        try:
            self.execute(f"KILL {connection:d}", [])
        except TransientError:  # it ended by itself
            return False
        except MissingGrantError as error:
            raise MissingGrantError(f"{error.seen}: {_foreign(connection)}", error.statement) from error
        except TargetConfigError as error:  # 1095, which does not say what right would do
            statement = f"GRANT {self._flavour.kill} ON *.* TO {self.account};"
            raise MissingGrantError(f"{error}: {_foreign(connection)}", statement) from error
        return True

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
            except pymysql.MySQLError:  # the QUIT did not get through: the socket is closed all the same
                raw._force_close()  # type: ignore[attr-defined]

    @contextmanager
    def translated(self, statement: str = "") -> Iterator[None]:
        """Translate PyMySQL's errors: the only place where they are looked at, COMMIT aside."""
        try:
            yield
        except pymysql.MySQLError as error:
            raise self._error(error, statement) from error

    def _error(self, error: pymysql.MySQLError, statement: str = "") -> ConsumerError:
        code = code_of(error)
        if code in CONNECTION_LOST:
            self.close()
        text = error.args[-1] if error.args else error
        said = ENTRY.sub("Duplicate entry for key", " ".join(str(text).split()))
        message = f"{self._where()}: {said} ({code or type(error).__name__})"
        if code in DENIED and (grant := grant_for(str(text), self.account, statement)):
            return MissingGrantError(message, grant)
        kind = kind_of(error)
        remedy = remedy_for(code, said) or (UNDO if issubclass(kind, TargetConfigError) else "")
        return kind(message + (f": {remedy}" if remedy else ""))


def tls_arguments(target: TargetConfig) -> dict[str, Any]:
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


def _foreign(connection: int) -> str:
    return f"connection {connection} of another user is in the way (let all workers of a target use one user)"
