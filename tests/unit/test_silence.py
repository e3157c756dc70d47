"""A connection to a target ends soon after its server is cut off."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pymysql
import pytest

from consumer.attempt.transactions import MAX_TRANSACTION_TRIES, retry_transient
from consumer.errors import ServerSilentError, TargetConfigError, TransientError
from consumer.targets.dialect import open_target
from consumer.targets.mysql.errors import build_consumer_error as build_mysql_error
from consumer.targets.postgres.errors import build_consumer_error as build_postgres_error
from consumer.targets.silence import SILENCE_S, TARGET_CONNECT_S, limit_silence, mark_silence
from schemas.config.model import TargetConfig
from schemas.io.refused_logins import REFUSED_LOGINS


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own option")
def test_tcp_ends_after_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            limit_silence(client)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_S * 1000
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            limit_silence(client, 40)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 40_000


def test_another_kind_of_socket_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        limit_silence(one)


LOGIN = ("127.0.0.1", 1, "u", "p")
FAILURES: dict[str, Exception] = {
    "postgres": psycopg.errors.ConnectionTimeout("connection timeout expired"),
    "mysql": pymysql.err.OperationalError(2003, "Can't connect to MySQL server on '127.0.0.1' (timed out)"),
}


def make_clock(failure: Exception, took_s: float) -> Callable[[], float]:
    """Return a clock for REFUSED_LOGINS: the next log-in waits, no time at all, for another one that fails
    after `took_s` seconds."""
    seconds, has_failed = 0.0, False

    def read_clock() -> float:
        nonlocal seconds, has_failed
        asked, fails_now, has_failed = seconds, not has_failed, True
        if fails_now:
            with suppress(type(failure)), REFUSED_LOGINS.try_login(*LOGIN, lambda _: False):
                seconds += took_s
                raise failure
        return asked

    return read_clock


@pytest.mark.parametrize(("took_s", "is_silent"), [(TARGET_CONNECT_S, True), (0.1, False)])
@pytest.mark.parametrize("kind", FAILURES)
def test_log_ins_that_fail_together_found_the_same_silent_server(
    kind: str, took_s: float, is_silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log-in that waited for its turn has waited for less time than the one with which it fails."""
    monkeypatch.setattr(REFUSED_LOGINS, "now", make_clock(FAILURES[kind], took_s))
    host, port, user, password = LOGIN
    target = TargetConfig(type=kind, host=host, port=port, user=user, password=password, database="d")
    with pytest.raises(TransientError) as failed:
        open_target(target, name="a test")
    assert isinstance(failed.value, ServerSilentError) == is_silent


LOST = {
    "postgres": lambda why: build_postgres_error(
        psycopg.OperationalError(f"could not receive data from server: {why}"), "x", "u"
    ),
    "mysql": lambda why: build_mysql_error(
        pymysql.err.OperationalError(2013, f"Lost connection to MySQL server during query ([Errno 1] {why})"),
        "x", "u",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("number", "is_silent"), [(errno.ETIMEDOUT, True), (errno.ECONNRESET, False)])
@pytest.mark.parametrize("kind", LOST)
def test_a_connection_that_nothing_acknowledged_found_a_silent_server(
    kind: str, number: int, is_silent: bool
) -> None:
    """The attempt ends: a new connection would be made in vain, for six more seconds."""
    error = LOST[kind](os.strerror(number))
    assert isinstance(error, TransientError)
    assert isinstance(error, ServerSilentError) == is_silent


def test_only_a_connection_that_waited_in_vain_found_a_silent_server() -> None:
    now, refused = time.monotonic(), TransientError("refused")
    assert mark_silence(refused, now, LOGIN) is refused
    silent = mark_silence(TransientError("nothing", "look"), now - TARGET_CONNECT_S, LOGIN)
    assert isinstance(silent, ServerSilentError)
    assert str(silent.problem.action) == "look"
    wrong = TargetConfigError("no such database")
    assert mark_silence(wrong, now - TARGET_CONNECT_S, LOGIN) is wrong


@pytest.mark.parametrize(
    ("error", "tries"), [(ServerSilentError("nothing"), 1), (TransientError("lost"), MAX_TRANSACTION_TRIES)]
)
def test_a_silent_server_is_not_asked_again(error: TransientError, tries: int) -> None:
    asked: list[int] = []

    def ask() -> Iterator[Any]:
        asked.append(1)
        raise error
        yield

    with pytest.raises(TransientError):
        for _ in retry_transient(ask):  # type: ignore[arg-type]
            pass
    assert len(asked) == tries
