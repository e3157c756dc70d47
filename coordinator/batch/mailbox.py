"""A bounded mailbox that owns its machine while the machine is idle.

```
            notify (a message arrived)                close
   IDLE ────────────────────────────▶ NOTIFIED ─────────────────▶ DROP
    ▲        the ready queue has it,      │  the poller frees it
    └──────  then exactly one poller ────┘  when it releases
                release
```
`IDLE`: the mailbox owns the machine. `NOTIFIED`: the machine is in the ready queue or in one
poller's batch; further messages only join the mailbox. `DROP`: the mailbox is closed.

One lock guards queue, status and machine together. Two rules ensure that no wake-up is lost:

1. a sender pushes *before* it notifies;
2. a poller that releases a machine passes the queue length that it knew *before* the release; if there
   are more messages after the release, it takes the machine back, unless another poller has it already
   (`release_machine`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar


class FsmState(Enum):
    IDLE = "idle"
    NOTIFIED = "notified"
    DROP = "drop"


class Fsm(Protocol):
    """A machine as the batch system sees it. It gets its mailbox with each call of its handler."""

    def is_stopped(self) -> bool:
        """Return whether the machine is finished. The poller then removes it, once its mailbox is empty."""


F = TypeVar("F", bound=Fsm)
M = TypeVar("M")


class SendError(Exception):
    """A message was not accepted; it still belongs to the sender."""


class MailboxFullError(SendError):
    """Back-pressure: the mailbox is at its capacity. Retry later, or use `force_send` for what must not
    be lost.
    """


class MailboxClosedError(SendError):
    """The machine has ended or is ending."""


class Mailbox(Generic[F, M]):
    """The queue of one machine. `schedule` puts a mailbox with work into the ready queue."""

    __slots__ = (
        "_capacity",
        "_closed",
        "_fsm",
        "_lock",
        "_queue",
        "_schedule",
        "_state",
        "address",
        "full_count",
    )

    def __init__(
        self, address: object, fsm: F, capacity: int, schedule: Callable[[Mailbox[F, M], F], None]
    ) -> None:
        self.address = address
        self.full_count = 0
        self._capacity = capacity
        self._closed = False
        self._fsm: F | None = fsm
        self._lock = threading.Lock()
        self._queue: deque[M] = deque()
        self._schedule = schedule
        self._state = FsmState.IDLE

    @property
    def state(self) -> FsmState:
        return self._state

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._queue)

    def try_send(self, message: M) -> None:
        """Push `message` and wake the machine. Raises MailboxFullError or MailboxClosedError, and then
        accepts nothing.
        """
        self._put_message(message, force=False)

    def force_send(self, message: M) -> None:
        """Push `message` regardless of the capacity. Raises MailboxClosedError."""
        self._put_message(message, force=True)

    def _put_message(self, message: M, *, force: bool) -> None:
        with self._lock:
            if self._closed:
                raise MailboxClosedError(f"mailbox {self.address!r} is closed")
            if not force and len(self._queue) >= self._capacity:
                self.full_count += 1
                raise MailboxFullError(f"mailbox {self.address!r} is full: {self._capacity} messages")
            self._queue.append(message)
        self.notify()

    def notify(self) -> None:
        """Schedule the machine if it is idle; otherwise its present holder will see the message."""
        fsm = self.take_machine()
        if fsm is not None:
            self._schedule(self, fsm)

    def take_machine(self) -> F | None:
        """Take the machine out (IDLE → NOTIFIED), or return None if it is not idle."""
        with self._lock:
            if self._state is not FsmState.IDLE:
                return None
            fsm, self._fsm, self._state = self._fsm, None, FsmState.NOTIFIED
        if fsm is None:
            raise AssertionError(f"mailbox {self.address!r}: idle without its machine")
        return fsm

    def release_machine(self, fsm: F, seen: int) -> F | None:
        """Give the machine back (NOTIFIED → IDLE). `seen`: the queue length that the caller knew before
        it decided to release.

        Returns the machine again if messages arrived meanwhile and no other poller has taken it: the
        caller keeps it.
        """
        with self._lock:
            if self._state is FsmState.DROP:
                return None  # closed meanwhile: the machine ends here
            if self._state is not FsmState.NOTIFIED or self._fsm is not None:
                raise AssertionError(f"mailbox {self.address!r}: released twice ({self._state})")
            self._fsm, self._state = fsm, FsmState.IDLE
        return self.take_machine() if len(self._queue) != seen else None

    def drain_messages(self, most: int) -> list[M]:
        """Take up to `most` messages, oldest first. Only the poller that holds the machine calls this."""
        with self._lock:
            count = min(most, len(self._queue))
            return [self._queue.popleft() for _ in range(count)]

    def remove_if_empty(self) -> bool:
        """Close the mailbox of a stopped machine, but only if no message waits. Called by the poller
        that holds the machine.
        """
        with self._lock:
            if self._queue:
                return False
            self._close_queue()
            return True

    def close(self) -> list[M]:
        """Close the mailbox and return the messages that were not handled. A machine that a poller holds
        ends when it is released.
        """
        with self._lock:
            left = list(self._queue)
            self._queue.clear()
            self._close_queue()
            return left

    def _close_queue(self) -> None:
        self._closed, self._state, self._fsm = True, FsmState.DROP, None
