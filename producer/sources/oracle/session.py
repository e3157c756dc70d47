"""A connection to Oracle through DB-API. Driver errors become errors of capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from producer.errors import CaptureError, SourceRefusedError, TransientSourceError
from schemas.config.model import SourceConfig
from schemas.errors import ServerConnectError

ResultRows = list[tuple[Any, ...]]

ALTERED = 904
"""The number of the error for an unknown column."""
_REFUSED = {
    942: "grant SELECT on it, and DELETE on the log (`rowlock check` prints the grants), or create it again",
    1031: "`rowlock check` prints the grants that are missing",
    ALTERED: "`rowlock check` lists what the logs must have",
}
"""Numbers of ORA- errors for which a retry does not help, with the remedy."""


class OracleDriver(NamedTuple):
    """A driver. `connect`: opens a DB-API connection without autocommit (raises ServerConnectError).

    `errors`: the base class of its errors.
    """

    connect: Callable[[], Any]
    errors: type[Exception]


def load_oracle_driver(source: SourceConfig) -> OracleDriver:
    """Return python-oracledb, configured for the source.

    Raises SourceRefusedError if it is not installed.
    """
    try:
        oracledb = import_module("oracledb")
        opening = import_module("schemas.io.oracle_connection").open_oracle
    except ImportError as error:
        raise SourceRefusedError(
            f"a source of type oracle needs the package oracledb, and {error}", "pip install 'oracledb>=3.4'"
        ) from error
    return OracleDriver(lambda: opening(source), oracledb.Error)


def parse_error_number(error: BaseException) -> int:
    """Return the number of an ORA- error; 0: it has none."""
    first = error.args[0] if error.args else None
    number = getattr(first, "code", 0)
    return number if isinstance(number, int) else 0


def translate_oracle_error(error: Exception) -> CaptureError:
    """Return the error of capture for a driver error."""
    remedy = _REFUSED.get(parse_error_number(error))
    if remedy is not None:
        return SourceRefusedError(f"Oracle refuses: {error}", remedy)
    return TransientSourceError(f"Oracle does not answer at the moment: {error}")


class OracleSession:
    """One connection, opened when it is needed and after it was lost.

    All methods raise TransientSourceError, SourceRefusedError.
    """

    def __init__(self, driver: OracleDriver) -> None:
        self._driver = driver
        self._connection: Any = None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(self._driver.errors):
                self._connection.close()
            self._connection = None

    def fetch_rows(self, sql: str, binds: Sequence[object] = ()) -> ResultRows:
        """Return the rows of a SELECT, of what is committed when it begins."""
        with self._open_connection() as connection, contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(sql, list(binds))
            found = [tuple(row) for row in cursor.fetchall()]
            connection.rollback()
            return found

    def change_many(self, sql: str, binds: Sequence[Sequence[object]]) -> int:
        """Execute a statement once for each of `binds`, in one transaction.

        Return how many rows it changed.
        """
        with self._open_connection() as connection, contextlib.closing(connection.cursor()) as cursor:
            cursor.executemany(sql, [list(each) for each in binds])
            changed = int(cursor.rowcount)
            connection.commit()
            return changed

    @contextmanager
    def _open_connection(self) -> Iterator[Any]:
        """Provide the connection.

        After an error it is replaced, because the outcome of a transaction is unknown.
        """
        try:
            if self._connection is None:
                self._connection = self._driver.connect()
            yield self._connection
        except ServerConnectError as error:
            kind = TransientSourceError if error.transient else SourceRefusedError
            raise kind.from_problem(error.problem) from error
        except self._driver.errors as error:
            self.close()
            raise translate_oracle_error(error) from error
