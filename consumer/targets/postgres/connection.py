"""The connection to PostgreSQL (psycopg), the only place that handles its errors.

The connection is in autocommit mode and sends BEGIN itself, so that BEGIN and the guard share one round
trip (pipeline mode). The guard's rows are known before any other statement is sent.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg

from consumer.errors import (
    CommitUnknownError,
    ConsumerError,
    RefusedError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.dialect_components import Rows
from consumer.targets.postgres.errors import (
    build_connect_error,
    build_consumer_error,
    is_refused_password,
    is_stale_plan,
)
from consumer.targets.postgres.locks import PostgresLocks
from consumer.targets.silence import SILENCE_S, TARGET_CONNECT_S, mark_silence
from consumer.targets.sql import Fragment, Params
from schemas.errors import UnsupportedServerError, ValueRefusedError
from schemas.io.certificates import OwnCertificate, probe_expiry
from schemas.io.refused_logins import REFUSED_LOGINS
from schemas.io.server_errors import OLDEST_POSTGRES, explain_version_refusal

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

#: The server ends a transaction that a paused worker left open, and a wait for a lock of another lane
#: or a person.
_SETTINGS = {
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "120s",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    # A batch touches few rows of a table that may be huge and has no statistics: always use the index
    # of the key. Otherwise the planner reads the whole table for a hash join, and keeps that plan while
    # the table grows.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
}
#: With "off" a crash of the server takes back commits that readers have already seen.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_SSL_REQUEST = struct.pack(">II", 8, 80877103)
_TLS = {"full": "verify-full", "ca": "verify-ca", "none": "require"}


class PostgresLink:
    """A `consumer.targets.dialect_components.Link` over psycopg.

    The applier uses `raw` for COPY and pipelines.
    """

    def __init__(self, target: TargetConfig, name: str) -> None:
        self._target = target
        self._name = name
        self._where = f"PostgreSQL at {target.host}:{target.port}/{target.database}"
        self.locks = PostgresLocks(self)
        self._raw: psycopg.Connection[Any] | None = None
        self.affected = 0

    @property
    def raw(self) -> psycopg.Connection[Any]:
        if self._raw is None or self._raw.closed:
            raise TransientError(f"the connection to {self._where} is lost")
        return self._raw

    def connect(self) -> None:
        if self._raw is not None and not self._raw.closed:
            return
        target = self._target
        login = (target.host, target.port, target.user, target.password.get_secret_value())
        began = time.monotonic()
        try:
            with REFUSED_LOGINS.try_login(*login, is_refused_password):
                self._raw = psycopg.connect(**self._build_arguments(), autocommit=True)
        except psycopg.Error as error:
            raise mark_silence(build_connect_error(error, self._where, target), began, login) from error
        with self.translate_errors():
            try:
                self._require_supported(self._raw)
                self._raw.execute(_DURABLE)
            except BaseException:
                self.close()
                raise

    def _require_supported(self, raw: psycopg.Connection[Any]) -> None:
        """Raise TargetConfigError if the server is too old."""
        version = str(raw.info.parameter_status("server_version"))
        if (refused := explain_version_refusal(version, OLDEST_POSTGRES)) is not None:
            target = self._target
            seen = UnsupportedServerError(f"{target.host}:{target.port} {refused.what}", refused.remedy)
            raise TargetConfigError.from_problem(seen.problem) from seen

    def _build_arguments(self) -> dict[str, Any]:
        target = self._target
        return {
            "host": target.host, "port": target.port, "user": target.user, "dbname": target.database,
            "password": target.password.get_secret_value(), "application_name": self._name[:63],
            "connect_timeout": TARGET_CONNECT_S, "keepalives_idle": 5, "keepalives_interval": 2,
            "tcp_user_timeout": SILENCE_S * 1000, "client_encoding": "UTF8",
            "options": " ".join(f"-c {key}={value.replace(' ', chr(92) + ' ')}" for key,
             value in _SETTINGS.items()),
            **build_tls_arguments(target),
        }  # fmt: skip

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        with self.translate_errors(text):
            raw = self.raw
            with raw.pipeline():
                raw.execute("BEGIN")
                if lock_wait_s is not None:
                    raw.execute(f"SET LOCAL lock_timeout = {int(lock_wait_s * 1000)}")
                cursor = raw.execute(text, params)
            return cursor.fetchall()

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        with self.translate_errors(*(text for text, _ in fragments)):
            raw = self.raw
            with raw.pipeline():
                raw.execute("BEGIN")
                cursors = [raw.execute(text, params) for text, params in fragments]
            return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def execute(self, text: str, params: Params) -> Rows:
        with self.translate_errors(text):
            cursor = self.raw.execute(text, params)
            self.affected = cursor.rowcount
            return cursor.fetchall() if cursor.description is not None else []

    def execute_all(self, fragments: Sequence[Fragment]) -> list[int]:
        with self.translate_errors(*(text for text, _ in fragments)):
            raw = self.raw
            with raw.pipeline():
                cursors = [raw.execute(text, params) for text, params in fragments]
            return [cursor.rowcount for cursor in cursors]

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
                raise CommitUnknownError(f"{self._where} did not answer COMMIT: {error}") from error
            raise build_consumer_error(error, self._where, self._target.user) from error

    def roll_back(self) -> None:
        if self._raw is None or self._raw.closed:
            return
        try:
            self._raw.execute("ROLLBACK")
        except psycopg.Error:  # the server rolls back when the connection ends
            self.close()

    def get_connection_id(self) -> int:
        return self.raw.info.backend_pid

    def read_certificate_expiry(self) -> datetime | None:
        """Ask the server over another connection: libpq does not show the certificate of this one."""
        target = self._target
        if target.tls is None:
            return None
        own = OwnCertificate(target.tls.cert, target.tls.key)
        try:
            return probe_expiry(target.host, target.port, own, question=_SSL_REQUEST, consent=b"S")
        except OSError as error:
            raise TransientError(f"{self._where}: TLS cannot be begun: {error}") from error

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
    def translate_errors(self, *hints: str) -> Iterator[None]:
        """Translate psycopg's errors; the only place that inspects them, except for COMMIT.

        `hints`: texts with the qualified names of the tables in use (the statements).
        """
        try:
            yield
        except psycopg.Error as error:
            if is_stale_plan(error):
                self.close()  # its prepared statements are dropped with it
            raise build_consumer_error(error, self._where, self._target.user, " ".join(hints)) from error


def build_tls_arguments(target: TargetConfig) -> dict[str, Any]:
    """Return libpq's arguments for the target's TLS settings."""
    tls = target.tls
    if tls is None:
        return {}
    files = {"sslrootcert": tls.ca, "sslcert": tls.cert, "sslkey": tls.key}
    return {"sslmode": _TLS[tls.verify], **{key: str(file) for key, file in files.items() if file}}


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Translate the refusals of the value functions."""
    try:
        yield
    except ValueRefusedError as error:
        raise RefusedError.wrap_error("PostgreSQL cannot hold a value", error) from error
