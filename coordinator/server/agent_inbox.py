"""The inbox of one agent: messages that the owner has not taken yet. Pure; its user locks it.

An agent repeats its whole state at every heartbeat. An owner that is behind needs only the last: an older heartbeat or list of
marks that still waits is dropped when a whole one comes, which is the same as if the network had lost it. So what waits
for a slow owner stays small, and the lease is renewed from the newest word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.core.messages import Checkpoint, DispatchResponse, Heartbeat, Sync, UnitStatus, Up

#: Characters of a unit's error that are kept.
LONGEST_ERROR = 4000


class AgentInbox:
    """`counts`: messages by kind, and what was dropped here. `errors`: unit → why it stopped by itself, since last taken."""

    def __init__(self, capacity: int) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: dict[str, str] = {}
        self._capacity = capacity
        self._waiting: list[Up] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put_message(self, message: Up) -> None:
        """Add a message; older ones that it makes needless go. Beyond the capacity it is dropped, unless it is a whole state."""
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
                self.errors[status.unit] = status.error[:LONGEST_ERROR]

    def take_messages(self) -> tuple[list[Up], dict[str, str]]:
        """Return what waits, in order, and the errors in it."""
        taken, self._waiting = self._waiting, []
        errors, self.errors = self.errors, {}
        return taken, errors
