"""The owner's decisions of one round of the batch system: their records become one write to the log, their messages follow. Pure.

Of a key that is stored several times in a round (the counter is with every assignment) only the last value is written: the round is
one transaction, so nobody ever sees one in between.
"""

from __future__ import annotations

from collections import deque

from coordinator.control.codec import RecordChange
from coordinator.core.messages import Down
from coordinator.core.records import DurableRecord


class OwnerRound:
    """`messages`: by agent, in the order given. A round's write is known by its last token; tokens rise."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Down]] = {}
        self._changes: dict[str, DurableRecord | None] = {}
        self._tokens: list[int] = []
        self._written: deque[tuple[int, ...]] = deque()

    def __bool__(self) -> bool:
        """Tell whether there is something that has not been handed on."""
        return bool(self._tokens or self.messages)

    def add_records(self, token: int, changes: tuple[RecordChange, ...]) -> None:
        """Stage the records of one decision."""
        self._tokens.append(token)
        for key, record in changes:
            self._changes.pop(key, None)
            self._changes[key] = record

    def add_message(self, agent: str, message: Down) -> None:
        """Stage a message."""
        self.messages.setdefault(agent, []).append(message)

    def take_write(self) -> tuple[int, tuple[RecordChange, ...]] | None:
        """Return token and records of this round's write, None: it has stored nothing. From now on it is under way."""
        if not self._tokens:
            return None
        tokens, self._tokens = tuple(self._tokens), []
        changes, self._changes = tuple(self._changes.items()), {}
        self._written.append(tokens)
        return tokens[-1], changes

    def take_messages(self) -> dict[str, list[Down]]:
        """Return what is to be said, once what was decided before it has been written down."""
        said, self.messages = self.messages, {}
        return said

    def confirm_durable(self, token: int) -> tuple[int, ...]:
        """The write of this token is committed, and every one before it: return the tokens of the decisions in them, in order."""
        found: list[int] = []
        while self._written and self._written[0][-1] <= token:
            found += self._written.popleft()
        return tuple(found)
