"""The locks of MySQL and MariaDB: finds the holders of what a connection waits for, as far as the
servers show them, and ends connections.

MySQL shows the holder of a table's metadata lock in performance_schema. MariaDB shows it only if its
plugin metadata_lock_info is installed; otherwise the possible holders are listed: connections with an
open transaction, or with a statement that names the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from consumer.errors import MissingGrantError, TargetConfigError, TransientError
from consumer.targets.dialect_components import Link, LockHolder, LockHolders, Rows
from consumer.targets.lock_holders import summarize_statement
from schemas.table.model import Table

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

# quoted, so that the statement identifies the view in a refusal, which names only the table
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
# A prepared XA transaction whose session has ended has no thread.
_DATA_LOCK_HOLDERS = """
SELECT b.PROCESSLIST_ID, CONCAT(MAX(b.PROCESSLIST_USER), '@', MAX(b.PROCESSLIST_HOST)),
  MAX(GREATEST(b.PROCESSLIST_TIME, COALESCE(x.TIMER_WAIT DIV 1000000000000, 0))),
  MAX(COALESCE(b.PROCESSLIST_INFO, s.SQL_TEXT)), MAX(a.ATTR_VALUE)
FROM `performance_schema`.`data_lock_waits` w
JOIN `performance_schema`.`threads` r ON r.THREAD_ID = w.REQUESTING_THREAD_ID
LEFT JOIN `performance_schema`.`threads` b ON b.THREAD_ID = w.BLOCKING_THREAD_ID
LEFT JOIN `performance_schema`.`events_transactions_current` x ON x.THREAD_ID = b.THREAD_ID
  AND x.STATE = 'ACTIVE'
LEFT JOIN `performance_schema`.`events_statements_current` s ON s.THREAD_ID = b.THREAD_ID
LEFT JOIN `performance_schema`.`session_connect_attrs` a ON a.PROCESSLIST_ID = b.PROCESSLIST_ID
  AND a.ATTR_NAME = 'program_name'
WHERE r.PROCESSLIST_ID = %s GROUP BY b.PROCESSLIST_ID ORDER BY b.PROCESSLIST_ID"""
_INNODB_LOCK_HOLDERS = """
SELECT DISTINCT NULLIF(b.trx_mysql_thread_id, 0), CONCAT(p.user, '@', p.host),
  GREATEST(p.time, TIMESTAMPDIFF(SECOND, b.trx_started, NOW())), COALESCE(p.info, b.trx_query), NULL
FROM information_schema.innodb_lock_waits w
JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id
JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
LEFT JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id
WHERE r.trx_mysql_thread_id = %s ORDER BY 1"""
_PREPARED = "a prepared XA transaction without a session holds the lock: XA RECOVER lists it"
_METADATA_LOCKS = """
SELECT t.PROCESSLIST_ID, CONCAT(MAX(t.PROCESSLIST_USER), '@', MAX(t.PROCESSLIST_HOST)),
  MAX(GREATEST(t.PROCESSLIST_TIME, COALESCE(x.TIMER_WAIT DIV 1000000000000, 0))),
    MAX(COALESCE(t.PROCESSLIST_INFO, s.SQL_TEXT))
FROM `performance_schema`.`metadata_locks` w
JOIN `performance_schema`.`threads` r ON r.THREAD_ID = w.OWNER_THREAD_ID
JOIN `performance_schema`.`metadata_locks` h ON h.OBJECT_TYPE = w.OBJECT_TYPE
  AND h.OBJECT_SCHEMA = w.OBJECT_SCHEMA
  AND h.OBJECT_NAME = w.OBJECT_NAME AND h.LOCK_STATUS = 'GRANTED' AND h.OWNER_THREAD_ID <> w.OWNER_THREAD_ID
JOIN `performance_schema`.`threads` t ON t.THREAD_ID = h.OWNER_THREAD_ID AND t.PROCESSLIST_ID IS NOT NULL
LEFT JOIN `performance_schema`.`events_transactions_current` x ON x.THREAD_ID = t.THREAD_ID
  AND x.STATE = 'ACTIVE'
LEFT JOIN `performance_schema`.`events_statements_current` s ON s.THREAD_ID = t.THREAD_ID
WHERE r.PROCESSLIST_ID = %s AND w.LOCK_STATUS = 'PENDING' GROUP BY t.PROCESSLIST_ID
ORDER BY t.PROCESSLIST_ID"""
_WAITS = (
    "SELECT 1 FROM information_schema.processlist WHERE id = %s AND state = 'Waiting for table metadata lock'"
)
_PLUGIN = (
    "SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'METADATA_LOCK_INFO' "
    "AND plugin_status = 'ACTIVE'"
)
_SHOWN = """
SELECT DISTINCT p.id, CONCAT(p.user, '@', p.host), p.time, p.info FROM information_schema.metadata_lock_info l
JOIN information_schema.processlist p ON p.id = l.thread_id
WHERE l.table_schema = %s AND l.table_name = %s AND p.id <> %s ORDER BY p.id"""
_MAY = """
SELECT p.id, CONCAT(p.user, '@', p.host), p.time, p.info FROM information_schema.processlist p
LEFT JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id
WHERE p.id NOT IN (%s, CONNECTION_ID()) AND (t.trx_id IS NOT NULL OR (p.command = 'Query'
  AND LOCATE(%s, p.info) > 0))
