"""The configuration of an agent: what its units run under, and what its file holds by now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from schemas.config.changes.handed import reload_config_file
from schemas.config.changes.parts import compute_config_digest
from schemas.config.changes.plan import ConfigPlan, plan_config_change
from schemas.config.model import Config, ConfigErrors

_LOG = structlog.get_logger()


class AgentConfiguration:
    """Implements coordinator.agent.shell.FileOf. `use`: has the workers run what is prepared from now on under it."""

    def __init__(self, config: Config, use: Callable[[Config], None]) -> None:
        self._held, self._use = config, use
        self.digest = compute_config_digest(config)

    def read_file(self) -> tuple[str, tuple[str, ...]]:
        """Return what the file holds, and why it could not be taken, a line each. Nothing changes."""
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return "", tuple(errors.lines)
        return compute_config_digest(found), planned.refused

    def adopt_config(self, wanted: str) -> bool:
        """Read the file; if it holds this, use it. False: it does not.

        Where what is held is this as well, only secrets can be others: it is kept if the file has become bad, or somebody has begun to edit it.
        """
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return self._keep_current(wanted, errors.lines)
        if compute_config_digest(found) != wanted or planned.refused:
            return self._keep_current(
                wanted, planned.refused or (f"{found.path} holds {compute_config_digest(found)}",)
            )
        self._held, self.digest = found, wanted
        self._use(found)
        _LOG.info("configuration adopted", digest=wanted, changes=[str(each) for each in planned.changes])
        return True

    def _keep_current(self, wanted: str, why: Sequence[str]) -> bool:
        """Go on with what is held. False: that is not what is in force."""
        if self.digest == wanted:
            _LOG.warning("configuration file refused", reason=list(why))
            return True
        _LOG.error(
            "configuration file differs from the active one", active=wanted, reason=list(why)
        )  # fmt: skip
        return False

    def _load_file(self) -> tuple[Config, ConfigPlan]:
        """Raises ConfigErrors."""
        found = reload_config_file(self._held)
        return found, plan_config_change(self._held, found)
