"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket
import threading

from deploy.errors import EmbeddedError

HOST = "127.0.0.1"
# Below the range that Linux uses for outgoing connections (from 32768): there a client that keeps
# reconnecting to a stopped service could get the service's own port, and its restart would fail.
_RANGE = (15000, 32000)
_taken: set[int] = set()
_chance = random.SystemRandom()  # not the seeded one: two test runs with one seed would pick the same ports
_lock = threading.Lock()


def is_free(port: int) -> bool:
    """Return whether nothing listens on a port; lingering connections of a former listener do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick_port() -> int:
    """Return an unused port that this process has not picked before."""
    while True:
        port = _chance.randrange(*_RANGE)
        with _lock:
            if port not in _taken and is_free(port):
                _taken.add(port)
                return port


def require_free(port: int, service: str) -> None:
    if not is_free(port):
        raise EmbeddedError(
            f"port {port} on {HOST}",
            f"another process listens there already, so {service} cannot",
            "stop that process, or leave the port out and a free one is picked",
        )
