"""The end of a process after an error of the program itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)

FAULT_EXIT_CODE = 3
"""Exit code after an error of the program itself."""


@contextmanager
def fault_ends_process(where: str) -> Iterator[None]:
    """End the process after an error of the program itself in `where`.

    The state in memory is uncertain after such an error, so all units end with the process.
    """
    try:
        yield
    except BaseException:
        log.critical("process ends: internal error", where=where, exc_info=True)
        os._exit(FAULT_EXIT_CODE)
