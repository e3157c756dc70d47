"""The pollers as threads, and their start and shutdown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from coordinator.batch.mailbox import F, Fsm, M, Mailbox
from coordinator.batch.poller import Poller, PollHandler
from coordinator.batch.ready_queue import ReadyQueue
from coordinator.batch.router import Router


@dataclass(slots=True)
class BatchConfig:
    """The settings of a batch system."""

    pollers: int = 2
    max_batch_size: int = 256
    """May be changed while the system runs."""
    capacity: int = 4096
    """Messages per mailbox."""
    reschedule_after: float = 5.0
    """Seconds after which a poller may hand a machine back."""


class BatchSystem(Generic[F, M]):
    """A running batch system; a context manager.

    `control`: the control machine. `handler(i)` makes the handler of poller i. An error in a handler
    shuts the system down and is raised by `close`, because a machine with a failed handler is in no
    defined state.
    """

    def __init__(
        self,
        control: Fsm,
        handler: Callable[[int], PollHandler[F, M]],
        config: BatchConfig | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or BatchConfig()
        self.ready: ReadyQueue[F, M] = ReadyQueue()
        box: Mailbox[Fsm, Any] = Mailbox(
            "control", control, self.config.capacity, self.ready.schedule_control
        )
        self.router: Router[F, M, Any] = Router(box, self.ready.schedule, self.config.capacity)
        self.error: BaseException | None = None
        self._handler, self._now = handler, now
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self.config.pollers):
            thread = threading.Thread(
                target=self._run_poller, args=(number,), name=f"poller-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def make_poller(self, number: int) -> Poller[F, M]:
        """Return a new poller. Used by `start`, and by tests that drive rounds step by step."""
        return Poller(
            self.router,
            self.ready,
            self._handler(number),
            max_batch_size=lambda: self.config.max_batch_size,
            reschedule_after=self.config.reschedule_after,
            now=self._now,
        )

    def _run_poller(self, number: int) -> None:
        try:
            self.make_poller(number).run()
        except BaseException as error:  # noqa: BLE001 - kept, and raised by close()
            self.error = self.error or error
            self.router.shut_down()
            self.ready.shut_down()

    def close(self) -> None:
        """Refuse new messages, let each poller end its round, and join the threads. Raises the error of
        a handler, if any.
        """
        self.router.shut_down()
        self.ready.shut_down()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> BatchSystem[F, M]:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
