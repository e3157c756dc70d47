"""Finds who holds the metadata lock of a table that an ALTER waits for, as far as the servers show it.

MySQL says it in performance_schema. MariaDB says it only where its plugin metadata_lock_info is installed; else those that may
hold it are named: whoever has a transaction open, or a statement that names the table.
"""

from __future__ import annotations

from collections.abc import Callable

from consumer.errors import MissingGrantError
from consumer.targets.dialect_components import Holders, Link, LockHolder, Rows
from consumer.targets.mysql.rights import account_of
from schemas.table.model import Table

Ask = Callable[[Link, int, Table], Holders]

_MYSQL = """
SELECT t.PROCESSLIST_ID, CONCAT(MAX(t.PROCESSLIST_USER), '@', MAX(t.PROCESSLIST_HOST)),
  MAX(GREATEST(t.PROCESSLIST_TIME, COALESCE(x.TIMER_WAIT DIV 1000000000000, 0))), MAX(COALESCE(t.PROCESSLIST_INFO, s.SQL_TEXT))
FROM `performance_schema`.`metadata_locks` w
JOIN `performance_schema`.`threads` r ON r.THREAD_ID = w.OWNER_THREAD_ID
JOIN `performance_schema`.`metadata_locks` h ON h.OBJECT_TYPE = w.OBJECT_TYPE AND h.OBJECT_SCHEMA = w.OBJECT_SCHEMA
  AND h.OBJECT_NAME = w.OBJECT_NAME AND h.LOCK_STATUS = 'GRANTED' AND h.OWNER_THREAD_ID <> w.OWNER_THREAD_ID
JOIN `performance_schema`.`threads` t ON t.THREAD_ID = h.OWNER_THREAD_ID AND t.PROCESSLIST_ID IS NOT NULL
LEFT JOIN `performance_schema`.`events_transactions_current` x ON x.THREAD_ID = t.THREAD_ID AND x.STATE = 'ACTIVE'
LEFT JOIN `performance_schema`.`events_statements_current` s ON s.THREAD_ID = t.THREAD_ID
WHERE r.PROCESSLIST_ID = %s AND w.LOCK_STATUS = 'PENDING' GROUP BY t.PROCESSLIST_ID ORDER BY t.PROCESSLIST_ID"""
_WAITS = (
    "SELECT 1 FROM information_schema.processlist WHERE id = %s AND state = 'Waiting for table metadata lock'"
)
_PLUGIN = "SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'METADATA_LOCK_INFO' AND plugin_status = 'ACTIVE'"
_SHOWN = """
SELECT DISTINCT p.id, CONCAT(p.user, '@', p.host), p.time, p.info FROM information_schema.metadata_lock_info l
JOIN information_schema.processlist p ON p.id = l.thread_id
WHERE l.table_schema = %s AND l.table_name = %s AND p.id <> %s ORDER BY p.id"""
_MAY = """
SELECT p.id, CONCAT(p.user, '@', p.host), p.time, p.info FROM information_schema.processlist p
LEFT JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id
WHERE p.id NOT IN (%s, CONNECTION_ID()) AND (t.trx_id IS NOT NULL OR (p.command = 'Query' AND LOCATE(%s, p.info) > 0))
ORDER BY t.trx_started IS NULL, t.trx_started LIMIT 5"""
_INSTALL = "MariaDB shows who holds it after INSTALL SONAME 'metadata_lock_info'"


def of_mysql(link: Link, waiting: int, table: Table) -> Holders:
    return _asked(
        link, lambda: Holders(_holders(link.execute(_MYSQL, [waiting]))), "SELECT ON performance_schema.*"
    )


def of_mariadb(link: Link, waiting: int, table: Table) -> Holders:
    def ask() -> Holders:
        if not link.execute(_WAITS, [waiting]):
            return Holders()
        if link.execute(_PLUGIN, []):
            return Holders(_holders(link.execute(_SHOWN, [table.db, table.name, waiting])))
        return Holders(_holders(link.execute(_MAY, [waiting, table.name])), guessed=True, unseen=_INSTALL)

    return _asked(link, ask, "PROCESS ON *.*")


LOCKS: dict[str, Ask] = {"mysql": of_mysql, "mariadb": of_mariadb}


def _asked(link: Link, ask: Callable[[], Holders], right: str) -> Holders:
    try:
        return ask()
    except MissingGrantError:
        [(user,)] = link.execute("SELECT CURRENT_USER()", [])
        return Holders(unseen=f"it is shown after GRANT {right} TO {account_of(str(user))}")


def _holders(rows: Rows) -> tuple[LockHolder, ...]:
    return tuple(
        LockHolder(
            int(str(number)),
            str(user),
            None if seconds is None else int(str(seconds)),
            None if text is None else str(text),
        )
        for number, user, seconds, text in rows
    )
