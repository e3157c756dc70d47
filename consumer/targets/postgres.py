"""PostgreSQL as a target: the connection (psycopg), and the one place that translates its errors.

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
    AlreadyThereError,
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
from consumer.targets.parts import Parts, Rows
from consumer.targets.postgres_apply import PostgresApplier
from consumer.targets.postgres_catalogue import PostgresCatalogue, quote
from consumer.targets.postgres_rights import grant_for
from consumer.targets.session import SqlSession
from consumer.targets.sql import Fragment, Params

if TYPE_CHECKING:
    from schemas.config import TargetConfig

#: Where the bookkeeping tables are, whatever the user's search_path says.
BOOKS_SCHEMA = "public"
_TYPES = {
    "name": "text NOT NULL",
    "topic": "text NOT NULL",
    "int": "integer NOT NULL",
    "big": "bigint NOT NULL",
    "text": "text NOT NULL",
    "text?": "text",
    "now": "timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "id": "bigint GENERATED ALWAYS AS IDENTITY",
}
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

#: SQLSTATE (class of two characters, or whole) → error; the whole code counts before its class.
_ERRORS: dict[str, type[ConsumerError]] = {
    "23505": UniqueViolationError,
    "22": RefusedError,
    "23": RefusedError,
    "54": RefusedError,  # a row or index entry larger than the server's limits
    "44": RefusedError,  # WITH CHECK OPTION of a view
    "P0001": RefusedError,  # a trigger's RAISE EXCEPTION
    "55000": TargetConfigError,  # what is no table that can be written
    **dict.fromkeys(("42P06", "42P07", "42710"), AlreadyThereError),  # also while somebody else makes the same
    "42": TargetConfigError,  # missing table, column or grant
    "28": TargetConfigError,
    "3D": TargetConfigError,
    "3F": TargetConfigError,
    "0A": TargetConfigError,
}  # fmt: skip
_DENIED = "42501"
_WITH_VALUES = frozenset({"22", "23", "44"})
_FOREIGN = "a connection of another user holds the progress rows (let all workers of a target use one user)"
_REMEDIES = {
    _DENIED: "give the user the right that it lacks, `rowlock check` prints the GRANT (docs/how-to/target-setup.md)",
    "42P01": "create it, or let rowlock create it (create_tables)",
    "428C9": "make the column an ordinary one (no GENERATED ALWAYS), for its values come from the source",
    "42703": "add the column to the target table, or leave it out of the route",
    "42P10": "the target table needs a primary key or unique index over exactly these columns",
    "28P01": "correct user or password in the configuration",
    "28000": "let this user in (the server's pg_hba.conf)",
    "3D000": "create the database, or correct its name in the configuration",
}


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

    def durability(self) -> str | None:
        return None  # seen to at `connect`

    def _arguments(self) -> dict[str, Any]:
        target = self._target
        tls: dict[str, object] = {}
        if target.tls is not None:
            files = {"sslrootcert": target.tls.ca, "sslcert": target.tls.cert, "sslkey": target.tls.key}
            tls = {"sslmode": _TLS[target.tls.verify]}
            tls |= {option: str(file) for option, file in files.items() if file is not None}
        return {
            "host": target.host, "port": target.port, "user": target.user, "dbname": target.database,
            "password": target.password.get_secret_value(), "application_name": self._name[:63],
            "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 30_000,
            "client_encoding": "UTF8",
            "options": " ".join(f"-c {key}={value.replace(' ', chr(92) + ' ')}" for key, value in _SETTINGS.items()),
            **tls,
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
        state = error.sqlstate or _state_in(str(error))
        kind = _ERRORS.get(state) or _ERRORS.get(state[:2])
        if kind is None:
            kind = RefusedError if isinstance(error, psycopg.DataError) else TransientError
        message = f"PostgreSQL at {self._where()}: {_said(error, state)} ({state or type(error).__name__})"
        if state == _DENIED and (grant := grant_for(str(error), self._target.user, hint)):
            return MissingGrantError(message, grant)
        remedy = _REMEDIES.get(state, UNDO if issubclass(kind, TargetConfigError) else "")
        return kind(message + (f": {remedy}" if remedy else ""))


def _said(error: psycopg.Error, state: str) -> str:
    """Return the server's words in one line, without the statement; of a refused row without DETAIL, which holds its values."""
    primary, detail = error.diag.message_primary, error.diag.message_detail
    if primary is None:
        return " ".join(str(error).split())
    whole = primary if detail is None or state[:2] in _WITH_VALUES else f"{primary} ({detail})"
    return " ".join(whole.split())


#: Failures to log in carry no SQLSTATE in libpq; their messages are not translated when lc_messages is C.
_LOGIN = {
    "password authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "permission denied for database": _DENIED,
    "does not exist": "3D000",
}


def _state_in(message: str) -> str:
    return next((state for text, state in _LOGIN.items() if text in message), "")


def open_postgres(target: TargetConfig, name: str) -> SqlSession:
    """Return a connected session. Raises TransientError or TargetConfigError."""
    link = PostgresLink(target, name)
    books = Books(BOOKS_SCHEMA, quote, _TYPES, millis="(EXTRACT(EPOCH FROM {}) * 1000)::bigint")
    return SqlSession(
        Parts(
            link=link,
            books=books,
            catalogue=PostgresCatalogue(target, link),
            applier=PostgresApplier(link, books),
            fresh=lambda: PostgresLink(target, f"{name} take-over"),
        )
    )


POSTGRES = Dialect("postgres", open_postgres)
