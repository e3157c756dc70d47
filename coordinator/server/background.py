"""The leader's helpers that may block, each with threads of its own: clock ticks, the inventory, fences
at the targets.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import structlog

from coordinator.core.leader.state import Inventory

log = structlog.get_logger("coordinator")


class Ticker:
    """Calls `tick` every `interval` seconds unless the last tick is still being handled. The next
    tick begins at the earliest after four times the time that the last one took.
    """

    def __init__(self, interval: float, tick: Callable[[], None]) -> None:
        self._interval, self._tick = interval, tick
        self._done = threading.Event()
        self._done.set()
        self._stop = threading.Event()
        self._began = 0.0
        self._rest_until = 0.0
        self.last = 0.0
        self._thread = threading.Thread(target=self._run_thread, name="coordinator-ticker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish_tick(self, took: float) -> None:
        """Note that the tick has been handled in `took` seconds."""
        self.last = took
        self._rest_until = time.monotonic() + 4 * took
        self._done.set()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(5)

    def _run_thread(self) -> None:
        while not self._stop.wait(self._interval):
            if self._done.is_set() and time.monotonic() >= self._rest_until:
                self._done.clear()
                self._tick()


FRESH_S, FRESH = 15.0, 4
"""A term is fresh for `FRESH_S` seconds, in which the inventory is read `FRESH` times as often, because
capture has just started and creates topics."""


class InventoryPoller:
    """Reads the inventory while a coordinator leads: when a term begins, then every `every` seconds,
    more often at first.

    `give(rev, inventory)` receives each answer, as the same object while it is unchanged (the leader
    believes some answers only after they have been repeated for long enough). An error is logged once
    while it stays the same; the leader goes on with the inventory that it has. An inventory of an
    earlier term is never passed on, because it may be hours old.
    """

    def __init__(
        self, ask: Callable[[], Inventory], give: Callable[[int, Inventory], None], every: float
    ) -> None:
        self._ask, self._give, self._every = ask, give, every
        self._changed = threading.Condition()
        self._rev = 0
        self._fresh_until = 0.0
        self._stopping = False
        self._trouble = ""
        self.errors = 0
        self._thread = threading.Thread(target=self._run_thread, name="coordinator-inventory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_term(self, rev: int) -> None:
        """Note that a term begins; 0: no term."""
        with self._changed:
            self._rev = rev
            self._fresh_until = time.monotonic() + FRESH_S
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # it was started
            self._thread.join(2)

    def _run_thread(self) -> None:
        known: tuple[int, Inventory | None] = (0, None)
        while (rev := self._wait_for_turn(known[0])) is not None:
            found = self._read_inventory()
            if found is not None:
                if (rev, found) != known:
                    known = (rev, found)
                self._give(rev, known[1] or found)
            elif found is None and rev != known[0]:
                known = (rev, None)

    def _wait_for_turn(self, known: int) -> int | None:
        """Wait until the next read, and return the term; None to end."""
        with self._changed:
            if self._rev == known and not self._stopping:
                fresh = time.monotonic() < self._fresh_until
                self._changed.wait(self._every / FRESH if fresh else self._every)
            while not self._rev and not self._stopping:
                self._changed.wait()
            return None if self._stopping else self._rev

    def _read_inventory(self) -> Inventory | None:
        try:
            found = self._ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, the leader goes on with what it knows
            self.errors += 1
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("inventory not readable", error=self._trouble, kind=type(error).__name__)
            return None
        self._trouble = ""
        return found


class FencePool:
    """Executes fences, `count` at once.

    `fence(unit, uid, assignment)` blocks and raises if it fails; `done(rev, unit, assignment)` is called
    on success. A failure is logged, and the leader requests the fence again. A fence that is under way
    is not started twice.
    """

    def __init__(
        self, fence: Callable[[str, str, int], None], done: Callable[[int, str, int], None], count: int
    ) -> None:
        self._fence, self._done = fence, done
        self._queue: queue.Queue[tuple[int, str, str, int] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._under_way: set[tuple[int, str, str, int]] = set()
        self.failed = 0
        self._threads = [
            threading.Thread(target=self._run_thread, name=f"coordinator-fence-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        return len(self._under_way)

    def queue_fence(self, rev: int, unit: str, uid: str, assignment: int) -> None:
        job = (rev, unit, uid, assignment)
        with self._lock:
            if job in self._under_way:
                return
            self._under_way.add(job)
        self._queue.put(job)

    def close(self) -> None:
        """End the threads. A thread that waits for a target is abandoned (it is a daemon)."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(1)

    def _run_thread(self) -> None:
        while (job := self._queue.get()) is not None:
            rev, unit, uid, assignment = job
            try:
                self._fence(unit, uid, assignment)
            except Exception as error:  # noqa: BLE001 - the target's; the leader asks again
                self.failed += 1
                log.warning("unit not fenced", unit=unit, assignment=assignment, error=str(error))
            else:
                self._done(rev, unit, assignment)
            finally:
                with self._lock:
                    self._under_way.discard(job)
