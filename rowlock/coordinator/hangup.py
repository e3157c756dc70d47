"""SIGHUP to a coordinator, an agent or a run: what `rowlock reload` does, asked of whichever coordinator leads."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import structlog

from rowlock.errors import CommandError
from schemas.config.model import Config
from schemas.io.signals import on_signals

_LOG = structlog.get_logger()


def reload_on_hangup(config: Config) -> contextlib.AbstractContextManager[None]:
    """Have the system read its configuration files again for each SIGHUP; the answer goes to the log.

    A process whose terminal has gone is stopped by it, as without this: nobody has asked it to read anything.
    """
    on_terminal = _is_on_terminal()

    def ask(_: str) -> None:
        if on_terminal and not _is_on_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            ask_for_reload(config)

    return on_signals(ask, (signal.SIGHUP,), "hangup")


def ask_for_reload(config: Config) -> None:
    """Ask the leader for a reload, and log what came of it."""
    from rowlock.coordinator.leader_client import LeaderClient  # nobody needs it before, and it takes a while

    try:
        with LeaderClient.from_config(config) as leader:
            answer = leader.reload_config()
    except CommandError as error:
        _LOG.error("reload refused", errors=str(error).splitlines())
    except Exception as error:  # noqa: BLE001 - it is asked in a thread that goes on
        _LOG.error("reload failed", error=str(error), exc_info=True)
    else:
        _LOG.info("configuration reloaded", digest=answer["digest"], changes=answer["changes"])


def _is_on_terminal() -> bool:
    try:
        return sys.stdin is not None and os.isatty(sys.stdin.fileno())
    except (OSError, ValueError):
        return False
