"""Limits after which a connection to a target ends whose server is cut off without a word.

A topic whose executor is cut off from the target is applied elsewhere only after that, and the coordinator's
lease, ten seconds by default, is what a cut may cost.
"""

from __future__ import annotations

import errno
import os
import socket
import time

from consumer.errors import ConsumerError, ServerSilentError, TransientError
from schemas.io.refused_logins import REFUSED_LOGINS

SILENCE_S = 10
"""Seconds for which a server's machine may leave data or probes without an acknowledgement. A statement may
take as long as it likes: the machine acknowledges it at once."""
TARGET_CONNECT_S = 6
"""Seconds that a server may take to accept a connection."""
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2}


def mark_silence(error: ConsumerError, began: float, login: tuple[str, int, str, str]) -> ConsumerError:
    """Return the error of a connection that could not be made since `began` (monotonic seconds): as
    ServerSilentError if nothing came back until the time was over.

    `login`: host, port, user and password. A connection that waited for its turn to log in fails with the
    one that had it, so the time of that one counts as well.
    """
    took_s = max(time.monotonic() - began, REFUSED_LOGINS.measure_failure(*login))
    if isinstance(error, TransientError) and took_s >= TARGET_CONNECT_S - 1:
        return ServerSilentError.from_problem(error.problem)
    return error


def is_silence(error: Exception) -> bool:
    """Return whether the system has ended an open connection because the server's machine acknowledged
    nothing for SILENCE_S. No driver has an error of its own for that; over TLS, PyMySQL hides it.
    """
    return os.strerror(errno.ETIMEDOUT) in str(error)


def limit_silence(connection: socket.socket, seconds: int = SILENCE_S) -> None:
    """End a TCP connection after `seconds` without an acknowledgement, where the system can do that."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {**_PROBES, "TCP_KEEPCNT": max(1, (seconds - 5) // 2), "TCP_USER_TIMEOUT": seconds * 1000}
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
