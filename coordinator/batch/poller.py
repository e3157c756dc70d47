"""The loop of one poller thread: take a batch of machines, handle each, do the I/O of all of them once,
release.

A round: the control machine, if it has work → every machine already held → newly fetched ones, each
handled at once, until the batch is full, none waits, or a control message arrived → release of those that
need no `end_round` → `end_round` → the rest is released, kept, or handed back (fairness).

Fairness: a machine held longer than `reschedule_after` goes back to the shared queue, but only every
second such machine, so that the busy ones do not all meet again in one poller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from coordinator.batch.mailbox import F, Fsm, M, Mailbox
from coordinator.batch.ready_queue import ReadyQueue
from coordinator.batch.router import Router


@dataclass(frozen=True, slots=True)
class KeepMachine:
    """The state machine has more work and stays in this poller's batch."""


@dataclass(frozen=True, slots=True)
class ReleaseMachine:
    """The state machine has no more work, and leaves this poller's batch until its next message."""

    seen: int = 0
    """The length of its queue after its last look at the mailbox; 0: it took all messages."""
    skip_end: bool = False
    """Release it before `end_round`, which does nothing for it."""


HandleResult = KeepMachine | ReleaseMachine


class PollHandler(Protocol[F, M]):
    """The code that a poller calls. Each poller has its own handler, used only by that thread."""

    def handle_control(self, fsm: Any, mailbox: Mailbox[Any, Any]) -> int | None:
        """Handle the control machine. Returns None if it has more work, otherwise the number of messages
        left that it has seen.
        """

    def handle_normal(self, fsm: F, mailbox: Mailbox[F, M]) -> HandleResult: ...

    def end_round(self, batch: list[F]) -> None:
        """Do the I/O of the round, once for all machines that are still held."""


@dataclass(slots=True)
class _PolledMachine(Generic[F, M]):
    mailbox: Mailbox[F, M]
    fsm: F
    since: float
    result: HandleResult

    def handle_messages(self, handler: PollHandler[F, M]) -> None:
        """Handle the machine's messages in another round."""
        self.result = handler.handle_normal(self.fsm, self.mailbox)

    def keep(self) -> None:
        """Stay in the batch, because messages have arrived since the machine was handled."""
        self.result = KeepMachine()


class Poller(Generic[F, M]):
    """The loop of one poller thread. `now`: a monotonic clock in seconds."""

    def __init__(
        self,
        router: Router[F, M, Any],
        ready: ReadyQueue[F, M],
        handler: PollHandler[F, M],
        *,
        max_batch_size: Callable[[], int],
        reschedule_after: float,
        now: Callable[[], float],
    ) -> None:
        self._router, self._ready, self._handler = router, ready, handler
        self._max_batch_size, self._reschedule_after, self._now = max_batch_size, reschedule_after, now
        self._batch: list[_PolledMachine[F, M]] = []
        self._control: tuple[Mailbox[Fsm, Any], Fsm] | None = None
        self._hot = 0

    def run(self) -> None:
        """Poll until the system shuts down. Machines that are still held then are handed back to the
        queue.
        """
        try:
            while not self._ready.down:
                idle = not (self._batch or self._control or len(self._ready))
                if idle and not self._ready.wait_for_work():
                    break
                self.run_round()
        finally:
            self._return_all()

    def run_round(self) -> None:
        """Run one round. Public for tests that drive a poller step by step."""
        limit = max(self._max_batch_size(), len(self._batch))
        self._handle_control()
        for held in self._batch:
            held.handle_messages(self._handler)
        self._fetch_machines(limit)
        self._release_machines(early=True)
        self._handler.end_round([held.fsm for held in self._batch])
        self._release_machines(early=False)

    def _return_all(self) -> None:
        for held in self._batch:
            self._ready.schedule(held.mailbox, held.fsm)
        self._batch.clear()
        if self._control is not None:
            self._ready.schedule_control(*self._control)
            self._control = None

    def _handle_control(self) -> None:
        self._control = self._control or self._ready.take_control()
        if self._control is None:
            return
        mailbox, fsm = self._control
        seen = self._handler.handle_control(fsm, mailbox)
        if fsm.is_stopped():
            if mailbox.remove_if_empty():
                self._control = None  # otherwise messages wait: it is handled again
        elif seen is not None:
            reacquired = mailbox.release_machine(fsm, seen)
            self._control = (mailbox, reacquired) if reacquired is not None else None

    def _fetch_machines(self, limit: int) -> None:
        while len(self._batch) < limit and not self._ready.control_waiting:
            task = self._ready.take_task()
            if task is None:
                return
            mailbox, fsm = task
            if mailbox.closed:
                continue
            self._batch.append(
                _PolledMachine(mailbox, fsm, self._now(), self._handler.handle_normal(fsm, mailbox))
            )

    def _release_machines(self, *, early: bool) -> None:
        kept: list[_PolledMachine[F, M]] = []
        for held in self._batch:
            if (
                early and not (isinstance(held.result, ReleaseMachine) and held.result.skip_end)
            ) or not self._release_machine(held):
                kept.append(held)
        self._batch = kept

    def _release_machine(self, held: _PolledMachine[F, M]) -> bool:
        """Apply the result of a round to one machine. Returns False if it stays in the batch."""
        if held.mailbox.closed:
            return True
        if held.fsm.is_stopped():
            return self._router.forget_mailbox(held.mailbox)
        if isinstance(held.result, ReleaseMachine):
            reacquired = held.mailbox.release_machine(held.fsm, held.result.seen)
            if reacquired is None:
                return True
            held.keep()
            return False
        return self._return_machine(held)

    def _return_machine(self, held: _PolledMachine[F, M]) -> bool:
        if self._now() - held.since < self._reschedule_after:
            return False
        self._hot += 1
        held.since = self._now()
        if self._hot % 2:
            return False
        self._ready.schedule(held.mailbox, held.fsm)
        return True
