"""The locks of PostgreSQL: finds the holders of what a connection waits for, and ends connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.errors import MissingGrantError, TargetConfigError
from consumer.targets.dialect_components import LockHolder, LockHolders
from consumer.targets.lock_holders import summarize_statement
from consumer.targets.postgres.sql import bare
from schemas.table.model import Table

if TYPE_CHECKING:
    from consumer.targets.postgres.connection import PostgresLink

_END_BLOCKERS = (
    "SELECT pid, pg_terminate_backend(pid) FROM unnest(pg_blocking_pids(%s)) AS pid WHERE pid <> 0"
)
# A prepared transaction has the number 0, and no session.
_HOLDERS = """
SELECT DISTINCT a.pid, coalesce(a.usename::text, a.backend_type) || coalesce('@' || host(a.client_addr), ''),
  extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start))::bigint, a.query,
  a.application_name
FROM unnest(pg_blocking_pids(%s)) AS b LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b
WHERE a.pid IS NOT NULL OR b = 0 ORDER BY a.pid"""
_END = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid = %s"
_HIDDEN = "<insufficient privilege>"
_PREPARED = "a prepared transaction holds the lock: SELECT * FROM pg_prepared_xacts lists it"
_FOREIGN = "a connection of another user holds the progress rows (let all workers of a target use one user)"


class PostgresLocks:
    """The locks of PostgreSQL; see `consumer.targets.dialect_components.ServerLocks`."""

    def __init__(self, link: PostgresLink) -> None:
        self._link = link

    def end_blockers_of(self, waiting: int) -> list[int]:
        try:
            rows = self._link.execute(_END_BLOCKERS, [waiting])
        except MissingGrantError as error:
            raise MissingGrantError(f"{error.seen}: {_FOREIGN}", error.statement) from error
        except TargetConfigError as error:
            raise TargetConfigError(error.problem.what, _FOREIGN) from error
        return [int(str(pid)) for pid, ended in rows if ended]

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        return self.find_row_holders(waiting)

    def find_row_holders(self, waiting: int) -> LockHolders:
        rows = self._link.execute(_HOLDERS, [waiting])
        sessions = [row for row in rows if row[0] is not None]
        unseen = [_PREPARED] if len(sessions) < len(rows) else []
        if any(row[3] == _HIDDEN for row in sessions):
            [(user,)] = self._link.execute("SELECT current_user", [])
            unseen.append(f"what it does is shown after GRANT pg_read_all_stats TO {bare(str(user))}")
        return LockHolders(tuple(_parse_holder(*row) for row in sessions), unseen="; ".join(unseen))

    def end_connection(self, connection: int) -> bool:
        return bool(self._link.execute(_END, [connection]))


def _parse_holder(pid: object, user: object, seconds: object, query: object, program: object) -> LockHolder:
    return LockHolder(
        int(str(pid)),
        str(user),
        None if seconds is None else int(str(seconds)),
        None if query in (None, _HIDDEN) else summarize_statement(str(query)),
        str(program or ""),
    )
