"""Forwards the logs of libraries to structlog, like rowlock's own lines: off a terminal every line is a
JSON object.

The process chooses the form of lines (structlog.configure). gRPC's core writes to stderr directly, not
through Python's logging; its calls report the same problems as errors, so it is silent unless
GRPC_VERBOSITY is set.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import structlog

_PLAIN = "rowlock.librdkafka"


class StructlogHandler(logging.Handler):
    """A handler that passes records to structlog.

    `most`: the highest level; records of a higher one are lowered to it.
    """

    def __init__(self, *, most: int = logging.CRITICAL) -> None:
        super().__init__()
        self._most = most

    def emit(self, record: logging.LogRecord) -> None:
        if _is_needless(record):
            return
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        structlog.get_logger(record.name).log(
            min(record.levelno, self._most), record.getMessage(), logger=record.name, exc_info=error
        )


def _is_needless(record: logging.LogRecord) -> bool:
    """Return whether rowlock expects a line, or reports the same itself."""
    text = record.getMessage()
    # librdkafka's warning that the gapless guarantee is "experimental"; rowlock uses it on purpose
    if "CONFWARN" in text:
        return True
    # psycopg's about an error that follows another one, which it raises, and rowlock reports
    return record.name == "psycopg" and text.startswith("error ignored ")


def make_librdkafka_logger(
    *, most: int = logging.INFO, is_logged: Callable[[str], bool] | None = None
) -> logging.Logger:
    """Return a new logger for a Kafka client.

    `most`: the highest level of its lines. `is_logged` decides about each line; None: all are logged.
    """
    logger = logging.Logger(f"{_PLAIN}.{logging.getLevelName(most).lower()}", logging.INFO)
    handler = StructlogHandler(most=most)
    if is_logged is not None:
        handler.addFilter(lambda record: is_logged(record.getMessage()))
    logger.addHandler(handler)
    return logger


def forward_logs_to_structlog() -> None:
    """Forward what libraries log through `logging` and `warnings` to structlog, from level WARNING on.

    Called once for each process, at its start.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, StructlogHandler) for handler in root.handlers):
        root.addHandler(StructlogHandler())
        root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
