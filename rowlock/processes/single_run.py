"""Lets only one `rowlock run` of a system run on a machine.

A second one would take over the units of the first one, because both agents have the name of the machine
(rowlock/processes/run.py), and the first one would end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from rowlock.errors import CommandError
from rowlock.processes.run import build_agent_name
from schemas.config.model import Config
from schemas.io.file_lock import try_lock


@contextlib.contextmanager
def claim_run(config: Config) -> Iterator[None]:
    """Hold the lock of this system's run on this machine. Raises CommandError if another process holds it.

    The system releases the lock however its process dies, so the file itself remains. A `state_dir` in which
    no file can be written has no lock: `check` refuses it.
    """
    path = config.state_dir / f"{build_agent_name()}.{config.kafka.prefix}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError:
        yield
        return
    with file:
        _lock_or_refuse(file)
        yield


def _lock_or_refuse(file: IO[str]) -> None:
    """Lock the file and write this process's number into it."""
    if not try_lock(file):
        file.seek(0)
        pid = file.read() or "unknown"
        raise CommandError(
            f"another `rowlock run` (pid {pid}) of this configuration is running on this machine",
            "stop it first (see `rowlock status`)",
        )
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
