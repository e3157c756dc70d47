"""The queue of machines that have work, shared by all pollers. The control machine has priority.

A control message must be handled right at the beginning of some poller's next round, so a poller that
fills its batch stops as soon as one is waiting (`control_waiting`).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Generic

from coordinator.batch.mailbox import F, Fsm, M, Mailbox

ReadyMachine = tuple[Mailbox[F, M], F]


class ReadyQueue(Generic[F, M]):
    """The queue of machines with work, for many producers and many pollers."""

    def __init__(self) -> None:
        self._normal: deque[ReadyMachine[F, M]] = deque()
        self._control: deque[tuple[Mailbox[Fsm, Any], Fsm]] = deque()
        self._changed = threading.Condition()
        self._down = False

    @property
    def control_waiting(self) -> bool:
        return bool(self._control)

    def __len__(self) -> int:
        return len(self._normal) + len(self._control)

    def schedule(self, mailbox: Mailbox[F, M], fsm: F) -> None:
        with self._changed:
            self._normal.append((mailbox, fsm))
            self._changed.notify()

    def schedule_control(self, mailbox: Mailbox[Fsm, Any], fsm: Fsm) -> None:
        with self._changed:
            self._control.append((mailbox, fsm))
            self._changed.notify()

    def take_control(self) -> tuple[Mailbox[Fsm, Any], Fsm] | None:
        with self._changed:
            return self._control.popleft() if self._control else None

    def take_task(self) -> ReadyMachine[F, M] | None:
        """Return a machine with work, or None if there is none now."""
        with self._changed:
            return self._normal.popleft() if self._normal else None

    def wait_for_work(self) -> bool:
        """Block until there is work (True) or the system shuts down (False)."""
        with self._changed:
            while not (self._normal or self._control or self._down):
                self._changed.wait()
            return not self._down

    def shut_down(self) -> None:
        with self._changed:
            self._down = True
            self._changed.notify_all()

    @property
    def down(self) -> bool:
        return self._down
