"""Messages to the leader's state machine that come neither from agents nor from the control log, and the
answers to some of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

from coordinator.core.leader.state import Inventory, LeaderCommand
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.operators.api import NoAnswerError, View

T = TypeVar("T")


class PendingAnswer(Generic[T]):
    """An answer that the leader's state machine gives once, while the caller waits for it. Later values
    are ignored.
    """

    def __init__(self) -> None:
        self._filled = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    @property
    def filled(self) -> bool:
        return self._filled.is_set()

    @property
    def refused(self) -> str | None:
        """The reason why the request was refused; None: it was not refused, or is not answered yet."""
        return str(self._error) if self._error is not None else None

    def give_value(self, value: T) -> None:
        if not self.filled:
            self._value = value
            self._filled.set()

    def fail_with(self, error: Exception) -> None:
        if not self.filled:
            self._error = error
            self._filled.set()

    def wait_for_value(self, timeout: float) -> T:
        """Return the value. Raises the error given to `fail_with`, or NoAnswerError after `timeout`
        seconds.
        """
        if not self._filled.wait(timeout):
            raise NoAnswerError(f"the leader has not answered within {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # filled without an error


@dataclass(frozen=True, slots=True)
class StreamJoined:
    """An agent has opened a stream."""

    machine: AgentMachine


@dataclass(frozen=True, slots=True)
class StreamLeft:
    machine: AgentMachine
    why: str


@dataclass(frozen=True, slots=True)
class TickDue:
    pass


@dataclass(frozen=True, slots=True)
class InventoryRead:
    """The inventory, read in term `rev`."""

    rev: int
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class FenceDone:
    rev: int
    unit: str
    assignment: int


@dataclass(frozen=True, slots=True)
class CommandRequested:
    """An operator's command that waits for its answer."""

    command: LeaderCommand
    answer: PendingAnswer[None]
    by: str = ""
    """The operator, as far as known."""


@dataclass(frozen=True, slots=True)
class ViewRequested:
    answer: PendingAnswer[View]
