"""The connection to PostgreSQL (psycopg), and the one place that translates its errors.

The connection is in autocommit mode and says BEGIN itself, so that BEGIN and the guard share one round trip (pipeline
mode). The guard's rows are known before anything else is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg

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
from consumer.targets.postgres.errors import DENIED, REMEDIES, kind_of, said, state_in
from consumer.targets.postgres.rights import grant_for
from consumer.targets.sql import Fragment, Params

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

#: The server ends a transaction that a paused worker left open, and a wait for a lock of another lane or a person.
_SETTINGS = {
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "120s",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    # A gather touches few rows of a table that may be huge, and has no statistics: always by the index of the key.
    # Left to itself the planner reads the whole table for a hash join, and keeps that plan while the table grows.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
}
#: With "off" a crash of the server takes back commits that readers have seen: rows would be seen going back.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_TLS = {"full": "verify-full", "ca": "verify-ca", "none": "require"}
#: A statement that the driver has prepared is of the table's earlier form: another session changed it.
_STALE_PLAN = "cached plan must not change result type"
_FOREIGN = "a connection of another user holds the progress rows (let all workers of a target use one user)"


class PostgresLink:
    """A `session.Link` over psycopg. `raw` is what the applier sends COPY and pipelines through."""

    def __init__(self, target: TargetConfig, name: str) -> None:
        self._target = target
        self._name = name
        self._raw: psycopg.Connection[Any] | None = None
        self._affected = 0

    @property
    def raw(self) -> psycopg.Connection[Any]:
        if self._raw is None or self._raw.closed:
            raise TransientError(f"the connection to PostgreSQL at {self._where()} is lost")
        return self._raw

    @property
    def affected(self) -> int:
        return self._affected

    def connect(self) -> None:
        if self._raw is not None and not self._raw.closed:
            return
        with self.translated():
            self._raw = psycopg.connect(**self._arguments(), autocommit=True)
            self._raw.execute(_DURABLE)

    def durability(self) -> Remark | None:
        return None  # seen to at `connect`

    def _arguments(self) -> dict[str, Any]:
        target = self._target
        return {
            "host": target.host, "port": target.port, "user": target.user, "dbname": target.database,
            "password": target.password.get_secret_value(), "application_name": self._name[:63],
            "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 30_000,
            "client_encoding": "UTF8",
            "options": " ".join(f"-c {key}={value.replace(' ', chr(92) + ' ')}" for key, value in _SETTINGS.items()),
            **tls_arguments(target),
        }  # fmt: skip

    def _where(self) -> str:
        return f"{self._target.host}:{self._target.port}/{self._target.database}"

    def begin(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        with self.translated(text):
            raw = self.raw
            with raw.pipeline():
                raw.execute("BEGIN")
                if lock_wait_s is not None:
                    raw.execute(f"SET LOCAL lock_timeout = {int(lock_wait_s * 1000)}")
                cursor = raw.execute(text, params)
            return cursor.fetchall()

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        with self.translated(*(text for text, _ in fragments)):
            raw = self.raw
            with raw.pipeline():
                raw.execute("BEGIN")
                cursors = [raw.execute(text, params) for text, params in fragments]
            return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def execute(self, text: str, params: Params) -> Rows:
        with self.translated(text):
            cursor = self.raw.execute(text, params)
            self._affected = cursor.rowcount
            return cursor.fetchall() if cursor.description is not None else []

    def commit(self) -> None:
        try:
            self.raw.execute("COMMIT")
        except psycopg.Error as error:
            if (
                self._raw is None
                or self._raw.closed
                or isinstance(error, pg.AdminShutdown | pg.CrashShutdown)
            ):
                self.close()
                raise CommitUnknownError(
                    f"PostgreSQL at {self._where()} did not answer COMMIT: {error}"
                ) from error
            raise self._error(error) from error

    def rollback(self) -> None:
        if self._raw is None or self._raw.closed:
            return
        try:
            self._raw.execute("ROLLBACK")
        except psycopg.Error:  # the server rolls back when the connection ends
            self.close()

    def identity(self) -> int:
        return self.raw.info.backend_pid

    def end_blockers_of(self, identity: int) -> list[int]:
        try:
            rows = self.execute(
                "SELECT pid, pg_terminate_backend(pid) FROM unnest(pg_blocking_pids(%s)) AS pid WHERE pid <> 0",
                [identity],
            )
        except MissingGrantError as error:
            raise MissingGrantError(f"{error.seen}: {_FOREIGN}", error.statement) from error
        except TargetConfigError as error:
            raise TargetConfigError(f"{error}: {_FOREIGN}") from error
        return [int(str(pid)) for pid, ended in rows if ended]

    def ping(self) -> bool:
        try:
            return self.execute("SELECT 1", []) == [(1,)]
        except ConsumerError:
            return False

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    @contextmanager
    def translated(self, *hints: str) -> Iterator[None]:
        """Translate psycopg's errors: the only place where they are looked at, COMMIT aside.

        `hints`: texts with the qualified names of the tables in use (the statements).
        """
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error, " ".join(hints)) from error

    def _error(self, error: psycopg.Error, hint: str = "") -> ConsumerError:
        state = error.sqlstate or state_in(str(error))
        if _STALE_PLAN in str(error):
            self.close()  # its prepared statements go with it
            kind: type[ConsumerError] = TransientError
        else:
            kind = kind_of(error, state)
        message = f"PostgreSQL at {self._where()}: {said(error, state)} ({state or type(error).__name__})"
        if state == DENIED and (grant := grant_for(str(error), self._target.user, hint)):
            return MissingGrantError(message, grant)
        remedy = REMEDIES.get(state, UNDO if issubclass(kind, TargetConfigError) else "")
        return kind(message + (f": {remedy}" if remedy else ""))


def tls_arguments(target: TargetConfig) -> dict[str, Any]:
    """Return libpq's arguments for the target's TLS settings."""
    tls = target.tls
    if tls is None:
        return {}
    files = {"sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}
    return {"sslmode": _TLS[tls.verify], **{key: str(file) for key, file in files.items() if file}}
