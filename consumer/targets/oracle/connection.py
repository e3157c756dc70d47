"""The connection to Oracle (python-oracledb), and the one place that translates its errors.

Outside of a transaction each statement commits with its own round trip. A wait for a row's lock ends with the call: Oracle has a
limit of its own for SELECT … FOR UPDATE WAIT alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import oracledb

from consumer.errors import (
    UNDO,
    AlreadyThereError,
    CommitUnknownError,
    ConsumerError,
    MissingGrantError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.checks.table_facts import Remark
from consumer.targets.dialect_components import Rows
from consumer.targets.oracle.errors import CONNECTION_LOST, REMEDIES, TIMED_OUT, gravest, kind_of
from consumer.targets.oracle.sql import named, numbered, waiting
from consumer.targets.sql import Fragment, Params
from schemas.errors import ServerConnectError
from schemas.io.oracle_connection import error_code, error_message

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

Open = Callable[..., Any]
"""Opens a connection to a configured target: schemas.io.oracle_connection.open_oracle, and in tests what stands in for it."""

#: The first version whose names are as long as those of rowlock's indexes may be.
OLDEST = (12, 2)
#: Seconds that a statement may take, waits for locks of rows included. None of ours comes near it but a change of a table.
CALL_S = 300
_BLOCKERS = """
SELECT DISTINCT b.inst_id, b.sid, b.serial# FROM SYS.GV_$SESSION w
JOIN SYS.GV_$SESSION b ON b.inst_id = w.blocking_instance AND b.sid = w.blocking_session
WHERE w.inst_id = %s AND w.sid = %s AND w.serial# = %s"""
_INSTANCE = "SELECT SYS_CONTEXT('USERENV', 'INSTANCE') FROM dual"
_IS_TABLE = "SELECT 1 FROM SYS.ALL_TABLES WHERE owner = %s AND table_name = %s"
#: A session is marked to be killed.
_MARKED = "ORA-00031"
_SEES = "GRANT SELECT ON SYS.GV_$SESSION TO {user};"
_ENDS = "GRANT ALTER SYSTEM TO {user};"


