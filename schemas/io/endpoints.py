"""A probe that identifies the service at a host and port; used after a connection failed, because wrong
ports are common.

It is not used before a connection to a database: a server counts clients that disconnect without a login, and
blocks their host.
"""

from __future__ import annotations

import socket
import struct

_CONNECT_S = 3.0
_GREETING_S = 1.5
_ANSWER_S = 2.0
_GREETING_PROTOCOL = 10
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
_POSTGRES = struct.pack(">II", 8, 80877103)  # SSLRequest
_KAFKA = struct.pack(">IHHIh", 10, 18, 0, 1, -1)  # ApiVersions, correlation 1, no client id


MYSQL_SERVER = "a MySQL or MariaDB server"
POSTGRES_SERVER = "a PostgreSQL server"
KAFKA_BROKER = "a Kafka broker"


def identify_service(host: str, port: int) -> str | None:
    """Return a name of the service for people ("an HTTP server", …); None: no connection is accepted
    there.

    Takes about ten seconds at most. Raises nothing.
    """
    try:
        greeting = _probe_service(host, port, b"", _GREETING_S)
    except OSError:
        return None
    if greeting:
        return _identify_greeting(greeting)
    kinds = ((_HTTP, _recognize_http), (_POSTGRES, _recognize_postgres), (_KAFKA, _recognize_kafka))
    for question, judge in kinds:
        try:
            answer = _probe_service(host, port, question, _ANSWER_S)
        except OSError:
            continue
        if (kind := judge(answer)) is not None:
            return kind
    return "a server that accepts connections and sends nothing"


def explain_wrong_service(host: str, port: int, expected: str) -> str | None:
    """Return "at h:p answers …, not …" if something else than `expected` ("a MySQL or MariaDB server")
    answers, or nothing.

    None if no connection is accepted, or if `expected` answers.
    """
    found = identify_service(host, port)
    if found is None or found == expected:
        return None
    return f"at {host}:{port} answers {found}, not {expected}"


def read_mysql_greeting(host: str, port: int) -> str:
    """Return the version that a server of MySQL's protocol sends before the log-in; "": none was sent."""
    try:
        greeting = _probe_service(host, port, b"", _GREETING_S)
    except OSError:
        return ""
    has_version = len(greeting) > 5 and greeting[3] == 0 and greeting[4] == _GREETING_PROTOCOL
    return greeting[5:].partition(b"\0")[0].decode("ascii", "replace") if has_version else ""


def is_broker(host: str, port: int) -> bool:
    """Return whether a Kafka broker answers a request without TLS."""
    try:
        answer = _probe_service(host, port, _KAFKA, _ANSWER_S)
    except OSError:
        return False
    return _recognize_kafka(answer) is not None


def parse_bootstrap_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Return the (host, port) of "host:port,host:port"; addresses without a port are left out."""
    found = (each.strip().rpartition("://")[2].rpartition(":") for each in bootstrap.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in found if host and port.isdecimal()]


def _probe_service(host: str, port: int, question: bytes, seconds: float) -> bytes:
    """Connect, send `question`, and return the first bytes of the answer; empty if there are none
    within `seconds`.

    Raises OSError while connecting.
    """
    with socket.create_connection((host, port), timeout=_CONNECT_S) as conn:
        conn.settimeout(seconds)
        try:
            conn.sendall(question)
            return conn.recv(256)
        except OSError:
            return b""


def _identify_greeting(greeting: bytes) -> str:
    if len(greeting) > 4 and greeting[3] == 0 and greeting[4] in (9, 10, 255):
        return MYSQL_SERVER
    if greeting.startswith(b"SSH-"):
        return "an SSH server"
    shown = greeting[:40].decode("ascii", "backslashreplace").strip()
    return f"a server that sends {shown!r}"


def _recognize_http(answer: bytes) -> str | None:
    if answer.startswith(b"HTTP/"):
        return "an HTTP server"
    if answer[:2] == b"\x15\x03":
        return "a server that wants TLS from the start"
    return None


def _recognize_postgres(answer: bytes) -> str | None:
    return POSTGRES_SERVER if answer in (b"S", b"N") else None


def _recognize_kafka(answer: bytes) -> str | None:
    return KAFKA_BROKER if len(answer) >= 8 and answer[4:8] == b"\0\0\0\1" else None
