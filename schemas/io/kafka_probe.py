"""A probe of Kafka's addresses that needs no client of Kafka.

Kafka's client reports only after its time limit that it has no answer, and the limits grow with the machine's
load: a command was silent for minutes. The probe needs one short exchange.
"""

from __future__ import annotations

import queue
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from schemas.io.endpoints import (
    KAFKA_BROKER,
    explain_wrong_service,
    is_broker,
    parse_bootstrap_addresses,
)
from schemas.patience import scale_timeout

BROKER_START_S = 3.0
"""Seconds in which a broker that was just started may begin to listen."""
UNRESOLVED = "the host's name cannot be resolved"
NO_PORT = "an address is HOST:PORT"
NO_LISTENER = "nothing accepts a connection there"
CLOSED = "a connection there is closed without an answer"
SILENT = "a connection there is accepted, and no request is answered"
_NEAREST_FIRST = (SILENT, CLOSED, NO_LISTENER, UNRESOLVED)
"""Of several addresses the problem of the one that comes nearest to an answer is reported."""
_CONNECT_S = 3.0
_ANSWER_S = 1.0
"""Seconds on an idle machine in which a broker answers the probe."""
_MIN_ANSWER_S, _MAX_ANSWER_S = 10.0, 120.0
"""A broker on another machine may pause for seconds; a person does not wait for minutes."""
_POLL_S = 0.2
_API_VERSIONS = struct.pack(">IHHIh", 10, 18, 0, 1, -1)
"""A request that a broker answers before a log-in: correlation id 1, no client id."""

Probe = Callable[[str, int], str | None]
"""Returns why there is no answer at a host and port; None: there is one."""
Request = Callable[[socket.socket, str], str | None]
"""Asks the host of a connection, and returns the same. Raises TimeoutError without an answer."""


def find_kafka_problem(bootstrap: str, options: Mapping[str, str]) -> str | None:
    """Return why no broker of "host:port,host:port" answers; None: one does, or only the client can read
    the addresses. `options`: the user's settings of Kafka's clients.
    """
    addresses = parse_bootstrap_addresses(bootstrap)
    is_tls = options.get("security.protocol", "").upper().endswith("SSL")
    answer_s = min(_MAX_ANSWER_S, max(_MIN_ANSWER_S, scale_timeout(_ANSWER_S)))
    probe = partial(_probe_address, _request_tls if is_tls else _request_versions, answer_s)
    until = time.monotonic() + BROKER_START_S
    while addresses:
        problems = _probe_addresses(addresses, probe)
        if None in problems:
            return None
        if SILENT in problems:
            return SILENT
        if time.monotonic() >= until:
            return next(each for each in _NEAREST_FIRST if each in problems)
        time.sleep(_POLL_S)
    return None


def explain_missing_broker(bootstrap: str) -> str | None:
    """Return that no Kafka broker answers at "host:port,host:port", and what answers there instead or why
    nothing does; None: a broker answers. TLS is not tried.
    """
    addresses = parse_bootstrap_addresses(bootstrap)
    if any(is_broker(host, port) for host, port in addresses):
        return None
    others = [explain_wrong_service(host, port, KAFKA_BROKER) for host, port in addresses]
    if any(others):
        return "; ".join(filter(None, others))
    problem = find_kafka_problem(bootstrap, {}) if addresses else NO_PORT
    return problem and f"no Kafka broker answers at {bootstrap}: {problem}"


def _probe_addresses(addresses: list[tuple[str, int]], probe: Probe) -> list[str | None]:
    """Return the results of the probes, up to the first answer. The addresses are probed at the same time."""
    results: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for host, port in addresses:
        threading.Thread(target=lambda at: results.put(probe(*at)), args=((host, port),), daemon=True).start()
    found: list[str | None] = []
    while len(found) < len(addresses) and None not in found:
        found.append(results.get())
    return found


def _probe_address(request: Request, answer_s: float, host: str, port: int) -> str | None:
    try:
        conn = socket.create_connection((host, port), timeout=_CONNECT_S)
    except socket.gaierror:
        return UNRESOLVED
    except OSError:
        return NO_LISTENER
    with conn:
        conn.settimeout(answer_s)
        try:
            return request(conn, host)
        except TimeoutError:
            return SILENT
        except OSError:
            return CLOSED


def _request_versions(conn: socket.socket, host: str) -> str | None:
    del host
    conn.sendall(_API_VERSIONS)
    return None if conn.recv(1) else CLOSED


def _request_tls(conn: socket.socket, host: str) -> str | None:
    """Begin TLS: whatever the server makes of that, it is no silence. Kafka's client reports the rest."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        context.wrap_socket(conn, server_hostname=host).close()
    except TimeoutError:
        raise
    except OSError:
        pass
    return None
