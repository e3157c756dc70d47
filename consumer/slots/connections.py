"""The connections to one target of one thread of a slot, or of one operation on a unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from consumer.errors import ConsumerError, ServerSilentError, TransientError
from consumer.targets.base import UnitTarget
from consumer.targets.dialect import open_target
from schemas.config.model import TargetConfig

PAUSE_S = 1.0
"""Seconds after a failed connection during which other units do not try again."""


def ignore_unreachable(error: str) -> None:
    """Do nothing when a server cannot be reached: outside of slots the operation's own error is enough."""


class ConnectionCache:
    """Connections to a target, by lane number; a whole-batch target has one.

    `name`: the connections' name in the server's list of sessions.
    """

    def __init__(
        self, target: TargetConfig, name: str, on_unreachable: Callable[[str], None] = ignore_unreachable
    ) -> None:
        """`on_unreachable`: receives why the target could not be reached."""
        self._target, self._on_unreachable = target, on_unreachable
        self._name = name
        self._open: dict[int, UnitTarget] = {}
        self._failed_at, self._failed = -PAUSE_S, TransientError("")

    def use_target(self, target: TargetConfig) -> None:
        """Open connections with these settings from now on, which differ in secrets alone."""
        self._target = target

    def get_connection(self, number: int) -> UnitTarget:
        connection = self._open.get(number)
        if connection is None:
            connection = self._open[number] = self._open_connection(number)
        return connection

    def _open_connection(self, number: int) -> UnitTarget:
        if time.monotonic() - self._failed_at < PAUSE_S:
            raise type(self._failed)("the target could not be reached a moment ago")
        try:
            return open_target(self._target, name=f"{self._name} lane {number}")
        except TransientError as error:
            self._failed_at, self._failed = time.monotonic(), error
            self._on_unreachable(str(error))
            raise

    def report_silence(self, error: ServerSilentError) -> None:
        self._on_unreachable(str(error))

    def drop_if_broken(self, number: int) -> None:
        connection = self._open.get(number)
        if connection is not None and not connection.ping():
            self.drop_connection(number)

    def drop_connection(self, number: int) -> None:
        connection = self._open.pop(number, None)
        if connection is not None:
            with suppress(ConsumerError):
                connection.close()

    def close(self) -> None:
        for number in list(self._open):
            self.drop_connection(number)
