"""The output of child processes: JSON lines on stdout are for their parent; log lines are shown like the
parent's own.

Children always log JSON lines. If the parent logs for people, the lines are rendered for people here;
lines that are not JSON (Java's) pass through unchanged.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from typing import IO, Any

import structlog

from rowlock.processes import log

_LOG = structlog.get_logger()
_LEVELS = {"debug", "info", "warning", "error", "critical"}


def follow_log(name: str, stderr: IO[bytes]) -> None:
    """Read a child's log to its end, in a thread of its own."""
    threading.Thread(target=_log_lines, args=(name, stderr), name=f"stderr {name}", daemon=True).start()


def _log_lines(name: str, lines: Iterable[bytes]) -> None:
    for raw in lines:
        fields = parse_log_fields(raw)
        if fields is None or "event" not in fields:
            pass_line_on(raw)
            continue
        level = str(fields.pop("level", "info"))
        phrase = str(fields.pop("event"))
        fields.pop("timestamp", None)
        getattr(_LOG, level if level in _LEVELS else "info")(phrase, **{"child": name, **fields})


def parse_log_fields(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None: the line is something else."""
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def pass_line_on(raw: bytes) -> None:
    """Write a line that is not rowlock's unchanged to stderr."""
    sys.stderr.write(raw.decode(errors="replace"))
    sys.stderr.flush()


def needs_log_rendering() -> bool:
    """Return whether children's log lines must be rendered here; otherwise they write to this process's
    stderr themselves.
    """
    return log.choose_log_style() == "console"
