"""Libraries' logs, through the logger of rowlock's own lines: off a terminal every line is a JSON object.

Which form that is (structlog.configure) is the process's business. gRPC's core writes to stderr by itself, past everything
of Python's; what it has to say comes as an error of the call as well, so it is silent unless GRPC_VERBOSITY asks for it.
"""

from __future__ import annotations

import logging
import os

import structlog

_PLAIN = "rowlock.librdkafka"


class StructlogHandler(logging.Handler):
    """Hands records to structlog. `most`: a record of a higher level counts as one of this."""

    def __init__(self, *, most: int = logging.CRITICAL) -> None:
        super().__init__()
        self._most = most

    def emit(self, record: logging.LogRecord) -> None:
        if (
            "CONFWARN" in record.getMessage()
        ):  # librdkafka on the gapless guarantee being "experimental": wanted
            return
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        structlog.get_logger(record.name).log(
            min(record.levelno, self._most), record.getMessage(), logger=record.name, exc_info=error
        )


def make_librdkafka_logger(*, most: int = logging.INFO) -> logging.Logger:
    """Return a logger for a Kafka client (broker lost, found again). `most`: no line of it is of a higher level."""
    name = f"{_PLAIN}.{logging.getLevelName(most).lower()}"
    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(StructlogHandler(most=most))
        logger.propagate = False
        logger.setLevel(logging.INFO)
    return logger


def forward_logs_to_structlog() -> None:
    """Have what libraries log through `logging` and `warnings` go to structlog, from warnings on. Once a process, at its entry."""
    root = logging.getLogger()
    if not any(isinstance(handler, StructlogHandler) for handler in root.handlers):
        root.addHandler(StructlogHandler())
        root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
