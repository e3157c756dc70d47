"""Changes of tables in MySQL and MariaDB: reads the real table and the server, and sets the session's
timeouts.

A statement commits by itself, so a connection executes one for its unit only as long as the unit's mark
names that connection (consumer.targets.session.SqlSession.alter_table): a takeover of the unit ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pymysql

from consumer.errors import ConsumerError
from consumer.targets.alterations import (
    AlterTable,
    DropTable,
    apply_alterations,
    list_new_names,
    require_same_columns,
)
from consumer.targets.mysql.alter_statements import MySqlRealTable, render_statements
from consumer.targets.mysql.catalog import adopt_collations, read_server_limits
from consumer.targets.mysql.limits import explain_column_name, refuse_index_limit, refuse_table_limit
from consumer.targets.mysql.sql import quote
from consumer.targets.shared.name_limits import require_column_names
from consumer.targets.silence import limit_silence
from consumer.targets.sql import qualify_table
from schemas.io import mysql_catalog
from schemas.table.collations import make_collation_chooser, make_key_collation_chooser
from schemas.table.model import Table, UniqueIndex

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

_INDEXES = """
SELECT index_name, non_unique, column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index"""
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_SETTINGS = ("lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode")
#: Seconds for a statement that rebuilds a table, and for which the server may be cut off meanwhile.
STATEMENT_S = 7 * 24 * 3600
STATEMENT_SILENCE_S = 40
#: The versions from which the servers have RENAME COLUMN.
_RENAMES, _RENAMES_MARIADB = (8, 0, 0), (10, 5, 2)


class MySqlAlterer:
    """Changes tables of MySQL and MariaDB; see `consumer.targets.dialect_components.TableAlterer`."""

    transactional = False

    def __init__(self, link: MySqlLink) -> None:
        self._link = link

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        if isinstance(change, DropTable):
            yield f"DROP TABLE IF EXISTS {qualify_table(quote, change.table.db, change.table.name)}"
        else:
            place: list[object] = [change.table.db, change.table.name]
            require_same_columns(change.table, [str(row[0]) for row in self._link.execute(_COLUMNS, place)])
            where = f"{change.table.db}.{change.table.name}"
            require_column_names(where, list_new_names(change), explain_column_name)
            real = self._read_real_table(change.table)
            ending = adopt_collations(apply_alterations(change), real.exact, real.near)
            limits = read_server_limits(self._link)
            refuse_table_limit(ending, limits)
            refuse_index_limit(ending, adopt_collations(change.table, real.exact, real.near), limits)
            yield from render_statements(change, real)

    def _read_real_table(self, table: Table) -> MySqlRealTable:
        unique: dict[str, tuple[str, ...]] = {}
        names = set[str]()
        for index, repeated, column in self._link.execute(_INDEXES, [table.db, table.name]):
            names.add(str(index))
            if not int(str(repeated)):
                unique[str(index)] = (*unique.get(str(index), ()), str(column))
        with self._link.translate_errors():
            available = mysql_catalog.read_collations(self._link.raw)
            native = mysql_catalog.read_text_types(self._link.raw)
        [(version,)] = self._link.execute("SELECT VERSION()", [])
        return MySqlRealTable(
            unique,
            frozenset(names),
            make_key_collation_chooser(available),
            make_collation_chooser(available),
            has_renames(str(version)),
            native,
        )

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        return index.name

    @contextmanager
    def extend_lock_wait(self, lock_wait_s: float) -> Iterator[None]:
        link, wait = self._link, max(1, round(lock_wait_s))
        [before] = link.execute(f"SELECT {', '.join(f'@@SESSION.{name}' for name in _SETTINGS)}", [])
        link.execute(f"SET SESSION lock_wait_timeout = {wait}, innodb_lock_wait_timeout = {wait}", [])
        raw = link.raw
        timeout, raw._read_timeout = raw._read_timeout, STATEMENT_S  # type: ignore[attr-defined]
        limit_silence(raw._sock, STATEMENT_SILENCE_S)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            raw._read_timeout = timeout  # type: ignore[attr-defined]
            if raw.open:
                limit_silence(raw._sock)  # type: ignore[attr-defined]
            self._restore_settings(raw, before)

    def _restore_settings(self, raw: object, before: tuple[object, ...]) -> None:
        """Restore the session's settings, or close the connection if that fails; the next one has its own."""
        try:
            if self._link.raw is raw:
                marks = ", ".join(f"{name} = %s" for name in _SETTINGS)
                self._link.execute(f"SET SESSION {marks}", list(before))
        except (ConsumerError, pymysql.MySQLError):
            self._link.close()


def has_renames(version: str) -> bool:
    """Return whether the server with this VERSION() has RENAME COLUMN."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return numbers >= (_RENAMES_MARIADB if "MariaDB" in version else _RENAMES)
