"""Operators' commands in one term: each is answered once what it has stored is durable."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.server.operators.api import CommandRefusedError, NotLeaderError
from coordinator.server.requests import CommandRequested


class PendingCommands:
    """One command is carried out at a time; those that have stored something wait, by the tokens of what they stored."""

    def __init__(self) -> None:
        self._now: CommandRequested | None = None
        self._waiting: dict[int, CommandRequested] = {}

    def carry_out(self, asked: CommandRequested, work: Callable[[], None]) -> None:
        """Do `work`, which is the command's: what is stored, refused or resigned meanwhile is so for its sake."""
        self._now = asked
        try:
            work()
        finally:
            self._now = None

    def add_stored_token(self, token: int) -> None:
        """Something was stored under `token`."""
        if self._now is not None:
            self._waiting[token] = self._now

    def await_durable(self, token: int, asked: CommandRequested) -> None:
        """A command that has ended is answered once what was stored under `token` is durable."""
        self._waiting[token] = asked

    def refuse_command(self, why: str) -> None:
        if self._now is not None:
            self._now.answer.fail_with(CommandRefusedError(why))

    def answer_command(self) -> None:
        """Answer the command: its effect is part of this very step."""
        if self._now is not None:
            self._now.answer.give_value(None)

    def settle_command(self, asked: CommandRequested) -> None:
        """Answer a command unless something of it still has to become durable."""
        if not any(waiting is asked for waiting in self._waiting.values()):
            asked.answer.give_value(None)

    def confirm_durable(self, token: int) -> None:
        asked = self._waiting.pop(token, None)
        if asked is not None:
            self.settle_command(asked)

    def close(self) -> None:
        """The term is over: nobody knows what became of those that wait."""
        waiting, self._waiting = self._waiting, {}
        for asked in waiting.values():
            asked.answer.fail_with(NotLeaderError(None))
