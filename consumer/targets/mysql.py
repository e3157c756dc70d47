"""MySQL, MariaDB and TDSQL as targets: the connection (PyMySQL), and the one place that translates its errors.

What differs between the servers is data in `Flavour`. Sessions run READ COMMITTED (fewer gap locks, so fewer
deadlocks between lanes) and count matched rows, not changed ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import DictCursor

from consumer.errors import (
    UNDO,
    CommitUnknownError,
    ConsumerError,
    MissingGrantError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets.bookkeeping import Books
from consumer.targets.dialect import Dialect
from consumer.targets.inspection import tls_arguments
from consumer.targets.mysql_apply import MySqlApplier
from consumer.targets.mysql_catalogue import MySqlCatalogue
from consumer.targets.mysql_rights import account_of, grant_for, grant_to_connect
from consumer.targets.mysql_sql import quote
from consumer.targets.mysql_values import literal
from consumer.targets.parts import Parts, Rows
from consumer.targets.session import SqlSession
from consumer.targets.sql import Fragment, Params
from schemas.errors import ServerConnectError
from schemas.mysql_connect import connect_mysql

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from schemas.config import TargetConfig

SQLALCHEMY_DRIVER = "mysql+pymysql"
LOCK_WAIT_S = 10
"""For locks of rows and, LOCK TABLES and ALTER TABLE, of tables: the servers' own patience with the latter is a day and more."""
#: A statement of a dead server ends after this; no statement of ours comes near it.
READ_TIMEOUT_S = 300

_BIN = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_TYPES = {
    "name": f"VARCHAR(100) {_BIN} NOT NULL",
    "topic": f"VARCHAR(249) {_BIN} NOT NULL",
    "int": "INT NOT NULL",
    "big": "BIGINT NOT NULL",
    "text": "LONGTEXT NOT NULL",
    "text?": "LONGTEXT NULL",
    "now": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
    "id": "BIGINT NOT NULL AUTO_INCREMENT",
}
_SUFFIX = f" ENGINE=InnoDB DEFAULT {_BIN}"


@dataclass(frozen=True, slots=True)
class Flavour:
    """What differs between the servers of this protocol.

    `blockers`: query for the connections that hold locks for which connection %s waits; `grant`: what it needs.
    `kill`: the right to end connections of other users.
    `settings`: session settings beyond the common ones. `foreign`: InnoDB's own table of foreign keys.
    """

    product: str
    blockers: str
    grant: str
    kill: str
    foreign: str
    settings: tuple[str, ...] = ()


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
    ),
}

