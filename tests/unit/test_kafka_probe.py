"""The probe of Kafka's addresses: it finds each kind of missing answer, and passes over none that comes."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from schemas.io import kafka_probe
from schemas.io.kafka_probe import (
    CLOSED,
    NO_LISTENER,
    NO_PORT,
    SILENT,
    UNRESOLVED,
    explain_missing_broker,
    find_kafka_problem,
)
from tests.kits.listening import Answer, http, listening, silent

TLS = {"security.protocol": "sasl_ssl"}


def answer_request(conn: socket.socket) -> None:
    conn.recv(100)
    conn.sendall(b"\0\0\0\x10\0\0\0\x01")
    silent(conn)


def close_connection(conn: socket.socket) -> None:
    conn.recv(100)


def refuse_tls(conn: socket.socket) -> None:
    conn.recv(1000)
    conn.sendall(b"\x15\x03\x03\0\x02\x02\x28")


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize("options", [{}, TLS])
def test_a_port_without_a_listener_is_found(
    closed_port: int, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_probe, "BROKER_START_S", 0.0)
    assert find_kafka_problem(f"127.0.0.1:{closed_port}", options) == NO_LISTENER


@pytest.mark.parametrize("options", [{}, TLS])
def test_a_name_without_an_address_is_found(
    closed_port: int, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_probe, "BROKER_START_S", 0.0)
    assert find_kafka_problem("kafka1.invalid:9092", options) == UNRESOLVED
    assert find_kafka_problem(f"kafka1.invalid:9092,127.0.0.1:{closed_port}", options) == NO_LISTENER


@pytest.mark.parametrize("options", [{}, TLS])
def test_a_listener_that_does_not_answer_is_found(
    options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_probe, "_MAX_ANSWER_S", 0.1)
    with listening(silent) as port:
        assert find_kafka_problem(f"127.0.0.1:{port}", options) == SILENT


def test_a_listener_that_closes_each_connection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_probe, "BROKER_START_S", 0.0)
    with listening(close_connection) as port:
        assert find_kafka_problem(f"127.0.0.1:{port}", {}) == CLOSED


@pytest.mark.parametrize(
    ("answer", "options"), [(answer_request, {}), (refuse_tls, TLS), (close_connection, TLS)]
)
def test_an_answer_of_any_kind_is_left_to_kafkas_client(answer: Answer, options: Mapping[str, str]) -> None:
    with listening(answer) as port:
        assert find_kafka_problem(f"127.0.0.1:{port}", options) is None


def test_one_broker_that_answers_is_enough(closed_port: int) -> None:
    with listening(answer_request) as port, listening(silent) as other:
        bootstrap = f"127.0.0.1:{closed_port},127.0.0.1:{other},127.0.0.1:{port}"
        assert find_kafka_problem(bootstrap, {}) is None


def test_addresses_that_only_kafkas_client_can_read_are_no_problem() -> None:
    assert find_kafka_problem("kafka1", {}) is None


def test_a_broker_that_begins_to_listen_is_found(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_probe, "BROKER_START_S", 3600.0)
    results = iter((NO_LISTENER, CLOSED, None))
    monkeypatch.setattr(kafka_probe, "_probe_address", lambda *_: next(results))
    monkeypatch.setattr(kafka_probe, "_POLL_S", 0.0)
    assert find_kafka_problem(f"127.0.0.1:{closed_port}", {}) is None


def test_missing_broker_is_explained_with_a_cause(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_probe, "BROKER_START_S", 0.0)
    closed = f"127.0.0.1:{closed_port}"
    assert explain_missing_broker(closed) == f"no Kafka broker answers at {closed}: {NO_LISTENER}"
    assert explain_missing_broker("k.invalid:1") == f"no Kafka broker answers at k.invalid:1: {UNRESOLVED}"
    assert explain_missing_broker("kafka1") == f"no Kafka broker answers at kafka1: {NO_PORT}"


def test_missing_broker_is_explained_unless_one_of_the_addresses_is_a_broker(closed_port: int) -> None:
    with listening(answer_request) as port:
        assert explain_missing_broker(f"127.0.0.1:{closed_port},127.0.0.1:{port}") is None
    with listening(http) as port:
        seen = f"at 127.0.0.1:{port} answers an HTTP server, not a Kafka broker"
        assert explain_missing_broker(f"127.0.0.1:{port}") == seen
