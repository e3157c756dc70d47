"""Logging of the command line to stderr, without secrets.

Lines are formatted for people if stderr is a terminal, and as one JSON object a line otherwise
(`--log-format`, or `ROWLOCK_LOG=json|console`, overrides this). `run` passes its choice to its children, so
that all lines of a run have one format.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from schemas.io.logs import forward_logs_to_structlog

_SECRET_WORDS = ("password", "passwd", "secret", "token", "jaas", "private_key")
HIDDEN_FIELD_TEXT = "**********"


def scrub_secrets(_: object, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the value of every field with a name that indicates a secret, also one level down."""
    for name, value in fields.items():
        if _is_secret(name):
            fields[name] = HIDDEN_FIELD_TEXT
        elif isinstance(value, dict):
            fields[name] = {
                key: HIDDEN_FIELD_TEXT if _is_secret(str(key)) else each for key, each in value.items()
            }
    return fields


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def choose_log_style() -> str:
    """Return "console" or "json"."""
    if (chosen := read_log_format()) is not None:
        return chosen
    return "console" if sys.stderr.isatty() else "json"


def read_log_format() -> str | None:
    """Return the format that a person has chosen; None: it depends on the terminal."""
    chosen = os.environ.get("ROWLOCK_LOG", "")
    return chosen if chosen in ("console", "json") else None


def can_show_live_view() -> bool:
    """Return whether stderr is a terminal that can be drawn on, and lines are not asked for instead."""
    if read_log_format() is not None or sys.stderr is None or not sys.stderr.isatty():
        return False
    return os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def configure_logging(level: str = "info") -> None:
    """Configure structlog for this process. Called once, by an entry point."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            scrub_secrets,
            *_build_renderers(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    forward_logs_to_structlog()


def _build_renderers() -> list[Any]:
    if choose_log_style() == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    # structlog's default prints the variables of every frame, and secrets among them
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
