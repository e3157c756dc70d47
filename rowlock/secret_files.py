"""Follows the files of secrets: a password that is changed in its file is used without a reload.

Each process that holds the configuration reads the files again every few seconds. Only they are read, so
an edit of the configuration file still waits for `rowlock reload`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from schemas.config.changes.handed import reread_secrets
from schemas.config.changes.plan import plan_config_change
from schemas.config.model import Config, ConfigErrors

_LOG = structlog.get_logger()

POLL_S = 2.0
"""Seconds between two readings."""
Replace = Callable[[Config, Config], bool]
"""Takes the configuration that was in use, and the same one with other secrets. Returns False if another
one is in use meanwhile. Never waits."""


class SecretFiles:
    """The secret files of the configuration that `get_config` returns."""

    def __init__(self, get_config: Callable[[], Config], replace: Replace) -> None:
        self._get_config, self._replace = get_config, replace
        self._seen: dict[str, str] = {}
        self._errors: list[str] = []

    def poll_files(self) -> None:
        """Read the files, and use texts that differ from those in use and that two readings in a row have
        found: a file may be read while it is being written.
        """
        used = self._get_config()
        try:
            found = reread_secrets(used)
        except ConfigErrors as errors:
            self._report_errors(errors.lines)
            return
        self._report_errors([])
        seen, self._seen = self._seen, found.made_of.secrets
        if found is used or seen != self._seen or not self._replace(used, found):
            return
        planned = plan_config_change(used, found)
        _LOG.info("secrets of changed files used", changes=[str(each) for each in planned.changes])
        if planned.refused:
            _LOG.warning("connections that exist keep the earlier secret", changes=list(planned.refused))

    def _report_errors(self, errors: list[str]) -> None:
        """Log errors once: the files are read every few seconds."""
        if errors and errors != self._errors:
            _LOG.error("secret file refused, the earlier secrets stay in use", errors=errors)
        self._errors = errors


@contextmanager
def follow_secret_files(
    get_config: Callable[[], Config], replace: Replace, poll_s: float = POLL_S
) -> Iterator[None]:
    """Follow the secret files in a thread during the block."""
    files, ending = SecretFiles(get_config, replace), threading.Event()

    def run_loop() -> None:
        while not ending.wait(poll_s):
            try:
                files.poll_files()
            except Exception:  # noqa: BLE001 - logged, and read again
                _LOG.exception("secret files cannot be followed")

    thread = threading.Thread(target=run_loop, name="secret-files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
