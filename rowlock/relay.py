"""What children of `run` write: status lines are taken off stdout, log lines are shown as `run` shows its own.

Children always log JSON lines. Where `run` logs for people, they are rendered for people here; lines that are not JSON
(Java's) pass through as they are. Nothing is dropped but the once-a-second `status` lines.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

import structlog

from rowlock import log

_LOG = structlog.get_logger()
_LEVELS = {"debug", "info", "warning", "error", "critical"}

OnStatus = Callable[[str, dict[str, Any]], None]
"""(child, status line) → for whoever wants figures (demo)."""


def follow(name: str, stdout: IO[bytes], stderr: IO[bytes] | None, on_status: OnStatus | None = None) -> None:
    """Read a child's pipes to their ends, in threads of their own."""
    threading.Thread(
        target=_status_lines, args=(name, stdout, on_status), name=f"stdout {name}", daemon=True
    ).start()
    if stderr is not None:
        follow_log(name, stderr)


def follow_log(name: str, stderr: IO[bytes]) -> None:
    """Read a child's log to its end, in a thread of its own."""
    threading.Thread(target=_log_lines, args=(name, stderr), name=f"stderr {name}", daemon=True).start()


def _status_lines(name: str, lines: Iterable[bytes], on_status: OnStatus | None) -> None:
    for raw in lines:
        fields = fields_of(raw)
        if fields is None:
            pass_on(raw)
        elif on_status is not None:
            on_status(name, fields)
        else:
            _LOG.debug("status", child=name, status=fields)


def _log_lines(name: str, lines: Iterable[bytes]) -> None:
    for raw in lines:
        fields = fields_of(raw)
        if fields is None or "event" not in fields:
            pass_on(raw)
            continue
        level = str(fields.pop("level", "info"))
        phrase = str(fields.pop("event"))
        fields.pop("timestamp", None)
        getattr(_LOG, level if level in _LEVELS else "info")(phrase, **{"child": name, **fields})


def fields_of(raw: bytes) -> dict[str, Any] | None:
    """Return a JSON object's line as such; None: it is something else."""
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def pass_on(raw: bytes) -> None:
    """Show a line that is none of ours as it is."""
    sys.stderr.write(raw.decode(errors="replace"))
    sys.stderr.flush()


def wants_log_lines() -> bool:
    """Tell whether children's log lines must be rendered anew; otherwise they write to our stderr themselves."""
    return log.style() == "console"
