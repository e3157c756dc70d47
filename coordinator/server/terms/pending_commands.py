"""Operators' commands in one term: each is answered once its records are durable."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core.owner.state import Resign
from coordinator.server.operators.api import CommandRefusedError, NotLeaderError
from coordinator.server.requests import CommandRequested


class PendingCommands:
    """Commands that wait for their records, by the tokens of these. One command is executed at a time."""

    def __init__(self) -> None:
        self._now: CommandRequested | None = None
        self._waiting: dict[int, CommandRequested] = {}

    def carry_out(self, asked: CommandRequested, work: Callable[[], None]) -> None:
        """Run `work` for the command: every record, refusal or resignation meanwhile belongs to the
        command.
        """
        self._now = asked
        try:
            work()
        finally:
            self._now = None

    def add_stored_token(self, token: int) -> None:
        """Note that the present command has stored records under `token`."""
        if self._now is not None:
            self._waiting[token] = self._now

    def await_durable(self, token: int, asked: CommandRequested) -> None:
        """Answer a finished command once the records of `token` are durable."""
        self._waiting[token] = asked

    def refuse_command(self, why: str) -> None:
        if self._now is not None:
            self._now.answer.fail_with(CommandRefusedError(why))

    def end_with_term(self) -> None:
        """Answer the present command, whose step ends the term: a resignation has taken effect, and nothing
        of any other command is carried out.
        """
        if self._now is None:
            return
        if isinstance(self._now.command, Resign):
            self._now.answer.give_value(None)
        else:
            self._now.answer.fail_with(NotLeaderError(None))

    def settle_command(self, asked: CommandRequested) -> None:
        """Answer a command unless some of its records are not durable yet."""
        if not any(waiting is asked for waiting in self._waiting.values()):
            asked.answer.give_value(None)

    def confirm_durable(self, token: int) -> None:
        asked = self._waiting.pop(token, None)
        if asked is not None:
            self.settle_command(asked)

    def close(self) -> None:
        """End the term. The results of the waiting commands are unknown, so they fail with NotLeaderError."""
        waiting, self._waiting = self._waiting, {}
        for asked in waiting.values():
            asked.answer.fail_with(NotLeaderError(None))
