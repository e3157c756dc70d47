"""Log-ins that a server has refused: a process repeats them ever more rarely.

Servers can lock an account after some failed log-ins in a row (Oracle after ten, by default), and the units
of one process open many connections with the same password. So the first refusal answers for all of them
until its pause is over. Another password is another log-in, which is tried at once.
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
CORRECT_LOGIN = (
    "correct them in the configuration (running processes read a password file again by themselves; they "
    "repeat a refused log-in ever more rarely, so that the server does not lock the account)"
)
#: Eight attempts in the first hour.
REFUSED_LOGIN_BACKOFF = Backoff(first=30.0, longest=24 * 3600.0)


@dataclass(slots=True)
class RefusedLogins:
    """The refused log-ins of a process, for any thread. `now`: monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _refused: dict[str, tuple[Backoff, Exception]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._refused)

    @contextmanager
    def try_login(
        self, host: str, port: int, user: str, password: str, is_refusal: Callable[[Exception], bool]
    ) -> Iterator[None]:
        """Log in within this block. `is_refusal`: returns whether an error refuses user or password.

        During the pause after a refusal the block is not entered: the server's error is raised again.
        """
        login = hashlib.sha256(repr((host, port, user, password)).encode()).hexdigest()
        backoff, error = self._refused.get(login, (REFUSED_LOGIN_BACKOFF, None))
        if error is not None and self.now() < backoff.next_at:
            raise type(error)(*error.args)
        try:
            yield
        except Exception as refused:
            if is_refusal(refused):
                with self._mutex:
                    before, _ = self._refused.get(login, (REFUSED_LOGIN_BACKOFF, None))
                    self._refused[login] = (before.with_failure(self.now()), refused)
            raise
        with self._mutex:
            self._refused.pop(login, None)


#: Those of this process.
REFUSED_LOGINS = RefusedLogins()