_CONNECTION_LOST = frozenset(
    {0, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
#: Errors during COMMIT after which only the progress row can tell.
_COMMIT_UNKNOWN = _CONNECTION_LOST | {1180, 1317, 3024}
_UNIQUE = frozenset({1062, 1169, 1586})
#: 1095: KILL of another user's connection.
_CONFIG = frozenset({
    1044, 1045, 1049, 1054, 1064, 1095, 1109, 1142, 1143, 1146, 1227, 1305, 1370, 1698, 1103, 1115, 1273, 3730,
    1031, 1036, 1288, 1348, 1471, 1906, 3105,  # views, tables that cannot be written, generated columns
})  # fmt: skip
_REFUSED = frozenset({
    1048, 1138, 1118, 1136, 1153, 1216, 1217, 1263, 1264, 1265, 1292, 1300, 1364, 1365, 1366, 1367, 1406, 1411,
    1416, 1425, 1426, 1439, 1441, 1451, 1452, 1526, 1644, 1690, 1748, 3032, 3036, 3037, 3140, 3141, 3143, 3146,
    3156, 3617, 3643, 3819, 3903, 4025, 4078,
})  # fmt: skip
#: Deadlock, lock wait, changed since read, read-only server (failover), disk full, too many connections, interrupted.
_TRANSIENT = frozenset({1020, 1021, 1040, 1114, 1203, 1205, 1213, 1226, 1290, 1317, 1836, 3024, 3572})
_CLASSES: dict[str, type[ConsumerError]] = {"22": RefusedError, "23": RefusedError, "42": TargetConfigError}
#: A right is missing: on a database, table, column or routine, or one of the server.
_DENIED = frozenset({1044, 1142, 1143, 1227, 1370})
#: It would show values of a row.
_ENTRY = re.compile(r"Duplicate entry '.*' for key")
_REMEDIES = {
    **dict.fromkeys(
        _DENIED,
        "give the user the right that it lacks, `rowlock check` prints the GRANT (docs/how-to/target-setup.md)",
    ),
    1146: "create the table, or let rowlock create it (create_tables)",
    **dict.fromkeys(
        (1906, 3105), "make the generated column an ordinary one, for its values come from the source"
    ),
    1054: "add the column to the target table, or leave it out of the route",
    1153: "raise max_allowed_packet of the target",
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
                **tls_arguments(target, SQLALCHEMY_DRIVER),
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

    def durability(self) -> str | None:
        """Unlike PostgreSQL's, this setting is the server's: a session cannot see to it by itself."""
        flush = int(str(self.execute("SELECT @@innodb_flush_log_at_trx_commit", [])[0][0]))
        if flush == 1:
            return None
        lost = "of the server's machine" if flush == 2 else "of the server"
        return (
            f"innodb_flush_log_at_trx_commit is {flush}: a crash {lost} takes back commits of about a second that readers "
            "have seen. rowlock applies them again, but rows are seen going back"
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
            if _code(error) in _COMMIT_UNKNOWN:
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
        return [each for each in found if self._kill(each)]

    def _kill(self, connection: int) -> bool:
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
        code = _code(error)
        if code in _CONNECTION_LOST:
            self.close()
        text = error.args[-1] if error.args else error
        said = _ENTRY.sub("Duplicate entry for key", " ".join(str(text).split()))
        message = f"{self._where()}: {said} ({code or type(error).__name__})"
        if code in _DENIED and (grant := grant_for(str(text), self.account, statement)):
            return MissingGrantError(message, grant)
        kind = _kind(error)
        remedy = _REMEDIES.get(code, UNDO if issubclass(kind, TargetConfigError) else "")
        return kind(message + (f": {remedy}" if remedy else ""))


def _foreign(connection: int) -> str:
    return f"connection {connection} of another user holds the progress rows (let all workers of a target use one user)"


def _code(error: pymysql.MySQLError) -> int:
    """Return the error number; 0 for the driver's own "connection is closed"."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _kind(error: pymysql.MySQLError) -> type[ConsumerError]:
    """By number, else by class of SQLSTATE. What neither knows is transient: retries are bounded, and a wrong
    "refused" would quarantine good rows."""
    code = _code(error)
    kinds: tuple[tuple[frozenset[int], type[ConsumerError]], ...] = (
        (_UNIQUE, UniqueViolationError),
        (_REFUSED, RefusedError),
        (_CONFIG, TargetConfigError),
        (_TRANSIENT | _CONNECTION_LOST, TransientError),
    )
    by_class = _CLASSES.get(str(getattr(error, "sqlstate", None))[:2], TransientError)
    return next((kind for codes, kind in kinds if code in codes), by_class)


def open_mysql(target: TargetConfig, name: str) -> SqlSession:
    """Return a connected session. Raises TransientError or TargetConfigError."""
    flavour = FLAVOURS[target.type]
    link = MySqlLink(target, flavour, name)
    books = Books(target.database, quote, _TYPES, _SUFFIX, "CAST(UNIX_TIMESTAMP({}) * 1000 AS SIGNED)")
    catalogue = MySqlCatalogue(target, link, flavour.foreign)
    return SqlSession(
        Parts(
            link=link,
            books=books,
            catalogue=catalogue,
            applier=MySqlApplier(link, books),
            fresh=partial(MySqlLink, target, flavour, f"{name} take-over"),
        )
    )


MYSQL = Dialect("mysql", open_mysql)
MARIADB = Dialect("mariadb", open_mysql)
