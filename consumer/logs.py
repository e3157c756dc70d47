"""The log of the apply process and of its workers: one JSON object a line, to stderr."""

from __future__ import annotations

import logging
import sys

import structlog

from schemas.io.logs import forward_logs_to_structlog


def log_to_stderr() -> None:
    """Configure structlog for this process. Called once, by an entry point."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    forward_logs_to_structlog()
