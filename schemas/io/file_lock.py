"""A lock on an open file, which the system releases however the process ends."""

from __future__ import annotations

import fcntl
from typing import IO


def try_lock(file: IO[str]) -> bool:
    """Lock the file against other processes and other openings of it. False: another one has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