ORDER BY t.trx_started IS NULL, t.trx_started LIMIT 5"""
_INSTALL = "MariaDB shows who holds it after INSTALL SONAME 'metadata_lock_info'"


@dataclass(frozen=True, slots=True)
class LockViews:
    """The queries by which a server shows its locks."""

    blockers: str
    """Query for the connections that hold locks for which connection %s waits."""
    row_holders: str
    """Query for the same connections with user, seconds, statement and program; NULL: there is none."""
    holders: Callable[[Link, int, Table], LockHolders]
    """Finds the holders of the table's lock for which a connection waits."""
    grant: str
    """The right that both need."""
    kill: str
    """The right to end connections of other users."""


class MySqlLocks:
    """The locks of MySQL and MariaDB; see `consumer.targets.dialect_components.ServerLocks`."""

    def __init__(self, link: MySqlLink, views: LockViews) -> None:
        self._link = link
        self._views = views

    def end_blockers_of(self, waiting: int) -> list[int]:
        try:
            found = [int(str(row[0])) for row in self._link.execute(self._views.blockers, [waiting])]
        except MissingGrantError as error:
            raise MissingGrantError(
                f"{error.seen}: to end a dead worker's connection rowlock must see who holds a lock",
                f"GRANT {self._views.grant} TO {self._link.account};",
            ) from error
        return [each for each in found if self._kill_connection(each)]

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        try:
            return self._views.holders(self._link, waiting, table)
        except MissingGrantError:
            return self._explain_unseen()

    def find_row_holders(self, waiting: int) -> LockHolders:
        try:
            rows = self._link.execute(self._views.row_holders, [waiting])
        except MissingGrantError:
            return self._explain_unseen()
        sessions = [row for row in rows if row[0] is not None]
        return LockHolders(_parse_holders(sessions), unseen="" if len(sessions) == len(rows) else _PREPARED)

    def _explain_unseen(self) -> LockHolders:
        return LockHolders(unseen=f"it is shown after GRANT {self._views.grant} TO {self._link.account}")

    def end_connection(self, connection: int) -> bool:
        there = self._kill_connection(connection)
        # if the link itself was lost, the outcome is unknown: TransientError
        return self._link.raw is not None and there

    def _kill_connection(self, connection: int) -> bool:
        """End a connection. Return whether it existed."""
        try:
            self._link.execute(f"KILL {connection:d}", [])
        except TransientError:  # it ended by itself
            return False
        except MissingGrantError as error:
            raise MissingGrantError(
                f"{error.seen}: {_explain_other_user(connection)}", error.statement
            ) from error
        except TargetConfigError as error:  # error 1095, which does not name the missing right
            statement = f"GRANT {self._views.kill} ON *.* TO {self._link.account};"
            raise MissingGrantError(
                f"{error.problem.what}: {_explain_other_user(connection)}", statement
            ) from error
        return True


def _find_mysql_holders(link: Link, waiting: int, table: Table) -> LockHolders:
    return LockHolders(_parse_holders(link.execute(_METADATA_LOCKS, [waiting])))


def _find_mariadb_holders(link: Link, waiting: int, table: Table) -> LockHolders:
    if not link.execute(_WAITS, [waiting]):
        return LockHolders()
    if link.execute(_PLUGIN, []):
        return LockHolders(_parse_holders(link.execute(_SHOWN, [table.db, table.name, waiting])))
    return _guess_holders(link, waiting, table, _INSTALL)


def _find_mysql_5_holders(link: Link, waiting: int, table: Table) -> LockHolders:
    if not link.execute(_WAITS, [waiting]):
        return LockHolders()
    return _guess_holders(link, waiting, table, "MySQL shows who holds it from 8.0 on")


def _guess_holders(link: Link, waiting: int, table: Table, hint: str) -> LockHolders:
    """Return those who may hold the lock. `hint`: what would show it."""
    rows = link.execute(_MAY, [waiting, table.name])
    return LockHolders(_parse_holders(rows), guessed=True, unseen=hint)


MYSQL_LOCKS = LockViews(
    _DATA_LOCK_WAITS,
    _DATA_LOCK_HOLDERS,
    _find_mysql_holders,
    "SELECT ON performance_schema.*",
    "CONNECTION_ADMIN",
)
MYSQL_5_LOCKS = LockViews(
    _INNODB_LOCK_WAITS, _INNODB_LOCK_HOLDERS, _find_mysql_5_holders, "PROCESS ON *.*", "SUPER"
)
"""MySQL before 8.0 shows metadata locks only if an instrument is enabled, so their holders are guessed."""
MARIADB_LOCKS = LockViews(
    _INNODB_LOCK_WAITS, _INNODB_LOCK_HOLDERS, _find_mariadb_holders, "PROCESS ON *.*", "CONNECTION ADMIN"
)
MARIADB_10_4_LOCKS = replace(MARIADB_LOCKS, kill="SUPER")
"""Before 10.5.2."""


def _parse_holders(rows: Rows) -> tuple[LockHolder, ...]:
    """Return holders from rows of number, user, seconds, statement and, where the query has it, program."""
    return tuple(
        LockHolder(
            int(str(number)),
            str(user),
            None if seconds is None else int(str(seconds)),
            None if text is None else summarize_statement(str(text)),
            "".join(str(program) for program in programs if program),
        )
        for number, user, seconds, text, *programs in rows
    )


def _explain_other_user(connection: int) -> str:
    return (
        f"connection {connection} of another user holds a lock that rowlock needs (let all workers of a "
        "target use one user)"
    )
