"""Follows the files of secrets: a password that is changed in its file is used without a reload.

Each process that holds the configuration reads the files again every few seconds. Only they are read, so
an edit of the configuration file still waits for `rowlock reload`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from schemas.config.changes.handed import build_with_secrets
from schemas.config.changes.parts import compute_config_digest
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
        self._error = ""

    def poll_files(self) -> None:
        """Read the files, and use texts that differ from those in use and that two readings in a row have
        found: a file may be read while it is being written.
        """
        used = self._get_config()
        folder, known = Path(used.made_of.file).parent, used.made_of.secrets
        try:
            found = {name: _read_secret(folder / name) for name in known}
        except (OSError, ValueError) as error:
            self._report_error(str(error))
            return
        seen, self._seen = self._seen, found
        if found == known:
            self._report_error("")
        elif found == seen:
            self._use_secrets(used, found)

    def _use_secrets(self, used: Config, secrets: dict[str, str]) -> None:
        try:
            config = build_with_secrets(used, secrets)
        except ConfigErrors as errors:
            self._report_error("; ".join(errors.lines))
            return
        self._report_error("")
        if not self._replace(used, config):
            return
        planned = plan_config_change(used, config)
        _LOG.info("secrets of changed files used", changes=[str(each) for each in planned.changes])
        if planned.refused:
            _LOG.warning("connections that exist keep the earlier secret", changes=list(planned.refused))
        if compute_config_digest(config) != compute_config_digest(used):  # that of a Kafka target is in it
            _LOG.warning(
                "a secret is part of the active configuration", remedy="rowlock reload, else new tables wait"
            )

    def _report_error(self, error: str) -> None:
        """Log an error once: the files are read every few seconds."""
        if error and error != self._error:
            _LOG.error("secret file refused, the earlier secrets stay in use", error=error)
        self._error = error


def _read_secret(file: Path) -> str:
    """Return a file's text. Raises OSError, ValueError."""
    text = file.read_text(encoding="utf-8")
    if not text.strip():
        raise ValueError(f"{file} is empty")
    return text


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
