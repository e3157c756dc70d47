"""The thin thread shell around dispatch and lanes: one daemon thread a lane, joined before `close` returns.

```python
with LaneThreads(dispatcher, locks, apply, limits=Limits(), held=held) as lanes:
    for chunk in chunks:                       # a few hundred accepted events
        lanes.submit(plan, changes)
    idle = lanes.drain(mark)                   # batch end or barrier: all lanes stand at mark, but for `idle`
    new = progress.idle_rows(rows, idle, mark) # the caller writes these in one transaction, guarded by their old rows
```
`apply(lane, batch)` runs in that lane's thread, with a connection of that lane: open `Session.transaction(unit, [row])`,
`tx.apply(net, displacing=batch.displacing)` for each net, `tx.hold(batch.held)`, `tx.write_progress([advanced(row,
batch.mark)])`. It raises consumer.errors; after a commit of unknown outcome it first lets the row decide
(progress.committed). Transient errors are tried again here, with backoff. The first error of any lane stops the others
after the transaction they are in, and is raised by `submit`, `drain` or leaving the `with` block.

One mutex guards the locks and all hand-over; a condition per lane, on that mutex, is what a lane sleeps on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from consumer.dispatch import Dispatcher, TablePlan
from consumer.lanes import Apply, Batch, Idle, Lane, Limits, WaitFor
from consumer.locks import LockTable, Wait
from consumer.model import Held, RowChange
from consumer.progress import Mark

ApplyBatch = Callable[[int, Batch], None]


class Scheduler(Protocol):
    """Test hook that chooses the interleaving: called by a lane's thread before each step; may block.

    Steps: "apply" (before the target transaction), "applied" (committed, its events not released yet), "wait" (about to
    wait for another lane).
    """

    def turn(self, lane: int, step: str, batch: Batch | None) -> None: ...


class LaneThreads:
    """The lanes of one task attempt. Used by one thread (the caller's); not restartable."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        locks: LockTable,
        apply: ApplyBatch,
        *,
        limits: Limits,
        held: Sequence[Held] = (),
        replace: bool = True,
        max_pending: int = 50_000,
        scheduler: Scheduler | None = None,
    ) -> None:
        """`held`, `replace`: see lanes.Lane. `max_pending`: events handed over and not yet committed."""
        count = dispatcher.layout.lanes
        self._dispatcher, self._locks, self._apply, self._scheduler = dispatcher, locks, apply, scheduler
        self._lanes = [Lane(number, locks, limits, held, replace=replace) for number in range(count)]
        self._mutex = threading.Lock()
        self._wake = [threading.Condition(self._mutex) for _ in range(count)]
        self._caller = threading.Condition(self._mutex)
        self._sleeping_on_locks: set[int] = set()
        self._pending, self._max_pending = 0, max_pending
        self._drained: dict[int, bool] = {}  # lane → wrote the mark itself
        self._stopping = False
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"lane-{number}", daemon=True)
            for number in range(count)
        ]

    def __enter__(self) -> LaneThreads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self._error is not None:
            raise self._error

    def submit(self, plan: TablePlan, changes: Sequence[RowChange]) -> None:
        """Dispatch `changes` of a table and hand them to the lanes; blocks while more than `max_pending` events are queued."""
        with self._mutex:
            self._check()
            self._dispatcher.dispatch(plan, changes)
            for number, items in enumerate(self._dispatcher.take()):
                if items:
                    self._pending += len(items)
                    self._lanes[number].feed(items)
                    self._wake[number].notify()
            while self._pending > self._max_pending and self._error is None:
                for number, lane in enumerate(self._lanes):
                    lane.push()
                    self._wake[number].notify()
                self._caller.wait()
            self._check()

    def drain(self, mark: Mark) -> list[int]:
        """Let every lane apply all it was given. Returns the lanes that had nothing and so did not write `mark`."""
        with self._mutex:
            self._check()
            self._drained = {}
            for number, lane in enumerate(self._lanes):
                lane.drain(mark)
                self._wake[number].notify()
            while len(self._drained) < len(self._lanes) and self._error is None:
                self._caller.wait()
            self._check()
            return [number for number, wrote in sorted(self._drained.items()) if not wrote]

    def close(self) -> None:
        """Stop the lanes, each after the transaction it is in, and join their threads. What is queued is forgotten."""
        with self._mutex:
            self._stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._stopping:
            raise RuntimeError("the lanes are closed")

    def _stop(self) -> None:
        self._stopping = True
        for wake in self._wake:
            wake.notify_all()
        self._caller.notify_all()

    def _run(self, number: int) -> None:
        try:
            while self._step(number, self._lanes[number]):
                pass
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread, whatever it is
            with self._mutex:
                if self._error is None:
                    self._error = error
                self._stop()

    def _step(self, number: int, lane: Lane) -> bool:
        """Carry out one effect of the lane. Returns False when the lanes are stopping."""
        with self._mutex:
            effect = lane.next()
        if isinstance(effect, Apply):
            return self._apply_batch(number, lane, effect)
        if isinstance(effect, WaitFor):
            self._turn(number, "wait", None)
            return self._wait(number, effect.waits)
        return self._idle(number, lane, effect)

    def _apply_batch(self, number: int, lane: Lane, effect: Apply) -> bool:
        if effect.pause:
            with self._mutex:
                self._wake[number].wait_for(lambda: self._stopping, timeout=effect.pause)
        if self._stopping:
            return False
        batch = lane.batch()
        self._turn(number, "apply", batch)
        try:
            self._apply(number, batch)
        except Exception as error:  # noqa: BLE001  # the machine decides, and raises what is not to be survived
            lane.failed(error)
            return True
        self._turn(number, "applied", batch)
        with self._mutex:
            self._pending -= lane.applied()
            self._caller.notify()
            for other in self._sleeping_on_locks:
                self._wake[other].notify()
        return True

    def _wait(self, number: int, waits: Sequence[Wait]) -> bool:
        ready = self._locks.ready
        with self._mutex:
            for wait in waits:
                if not ready(wait):
                    self._lanes[wait[1]].ask(wait[0])
                    self._wake[wait[1]].notify()
            self._sleeping_on_locks.add(number)
            while not self._stopping and not all(ready(wait) for wait in waits):
                self._wake[number].wait()
            self._sleeping_on_locks.discard(number)
            return not self._stopping

    def _idle(self, number: int, lane: Lane, effect: Idle) -> bool:
        with self._mutex:
            if effect.drained:
                self._drained[number] = effect.wrote
                self._caller.notify()
            while not lane.busy and not self._stopping:
                self._wake[number].wait()
            return not self._stopping

    def _turn(self, number: int, step: str, batch: Batch | None) -> None:
        if self._scheduler is not None:
            self._scheduler.turn(number, step, batch)
