"""The inbox of one agent: messages that the leader has not taken yet. Pure; the caller locks it.

An agent repeats its whole state at every heartbeat, so a slow leader needs only the last one. When a
whole state arrives, waiting heartbeats and checkpoints of the same incarnation are dropped, which is the
same as if the network had lost them. The inbox of a slow leader therefore stays small, and the lease is
renewed from the newest message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.core.messages import Checkpoint, DispatchResponse, Heartbeat, Sync, UnitStatus, Up
from schemas.problems import shorten_problem

#: Characters of a unit's error that are kept.
LONGEST_ERROR = 4000


class AgentInbox:
    """Waiting messages, their counts, and the errors in them."""

    def __init__(self, capacity: int) -> None:
        self.counts: Counter[str] = Counter()
        """Messages by kind, and the messages that were dropped here."""
        self.errors: dict[str, str] = {}
        """By unit: why it stopped by itself, since the errors were last taken."""
        self._capacity = capacity
        self._waiting: list[Up] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put_message(self, message: Up) -> None:
        """Add a message and drop older ones that it replaces. If the inbox is full it is dropped, unless
        it is a whole state.
        """
        self.counts[type(message).__name__] += 1
        if isinstance(message, Heartbeat | Sync):
            self._drop_outdated(message)
        elif len(self._waiting) >= self._capacity:
            self.counts["dropped: full"] += 1
            return
        elif isinstance(message, DispatchResponse):
            self._note_errors((message.status,))
        self._waiting.append(message)

    def _drop_outdated(self, message: Heartbeat | Sync) -> None:
        self._note_errors(message.statuses)
        epoch = message.header.agent_epoch
        kept = [
            old
            for old in self._waiting
            if not (isinstance(old, Heartbeat | Checkpoint) and old.header.agent_epoch == epoch)
        ]
        self.counts["coalesced"] += len(self._waiting) - len(kept)
        self._waiting = kept

    def _note_errors(self, statuses: Iterable[UnitStatus]) -> None:
        for status in statuses:
            if status.error is not None:
                self.errors[status.unit] = shorten_problem(status.error, LONGEST_ERROR)

    def take_messages(self) -> tuple[list[Up], dict[str, str]]:
        """Return the waiting messages in order, and the errors in them."""
        taken, self._waiting = self._waiting, []
        errors, self.errors = self.errors, {}
        return taken, errors
