"""The configuration of a coordinator, followed by its inventory and its fences, which change together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from coordinator.server.operators.configuration import ConfigurationRefusedError, FoundConfiguration
from coordinator.server.operators.copies import CopyRequests
from schemas.config.changes.handed import reload_config_file
from schemas.config.changes.parts import compute_config_digest, compute_part_digests
from schemas.config.changes.plan import ConfigPlan, plan_config_change
from schemas.config.model import Config, ConfigErrors

_LOG = structlog.get_logger()


class ConfigFollower(Protocol):
    """An object that follows the configuration."""

    def use_config(self, config: Config, changed: Collection[str]) -> None:
        """Use this configuration from now on. `changed`: the parts that differ from before. Never waits."""


class FollowingCopyDesk(CopyRequests, ConfigFollower, Protocol):
    """Copies of the sources in the active configuration."""


class ActiveConfiguration:
    """The configuration of a coordinator; implements
    coordinator.server.operators.configuration.Configuration.

    It can be used from any thread, because the present configuration is replaced as a whole.
    """

    def __init__(
        self,
        config: Config,
        followers: Sequence[ConfigFollower],
        on_taken: Callable[[Config], None] | None = None,
    ) -> None:
        """`on_taken(config)` is called after a new configuration is adopted."""
        self._held, self._followers, self._on_taken = config, followers, on_taken
        self._found: tuple[str, Config, ConfigPlan] | None = None

    @property
    def config(self) -> Config:
        """The present configuration."""
        return self._held

    def read_file(self) -> FoundConfiguration:
        """Read the file and keep its content for `adopt_config`. Raises ConfigurationRefusedError."""
        try:
            found = reload_config_file(self._held)
        except ConfigErrors as errors:
            raise ConfigurationRefusedError(tuple(errors.lines)) from errors
        planned = plan_config_change(self._held, found)
        if planned.refused:
            raise ConfigurationRefusedError(planned.refused)
        self._found = (compute_config_digest(found), found, planned)
        changes = tuple(str(each) for each in planned.changes)
        return FoundConfiguration(
            compute_config_digest(found), compute_part_digests(found), planned.parts, planned.removed, changes
        )

    def adopt_config(self, digest: str) -> None:
        """Use the configuration that was read last, if it has this digest. Never waits."""
        if self._found is None or self._found[0] != digest:
            _LOG.error("configuration file differs from the active one", active=digest)
            return
        _, self._held, planned = self._found
        self._found = None
        for follower in self._followers:
            follower.use_config(self._held, planned.parts)
        if self._on_taken is not None:
            self._on_taken(self._held)
        _LOG.info("configuration adopted", digest=digest, changes=[str(each) for each in planned.changes])

    def catch_up(self, digest: str) -> None:
        """Use the configuration that an earlier leader activated, if the file holds it."""
        if compute_config_digest(self._held) == digest:
            return
        try:
            found = self.read_file()
        except ConfigurationRefusedError as refused:
            _LOG.error("configuration file refused", errors=refused.lines)
            return
        if found.digest == digest:
            self.adopt_config(digest)
