"""The configuration that a coordinator goes by: its catalogue and its fences, changed together when another one is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from coordinator.server.operators.configuration import ConfigurationRefusedError, FoundConfiguration
from coordinator.server.operators.copies import CopyOrders
from schemas.config.changes.handed import read_again
from schemas.config.changes.parts import digest, part_digests
from schemas.config.changes.plan import ConfigPlan, plan
from schemas.config.model import Config, ConfigErrors

_LOG = structlog.get_logger()


class Follower(Protocol):
    """Somebody who goes by the configuration."""

    def take(self, config: Config, changed: Collection[str]) -> None:
        """Go by this one from now on. `changed`: its parts that differ from before. Never waits."""


class FollowingDesk(CopyOrders, Follower, Protocol):
    """The desk for copies of the sources of the configuration in force."""


class HeldConfiguration:
    """Implements coordinator.server.operators.configuration.Configuration. From any thread: what is held is replaced as a whole."""

    def __init__(
        self,
        config: Config,
        followers: Sequence[Follower],
        on_taken: Callable[[Config], None] | None = None,
    ) -> None:
        """`on_taken`: is told of what is taken, besides."""
        self._held, self._followers, self._on_taken = config, followers, on_taken
        self._found: tuple[str, Config, ConfigPlan] | None = None

    @property
    def config(self) -> Config:
        """The configuration that is held."""
        return self._held

    def read(self) -> FoundConfiguration:
        """Read the file and keep what it holds for `take`. Raises ConfigurationRefusedError."""
        try:
            found = read_again(self._held)
        except ConfigErrors as errors:
            raise ConfigurationRefusedError(tuple(errors.lines)) from errors
        planned = plan(self._held, found)
        if planned.refused:
            raise ConfigurationRefusedError(planned.refused)
        self._found = (digest(found), found, planned)
        changes = tuple(str(each) for each in planned.changes)
        return FoundConfiguration(digest(found), part_digests(found), planned.parts, planned.gone, changes)

    def take(self, digest: str) -> None:
        """From now on go by what was read last, if that is it; never waits."""
        if self._found is None or self._found[0] != digest:
            _LOG.error("configuration in force is not the one that was read: reload it", in_force=digest)
            return
        _, self._held, planned = self._found
        self._found = None
        for follower in self._followers:
            follower.take(self._held, planned.parts)
        if self._on_taken is not None:
            self._on_taken(self._held)
        _LOG.info("configuration taken", digest=digest, changes=[str(each) for each in planned.changes])

    def catch_up(self, wanted: str) -> None:
        """An earlier owner has put this in force: take it if the file holds it."""
        if digest(self._held) == wanted:
            return
        try:
            found = self.read()
        except ConfigurationRefusedError as refused:
            _LOG.error("the file cannot be taken, what was read before is put in force", errors=refused.lines)
            return
        if found.digest == wanted:
            self.take(wanted)
