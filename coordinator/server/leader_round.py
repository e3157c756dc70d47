"""The leader's decisions in one round of the batch system: their records become one write to the log,
their messages follow. Pure.

If a key is stored several times in a round (the counter is stored with every assignment), only the last
value is written. The round is one transaction, so no reader sees a value in between.
"""

from __future__ import annotations

from collections import deque

from coordinator.control.codec import RecordChange
from coordinator.core.messages import Down
from coordinator.core.records import DurableRecord


class LeaderRound:
    """The decisions of a round. A write is identified by its last token; tokens grow."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Down]] = {}
        """By agent, in the order in which they were added."""
        self._changes: dict[str, DurableRecord | None] = {}
        self._tokens: list[int] = []
        self._written: deque[tuple[int, ...]] = deque()

    def __bool__(self) -> bool:
        """Return whether there are decisions that have not been taken yet."""
        return bool(self._tokens or self.messages)

    def add_records(self, token: int, changes: tuple[RecordChange, ...]) -> None:
        """Add the records of one decision."""
        self._tokens.append(token)
        for key, record in changes:
            self._changes.pop(key, None)
            self._changes[key] = record

    def add_message(self, agent: str, message: Down) -> None:
        self.messages.setdefault(agent, []).append(message)

    def take_write(self) -> tuple[int, tuple[RecordChange, ...]] | None:
        """Return the token and the records of this round's write, or None if there are no records. The
        write then counts as under way.
        """
        if not self._tokens:
            return None
        tokens, self._tokens = tuple(self._tokens), []
        changes, self._changes = tuple(self._changes.items()), {}
        self._written.append(tokens)
        return tokens[-1], changes

    def take_messages(self) -> dict[str, list[Down]]:
        """Return the messages to send, once the records of the earlier decisions are handed to the log."""
        taken, self.messages = self.messages, {}
        return taken

    def confirm_durable(self, token: int) -> tuple[int, ...]:
        """Return the tokens of the decisions in the write of this token and in all before it, in order:
        they are durable.
        """
        found: list[int] = []
        while self._written and self._written[0][-1] <= token:
            found += self._written.popleft()
        return tuple(found)
