"""The locks of Oracle: finds the holders of what a connection waits for, and ends connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from consumer.errors import MissingGrantError, TargetConfigError, TransientError
from consumer.targets.dialect_components import LockHolder, LockHolders
from consumer.targets.oracle.sql import normalize_name
from schemas.table.model import Table

if TYPE_CHECKING:
    from consumer.targets.oracle.connection import OracleLink

_BLOCKERS = """
SELECT DISTINCT b.inst_id, b.sid, b.serial# FROM SYS.GV_$SESSION w
JOIN SYS.GV_$SESSION b ON b.inst_id = w.blocking_instance AND b.sid = w.blocking_session
WHERE w.inst_id = %s AND w.sid = %s AND w.serial# = %s"""
_ROW_HOLDERS = """
SELECT b.inst_id, b.sid, b.serial#, b.username || '@' || b.machine, b.last_call_et,
  COALESCE(b.sql_id, b.prev_sql_id), b.program FROM SYS.GV_$SESSION w
JOIN SYS.GV_$SESSION b ON b.inst_id = w.blocking_instance AND b.sid = w.blocking_session
WHERE w.inst_id = %s AND w.sid = %s AND w.serial# = %s"""
_HOLDERS = """
SELECT s.inst_id, s.sid, s.serial#, s.username, s.last_call_et, s.sql_id FROM SYS.GV_$LOCK l
JOIN SYS.GV_$SESSION s ON s.inst_id = l.inst_id AND s.sid = l.sid
JOIN SYS.ALL_OBJECTS o ON o.object_id = l.id1
WHERE l.type = 'TM' AND l.lmode > 0 AND o.owner = %s AND o.object_name = %s AND s.sid <> %s"""
_THERE = "SELECT 1 FROM SYS.GV_$SESSION WHERE inst_id = %s AND sid = %s AND serial# = %s"
#: The session is marked to be killed.
_MARKED = "ORA-00031"
_SEES = "GRANT SELECT ON SYS.GV_$SESSION TO {user};"
_ENDS = "GRANT ALTER SYSTEM TO {user};"


class OracleLocks:
    """The locks of Oracle; see `consumer.targets.dialect_components.ServerLocks`."""

    def __init__(self, link: OracleLink, user: str) -> None:
        self._link = link
        self._user = f'"{normalize_name(user)}"'

    def end_blockers_of(self, waiting: int) -> list[int]:
        try:
            found = self._link.execute(_BLOCKERS, list(decode_connection_id(waiting)))
        except TargetConfigError as error:
            raise MissingGrantError(
                f"{error.problem.what}: to end a dead worker's connection rowlock must see who holds a lock",
                _SEES.format(user=self._user),
            ) from error
        numbers = [read_connection_id(row) for row in found]
        return [number for number in numbers if self._kill_connection(number)]

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        _, sid, _ = decode_connection_id(waiting)
        rows = self._link.execute(_HOLDERS, [normalize_name(table.db), normalize_name(table.name), sid])
        return LockHolders(tuple(map(_parse_holder, rows)))

    def find_row_holders(self, waiting: int) -> LockHolders:
        try:
            rows = self._link.execute(_ROW_HOLDERS, list(decode_connection_id(waiting)))
        except TargetConfigError:
            return LockHolders(unseen=f"it is shown after {_SEES.format(user=self._user).removesuffix(';')}")
        return LockHolders(tuple(map(_parse_holder, rows)))

    def end_connection(self, connection: int) -> bool:
        if not self._link.execute(_THERE, list(decode_connection_id(connection))):
            return False
        self._kill_connection(connection)
        return True

    def _kill_connection(self, connection: int) -> bool:
        """End a connection. Return whether it existed."""
        instance, sid, serial = decode_connection_id(connection)
        try:
            self._link.execute(f"ALTER SYSTEM KILL SESSION '{sid:d},{serial:d},@{instance:d}' IMMEDIATE", [])
        except TransientError as error:
            # it ended by itself, or was ended before and is still rolling back
            return _MARKED in str(error)
        except TargetConfigError as error:
            raise MissingGrantError(
                f"{error.problem.what}: rowlock has to end connection {sid}, and its user lacks the right to",
                _ENDS.format(user=self._user),
            ) from error
        return True


def _parse_holder(row: Sequence[object]) -> LockHolder:
    """Return the holder in a row of connection (three columns), user, seconds, sql_id and, where the query
    has it, program.
    """
    user, seconds, statement, *programs = row[3:]
    return LockHolder(
        read_connection_id(row[:3]),
        str(user),
        None if seconds is None else int(str(seconds)),
        None if statement is None else f"sql_id {statement}",
        "".join(str(program) for program in programs if program),
    )


def encode_connection_id(instance: int, sid: int, serial: int) -> int:
    """Return one number for a connection. The SID alone is reused and could mean another connection."""
    return (instance << 56) | (serial << 24) | sid


def read_connection_id(row: Sequence[object]) -> int:
    """Return the number of (instance, sid, serial#)."""
    instance, sid, serial = (int(str(value)) for value in row)
    return encode_connection_id(instance, sid, serial)


def decode_connection_id(number: int) -> tuple[int, int, int]:
    """Return (instance, sid, serial#) of a connection's number."""
    return number >> 56, number & 0xFFFFFF, (number >> 24) & 0xFFFFFFFF
