"""Log-ins that a server has refused: a process repeats them ever more rarely.

Servers can lock an account after some failed log-ins in a row (Oracle after ten, by default), and the units
of one process open many connections with the same password. So the first refusal answers for all of them
until its pause is over. Another password is another log-in, which is tried at once, and so is one that a
person types.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schemas.backoff import Backoff

#: The remedy of a refused user or password.
CORRECT_LOGIN = "correct the user or the password; see `rowlock docs troubleshoot`"
#: Eight attempts in the first hour.
REFUSED_LOGIN_BACKOFF = Backoff(first=30.0, longest=24 * 3600.0)
MAX_CONCURRENT_LOGINS = 2
"""Log-ins of one user that a process makes at once: more could fail at once, before the first refusal is
known."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A log-in that failed for another reason than a refusal. Times are monotonic seconds."""

    began: float
    ended: float
    kind: type[Exception]
    arguments: tuple[object, ...]


@dataclass(slots=True)
class _Login:
    """A log-in: server, user and password."""

    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_CONCURRENT_LOGINS))
    backoff: Backoff = REFUSED_LOGIN_BACKOFF
    refusal: tuple[type[Exception], tuple[object, ...]] | None = None
    """Class and arguments of the server's error; None: it is not refused."""
    failure: _Failure | None = None
    """The last failure for another reason."""

    def record_success(self) -> None:
        """Record that the server has accepted it."""
        self.refusal, self.backoff = None, REFUSED_LOGIN_BACKOFF

    def record_failure(self, error: Exception, begun: float, now: float) -> None:
        """Record that an attempt failed for another reason than a refusal."""
        self.failure = _Failure(begun, now, type(error), error.args)

    def record_refusal(self, error: Exception, begun: float, now: float) -> None:
        """Record a refusal of what began at `begun`; log-ins that were made at once count as one failure."""
        if self.refusal is None or begun > self.backoff.since:
            self.backoff = self.backoff.with_failure(now)
        self.refusal = type(error), error.args


@dataclass(slots=True)
class RefusedLogins:
    """The log-ins of a process that were refused, for any thread. `now`: monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _logins: dict[str, _Login] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(login.refusal is not None for login in list(self._logins.values()))

    @contextmanager
    def try_login(
        self, host: str, port: int, user: str, password: str, is_refusal: Callable[[Exception], bool]
    ) -> Iterator[None]:
        """Log in within this block. `is_refusal`: returns whether an error refuses user or password.

        Log-ins that had to wait while another one failed, for any reason, fail with it: if the server cannot
        be reached, each would wait for that in vain, one after the other.
        During the pause after a refusal the block is not entered: the server's error is raised again.
        """
        with self._mutex:
            login = self._logins.setdefault(_build_key(host, port, user, password), _Login())
        asked = self.now()
        with login.turns:
            self._raise_known_refusal(login)
            if login.failure is not None and login.failure.ended > asked:
                raise login.failure.kind(*login.failure.arguments)
            begun = self.now()
            try:
                yield
            except Exception as error:
                if is_refusal(error):
                    with self._mutex:
                        login.record_refusal(error, begun, self.now())
                else:
                    login.record_failure(error, begun, self.now())
                raise
            with self._mutex:
                login.record_success()

    def is_refused(self, host: str, port: int, user: str, password: str) -> bool:
        """Return whether the last attempt of this log-in was refused."""
        with self._mutex:
            login = self._logins.get(_build_key(host, port, user, password))
        return login is not None and login.refusal is not None

    def measure_failure(self, host: str, port: int, user: str, password: str) -> float:
        """Return how many seconds this log-in took when it last failed for another reason than a refusal;
        0.0: it never did.
        """
        with self._mutex:
            login = self._logins.get(_build_key(host, port, user, password))
        failure = None if login is None else login.failure
        return 0.0 if failure is None else failure.ended - failure.began

    def forget_refusal(self, host: str, port: int, user: str, password: str) -> None:
        """Let the server answer the next attempt: a person has typed the password, or created the user."""
        with self._mutex:
            self._logins.pop(_build_key(host, port, user, password), None)

    def _raise_known_refusal(self, login: _Login) -> None:
        with self._mutex:
            refusal, due = login.refusal, login.backoff.next_at
        if refusal is not None and self.now() < due:
            kind, arguments = refusal
            raise kind(*arguments)


def _build_key(host: str, port: int, user: str, password: str) -> str:
    return hashlib.sha256(repr((host, port, user, password)).encode()).hexdigest()


#: Those of this process.
REFUSED_LOGINS = RefusedLogins()