class OracleLink:
    """A `consumer.targets.dialect_components.Link` over python-oracledb."""

    def __init__(self, target: TargetConfig, name: str, connect: Open) -> None:
        self._target = target
        self._name = name
        self._open = connect
        self._raw: Any = None
        self._identity = 0
        self._affected = 0

    @property
    def raw(self) -> Any:
        if self._raw is None:
            raise TransientError(f"the connection to Oracle at {self._where()} is lost")
        return self._raw

    @property
    def affected(self) -> int:
        return self._affected

    @property
    def user(self) -> str:
        return f'"{named(self._target.user)}"'

    def _where(self) -> str:
        return f"{self._target.host}:{self._target.port}/{self._target.database}"

    def connect(self) -> None:
        if self._raw is not None:
            return
        try:
            raw = self._open(self._target, program=self._name)
        except ServerConnectError as error:
            raise (TransientError if error.transient else TargetConfigError)(str(error)) from error
        version = str(raw.version)
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
            raw.close()
            raise TargetConfigError(
                f"Oracle at {self._where()} is {version}: {'.'.join(map(str, OLDEST))} or later is needed (names of 128 bytes)"
            )
        raw.autocommit = True
        raw.call_timeout = CALL_S * 1000
        self._raw = raw
        [(instance,)] = self.execute(_INSTANCE, [])
        self._identity = identity(int(str(instance)), raw.session_id, raw.serial_num)

    def durability(self) -> Remark | None:
        return None  # COMMIT waits for the redo log unless COMMIT_WAIT says otherwise, which a session may not see

    def begin(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        self._begin()
        return self.execute(text if lock_wait_s is None else waiting(text, lock_wait_s), params)

    def _begin(self) -> None:
        """A transaction begins with its first statement, whatever that is."""
        with self.translated():
            self.raw.autocommit = False

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        self._begin()
        return [self.execute(*fragment) for fragment in fragments]

    def execute(self, text: str, params: Params) -> Rows:
        """Run a statement; with values for several times its marks it is run for each of them, as one array."""
        statement, marks = numbered(text)
        try:
            with self.translated(statement), self.raw.cursor() as cursor:
                if marks and len(params) > marks:
                    arrays = [params[at : at + marks] for at in range(0, len(params), marks)]
                    cursor.executemany(statement, arrays)
                else:
                    cursor.execute(statement, params)
                self._affected = cursor.rowcount
                return list(cursor.fetchall()) if cursor.description else []
        except AlreadyThereError:
            # before 23ai there is no IF NOT EXISTS
            if statement.startswith("CREATE TABLE ") and self._is_table(statement.split(" (")[0][13:]):
                return []
            raise

    def _is_table(self, name: str) -> bool:
        return bool(self.execute(_IS_TABLE, [*name.strip('"').split('"."')]))

    def batch(self, statement: str, rows: Sequence[Sequence[object]], sizes: Sequence[object]) -> list[int]:
        """Run a finished statement for each of `rows`, as one array; return how many rows each of them matched.

        `sizes`: types of the values (setinputsizes). What succeeded beside a failure is taken back: the gravest failure is raised, and
        says how many there were.
        """
        with self.translated(statement):
            self.execute("SAVEPOINT rowlock_batch", [])
            with self.raw.cursor() as cursor:
                cursor.setinputsizes(*sizes)
                cursor.executemany(statement, list(rows), batcherrors=True, arraydmlrowcounts=True)
                failures = cursor.getbatcherrors()
                if not failures:
                    return list(cursor.getarraydmlrowcounts())
            self.execute("ROLLBACK TO SAVEPOINT rowlock_batch", [])
        worst = failures[gravest([failure.full_code for failure in failures])]
        raise self._error(oracledb.DatabaseError(worst), more=len(failures) - 1)

    def select_whole(self, text: str, params: Params) -> list[dict[str, object]]:
        """Run a SELECT of the driver's marks; rows by column name."""
        with self.translated(text), self.raw.cursor() as cursor:
            cursor.execute(text, params)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def commit(self) -> None:
        try:
            self.raw.commit()
            self.raw.autocommit = True
        except oracledb.Error as error:
            code = error_code(error)
            if code in CONNECTION_LOST or code == TIMED_OUT:
                self.close()
                raise CommitUnknownError(
                    f"Oracle at {self._where()} did not answer COMMIT: {error_message(error)}"
                ) from error
            raise self._error(error) from error

    def rollback(self) -> None:
        if self._raw is None:
            return
        try:
            self._raw.rollback()
            self._raw.autocommit = True
        except oracledb.Error:  # the server rolls back when the connection ends
            self.close()

    def identity(self) -> int:
        if self._raw is None:
            raise TransientError(f"the connection to Oracle at {self._where()} is lost")
        return self._identity

    def end_blockers_of(self, identity: int) -> list[int]:
        try:
            found = self.execute(_BLOCKERS, list(parts_of(identity)))
        except TargetConfigError as error:
            raise MissingGrantError(
                f"{error}: to end a dead worker's connection rowlock must see who holds a lock",
                _SEES.format(user=self.user),
            ) from error
        numbers = [identity_of(row) for row in found]
        return [number for number in numbers if self.kill(number)]

    def kill(self, connection: int) -> bool:
        """End a connection; tell whether it was there."""
        instance, sid, serial = parts_of(connection)
        try:
            self.execute(f"ALTER SYSTEM KILL SESSION '{sid:d},{serial:d},@{instance:d}' IMMEDIATE", [])
        except (
            TransientError
        ) as error:  # it ended by itself, or has been ended and is still taking back what it did
            return _MARKED in str(error)
        except TargetConfigError as error:
            raise MissingGrantError(
                f"{error}: connection {sid} is in the way", _ENDS.format(user=self.user)
            ) from error
        return True

    def ping(self) -> bool:
        try:
            return len(self.execute("SELECT 1 FROM dual", [])) == 1
        except ConsumerError:
            return False

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            try:
                raw.close()
            except oracledb.Error:  # it was lost: the driver has let go of the socket
                return

    @contextmanager
    def translated(self, statement: str = "") -> Iterator[None]:
        """Translate the driver's errors: the only place where they are looked at, COMMIT aside."""
        try:
            yield
        except oracledb.Error as error:
            raise self._error(error, statement) from error

    def _error(self, error: oracledb.Error, statement: str = "", more: int = 0) -> ConsumerError:
        code = error_code(error)
        if code in CONNECTION_LOST:
            self.close()
        kind = kind_of(code)
        others = f", and {more} rows beside it" if more else ""
        about = (
            f" in {statement.split(' (', maxsplit=1)[0][:120]}" if code == "ORA-00942" and statement else ""
        )
        message = f"Oracle at {self._where()}: {error_message(error)} ({code or type(error).__name__}{others}){about}"
        remedy = REMEDIES.get(code) or (UNDO if issubclass(kind, TargetConfigError) else "")
        return kind(message + (f": {remedy}" if remedy else ""))


def identity(instance: int, sid: int, serial: int) -> int:
    """Return one number for a connection: a SID is given again, so that it alone would name somebody else's."""
    return (instance << 56) | (serial << 24) | sid


def identity_of(row: Sequence[object]) -> int:
    """Return the number of (instance, sid, serial#)."""
    instance, sid, serial = (int(str(value)) for value in row)
    return identity(instance, sid, serial)


def parts_of(number: int) -> tuple[int, int, int]:
    """Return (instance, sid, serial#) of `identity`."""
    return number >> 56, number & 0xFFFFFF, (number >> 24) & 0xFFFFFFFF
