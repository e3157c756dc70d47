"""What answers at a port where the wanted server does not: named, and never waited for without end."""

from __future__ import annotations

import socket

import pytest

from schemas.errors import ServerConnectError
from schemas.io import endpoints
from schemas.io.endpoints import (
    KAFKA_BROKER,
    MYSQL_SERVER,
    POSTGRES_SERVER,
    explain_wrong_service,
    identify_service,
    parse_bootstrap_addresses,
    read_mysql_greeting,
)
from schemas.io.mysql_connection import connect_mysql
from tests.kits.listening import Answer, http, listening, silent


def output(text: bytes) -> Answer:
    def answer(conn: socket.socket) -> None:
        conn.sendall(text)
        silent(conn)

    return answer


def asked(question: bytes, reply: bytes) -> Answer:
    """Hangs up unless it is asked this."""

    def answer(conn: socket.socket) -> None:
        if conn.recv(100).startswith(question):
            conn.sendall(reply)

    return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_GREETING_S", 0.2)
    monkeypatch.setattr(endpoints, "_ANSWER_S", 0.5)
    monkeypatch.setattr("schemas.io.mysql_connection.HANDSHAKE_S", 0.5)


CASES: dict[str, tuple[Answer, str]] = {
    "silent": (silent, "a server that accepts connections and sends nothing"),
    "http": (http, "an HTTP server"),
    "ssh": (output(b"SSH-2.0-OpenSSH_9.7\r\n"), "an SSH server"),
    "mail": (output(b"220 mail.bank.example ESMTP\r\n"), "a server that sends '220 mail.bank.example ESMTP'"),
    "mysql": (output(b"\x4a\0\0\0\x0a9.7.4\0"), MYSQL_SERVER),
    "mysql of protocol 9": (output(b"\x4a\0\0\0\x093.20.1\0"), MYSQL_SERVER),
    "mysql with an error": (output(b"\x4a\0\0\0\xff\x10\x04Too many connections"), MYSQL_SERVER),
    "postgres": (asked(b"\0\0\0\x08\x04\xd2\x16\x2f", b"N"), POSTGRES_SERVER),
    "kafka": (asked(b"\0\0\0\x0a\0\x12", b"\0\0\0\x10\0\0\0\x01\0\0\0\0"), KAFKA_BROKER),
    "kafka in parts": (asked(b"\0\0\0\x0a\0\x12", b"\0\0\0\x10\0\0\0\x01"), KAFKA_BROKER),
    "tls": (asked(b"GET", b"\x15\x03\x01\0\x02\x02\x46"), "a server that wants TLS from the start"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_named(case: str) -> None:
    answer, name = CASES[case]
    with listening(answer) as port:
        assert identify_service("127.0.0.1", port) == name
        notified = explain_wrong_service("127.0.0.1", port, MYSQL_SERVER)
        assert notified is None if name == MYSQL_SERVER else name in str(notified)


def test_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    assert identify_service("127.0.0.1", port) is None
    assert explain_wrong_service("127.0.0.1", port, MYSQL_SERVER) is None


@pytest.mark.parametrize("case", ["silent", "http", "ssh", "mail", "kafka"])
def test_a_connection_to_it_ends_and_says_what_is_there(case: str) -> None:
    """PyMySQL alone waits for ever for the greeting of a port that says nothing."""
    answer, name = CASES[case]
    with listening(answer) as port:
        with pytest.raises(ServerConnectError) as raised:
            connect_mysql("127.0.0.1", port, "u", "p", read_timeout=60)
        assert name in str(raised.value)


def test_addresses_of_brokers() -> None:
    assert parse_bootstrap_addresses("a:9092, SSL://b:9093,[::1]:9094,bare") == [
        ("a", 9092),
        ("b", 9093),
        ("::1", 9094),
    ]
    assert parse_bootstrap_addresses("a:²") == []


@pytest.mark.parametrize(
    ("case", "version"),
    [("mysql", "9.7.4"), ("mysql of protocol 9", ""), ("mysql with an error", ""), ("ssh", "")],
)
def test_a_greeting_names_the_version_before_a_log_in(case: str, version: str) -> None:
    with listening(CASES[case][0]) as port:
        assert read_mysql_greeting("127.0.0.1", port) == version
    assert not read_mysql_greeting("127.0.0.1", port)
