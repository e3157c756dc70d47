"""A refused log-in is repeated ever more rarely by its process, and another password is tried at once."""

from __future__ import annotations

import contextlib
import threading
import time

import pymysql
import pytest

from schemas.io.refused_logins import MAX_CONCURRENT_LOGINS, REFUSED_LOGIN_BACKOFF, RefusedLogins


class Server:
    """Accepts one password; `attempts` counts the log-ins that reach it."""

    def __init__(self) -> None:
        self.now, self.attempts, self.password = 0.0, 0, "right"
        self.logins = RefusedLogins(lambda: self.now)

    def login(self, password: str, *, code: int = 1045) -> None:
        with self.logins.try_login("h", 1, "u", password, lambda error: error.args[0] == 1045):
            self.attempts += 1
            if password != self.password:
                raise pymysql.err.OperationalError(code, "Access denied")

    def is_refused(self, password: str) -> bool:
        try:
            self.login(password)
        except pymysql.err.OperationalError as error:
            return error.args == (1045, "Access denied")
        return False


def test_the_first_refusal_answers_for_all_connections_until_its_pause_is_over() -> None:
    server = Server()
    assert all(server.is_refused("old") for _ in range(50))
    assert server.attempts == 1
    server.now += REFUSED_LOGIN_BACKOFF.first
    assert all(server.is_refused("old") for _ in range(50))
    assert server.attempts == 2


def test_a_day_of_a_wrong_password_is_few_attempts() -> None:
    server = Server()
    reached = []
    for second in range(0, 24 * 3600, 5):
        server.now = float(second)
        before = server.attempts
        assert server.is_refused("old")
        if server.attempts > before:
            reached.append(second)
    assert len([second for second in reached if second < 3600]) <= 7
    assert len(reached) <= 12


def test_another_password_and_a_repaired_account_are_taken() -> None:
    server = Server()
    assert server.is_refused("old")
    assert not server.is_refused("right")
    assert server.is_refused("old")
    assert server.attempts == 2
    server.password = "old"
    server.now += REFUSED_LOGIN_BACKOFF.first
    assert not server.is_refused("old")
    assert not server.logins
    server.password = "new"
    assert server.is_refused("old")
    assert server.attempts == 4


def test_a_password_that_a_person_types_reaches_the_server() -> None:
    server = Server()
    assert server.is_refused("old")
    server.password = "old"
    server.logins.forget_refusal("h", 1, "u", "old")
    assert not server.is_refused("old")
    assert server.attempts == 2


def test_other_errors_are_not_paced() -> None:
    server = Server()
    for _ in range(3):
        with pytest.raises(pymysql.err.OperationalError):
            server.login("old", code=2003)
    assert server.attempts == 3
    assert not server.logins


def test_log_ins_that_are_refused_at_once_are_few_and_count_once() -> None:
    logins, attempts = RefusedLogins(lambda: 5.0), list[int]()
    both = threading.Barrier(MAX_CONCURRENT_LOGINS)

    def connect() -> None:
        with contextlib.suppress(pymysql.err.OperationalError):
            with logins.try_login("h", 1, "u", "old", lambda error: True):
                attempts.append(1)
                both.wait(10)
                raise pymysql.err.OperationalError(1045, "Access denied")

    threads = [threading.Thread(target=connect) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(attempts) == MAX_CONCURRENT_LOGINS
    (login,) = logins._logins.values()
    assert login.backoff.failures == 1


def test_log_ins_that_waited_for_a_failed_one_fail_with_it() -> None:
    """Each would wait for a server that cannot be reached, one after the other."""
    logins, begun, go = RefusedLogins(), threading.Semaphore(0), threading.Event()
    attempts: list[int] = []
    errors: list[Exception] = []

    def login(number: int) -> None:
        try:
            with logins.try_login("h", 1, "u", "p", lambda _: False):
                attempts.append(number)
                begun.release()
                assert go.wait(60)
                raise TimeoutError("nothing answers")
        except TimeoutError as error:
            errors.append(error)

    threads = [threading.Thread(target=login, args=(number,)) for number in range(6)]
    for thread in threads[:MAX_CONCURRENT_LOGINS]:
        thread.start()
        assert begun.acquire(timeout=60)
    for thread in threads[MAX_CONCURRENT_LOGINS:]:
        thread.start()
    time.sleep(0.2)
    go.set()
    for thread in threads:
        thread.join(60)
    assert [str(error) for error in errors] == ["nothing answers"] * 6
    assert len(attempts) == MAX_CONCURRENT_LOGINS
    login(6)
    assert attempts[-1] == 6, "a later one is tried"
