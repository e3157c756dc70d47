"""The connection to Oracle (python-oracledb), the only place that handles its errors.

Outside of a transaction each statement commits with its own round trip. A wait for a row lock is
limited by the call's timeout, because Oracle's own limit exists only for SELECT … FOR UPDATE WAIT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import oracledb

from consumer.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConsumerError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.dialect_components import Rows, SingleStatements
from consumer.targets.oracle.errors import (
    CONNECTION_LOST,
    TIMED_OUT,
    build_consumer_error,
    find_gravest_error,
)
from consumer.targets.oracle.locks import OracleLocks, encode_connection_id
from consumer.targets.oracle.sql import number_marks, render_lock_wait
from consumer.targets.sql import Fragment, Params
from schemas.errors import ServerConnectError
from schemas.io.oracle_connection import format_oracle_error, get_oracle_error_code, read_oracle_expiry

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

Open = Callable[..., Any]
"""Opens a connection to a configured target: schemas.io.oracle_connection.open_oracle, or a replacement
in tests.
"""

#: The first version that allows names as long as those of rowlock's indexes may be.
MIN_SERVER_VERSION = (12, 2)
#: Seconds for a statement, waits for row locks included. Only changes of tables normally take long.
ORACLE_CALL_TIMEOUT_S = 300
_INSTANCE = "SELECT SYS_CONTEXT('USERENV', 'INSTANCE') FROM dual"
_IS_TABLE = "SELECT 1 FROM SYS.ALL_TABLES WHERE owner = %s AND table_name = %s"


class OracleLink(SingleStatements):
    """A `consumer.targets.dialect_components.Link` over python-oracledb."""

    def __init__(self, target: TargetConfig, name: str, connect: Open) -> None:
        self._target = target
        self._name = name
        self._open = connect
        self._where = f"Oracle at {target.host}:{target.port}/{target.database}"
        self.locks = OracleLocks(self, target.user)
        self._raw: Any = None
        self._identity = 0
        self.affected = 0

    @property
    def raw(self) -> Any:
        if self._raw is None:
            raise TransientError(f"the connection to {self._where} is lost")
        return self._raw

    def connect(self) -> None:
        if self._raw is not None:
            return
        try:
            raw = self._open(self._target, program=self._name)
        except ServerConnectError as error:
            kind = TransientError if error.transient else TargetConfigError
            raise kind.from_problem(error.problem) from error
        version = str(raw.version)
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < MIN_SERVER_VERSION:
            raw.close()
            raise TargetConfigError(
                f"{self._where} is {version}",
                f"{'.'.join(map(str, MIN_SERVER_VERSION))} or later is needed (names of 128 bytes)",
            )
        raw.autocommit = True
        raw.call_timeout = ORACLE_CALL_TIMEOUT_S * 1000
        self._raw = raw
        [(instance,)] = self.execute(_INSTANCE, [])
        self._identity = encode_connection_id(int(str(instance)), raw.session_id, raw.serial_num)

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        return self.begin_all(
            [(text if lock_wait_s is None else render_lock_wait(text, lock_wait_s), params)]
        )[0]

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        """Begin a transaction, which Oracle does with the first statement, and run `fragments`; return
        the rows of each.
        """
        with self.translate_errors():
            self.raw.autocommit = False
        return [self.execute(*fragment) for fragment in fragments]

    def execute(self, text: str, params: Params) -> Rows:
        """Run a statement.

        With parameters for several times its placeholders, it is run for each of them, as one array.
        """
        statement, marks = number_marks(text)
        try:
            with self.translate_errors(statement), self.raw.cursor() as cursor:
                if marks and len(params) > marks:
                    arrays = [params[at : at + marks] for at in range(0, len(params), marks)]
                    cursor.executemany(statement, arrays)
                else:
                    cursor.execute(statement, params)
                self.affected = cursor.rowcount
                return list(cursor.fetchall()) if cursor.description else []
        except AlreadyExistsError:
            # before 23ai there is no IF NOT EXISTS
            if statement.startswith("CREATE TABLE ") and self._is_table(statement.split(" (")[0][13:]):
                return []
            raise

    def _is_table(self, name: str) -> bool:
        return bool(self.execute(_IS_TABLE, [*name.strip('"').split('"."')]))

    def execute_array(
        self, statement: str, rows: Sequence[Sequence[object]], sizes: Sequence[object]
    ) -> list[int]:
        """Run a finished statement for each of `rows`, as one array; return how many rows each of them
        matched.

        `sizes`: types of the values (setinputsizes). If one fails, the others are rolled back; the
        gravest failure is raised, with the number of failures.
        """
        with self.translate_errors(statement):
            self.execute("SAVEPOINT rowlock_batch", [])
            with self.raw.cursor() as cursor:
                cursor.setinputsizes(*sizes)
                cursor.executemany(statement, list(rows), batcherrors=True, arraydmlrowcounts=True)
                failures = cursor.getbatcherrors()
                if not failures:
                    return list(cursor.getarraydmlrowcounts())
            self.execute("ROLLBACK TO SAVEPOINT rowlock_batch", [])
        worst = failures[find_gravest_error([failure.full_code for failure in failures])]
        with self.translate_errors(more=len(failures) - 1):
            raise oracledb.DatabaseError(worst)

    def select_whole(self, text: str, params: Params) -> list[dict[str, object]]:
        """Run a SELECT with the driver's placeholders; return rows by column name."""
        with self.translate_errors(text), self.raw.cursor() as cursor:
            cursor.execute(text, params)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def commit(self) -> None:
        try:
            self.raw.commit()
            self.raw.autocommit = True
        except oracledb.Error as error:
            code = get_oracle_error_code(error)
            if code in CONNECTION_LOST or code == TIMED_OUT:
                self.close()
                raise CommitUnknownError(
                    f"{self._where} did not answer COMMIT: {format_oracle_error(error)}"
                ) from error
            raise build_consumer_error(error, self._where) from error

    def roll_back(self) -> None:
        if self._raw is None:
            return
        try:
            self._raw.rollback()
            self._raw.autocommit = True
        except oracledb.Error:  # the server rolls back when the connection ends
            self.close()

    def get_connection_id(self) -> int:
        if self._raw is None:
            raise TransientError(f"the connection to {self._where} is lost")
        return self._identity

    def read_certificate_expiry(self) -> datetime | None:
        try:
            return read_oracle_expiry(self._target)
        except OSError as error:
            raise TransientError(f"{self._where}: TLS cannot be begun: {error}") from error

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
            except oracledb.Error:  # it was lost, and the driver has closed the socket
                return

    @contextmanager
    def translate_errors(self, statement: str = "", more: int = 0) -> Iterator[None]:
        """Translate the driver's errors; the only place that inspects them, except for COMMIT.

        `more`: how many other rows of the array failed.
        """
        try:
            yield
        except oracledb.Error as error:
            if get_oracle_error_code(error) in CONNECTION_LOST:
                self.close()
            raise build_consumer_error(error, self._where, statement, more) from error
