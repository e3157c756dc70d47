"""The configuration of an agent: the one under which its units run, and the one in its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from schemas.config.changes.handed import reload_config_file
from schemas.config.changes.parts import compute_config_digest
from schemas.config.changes.plan import ConfigPlan, plan_config_change
from schemas.config.model import Config, ConfigErrors

_LOG = structlog.get_logger()


class AgentConfiguration:
    """The configuration of an agent; implements coordinator.agent.shell.ConfigFile.

    `use(config)` makes the workers run the units that are prepared from now on under it.
    """

    def __init__(self, config: Config, use: Callable[[Config], None]) -> None:
        self._held, self._use = config, use
        self.digest = compute_config_digest(config)

    def read_file(self) -> tuple[str, tuple[str, ...]]:
        """Return the digest of the file's configuration, and why it could not be used, one line each.
        Nothing changes.
        """
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return "", tuple(errors.lines)
        return compute_config_digest(found), planned.refused

    def adopt_config(self, digest: str) -> bool:
        """Read the file and, if it holds this configuration, use it. False: it does not hold it.

        If the present configuration has the same digest, only secrets can differ. It is then kept when
        the file has become invalid, or is just being edited.
        """
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return self._keep_current(digest, errors.lines)
        if compute_config_digest(found) != digest or planned.refused:
            return self._keep_current(
                digest, planned.refused or (f"{found.path} holds {compute_config_digest(found)}",)
            )
        self._held, self.digest = found, digest
        self._use(found)
        _LOG.info("configuration adopted", digest=digest, changes=[str(each) for each in planned.changes])
        return True

    def _keep_current(self, digest: str, why: Sequence[str]) -> bool:
        """Keep the present configuration. False: it is not the active one."""
        if self.digest == digest:
            _LOG.warning("configuration file refused", reason=list(why))
            return True
        _LOG.error(
            "configuration file differs from the active one", active=digest, reason=list(why)
        )  # fmt: skip
        return False

    def _load_file(self) -> tuple[Config, ConfigPlan]:
        """Return the file's configuration and what it changes. Raises ConfigErrors."""
        found = reload_config_file(self._held)
        return found, plan_config_change(self._held, found)
