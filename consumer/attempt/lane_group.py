"""Runs the concurrent lanes of one attempt: hands changes to them, lets them wait for each other's
commits, drains them, and collects their errors.

The attempt itself calls `submit_changes`, `drain` and `close`; `run_lane(n)` is the generator of lane n.
A driver may advance these generators in any order and concurrently: shared state is accessed under
`signals.mutex` only, and a waiting generator is woken through `signals`. The first error of any lane
stops the others after their current transaction, and is raised by `submit_changes`, `drain` or `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Protocol

from consumer.attempt.effects import Await, JoinLanes, Machine, Sleep, StartLanes
from consumer.ordering.dispatch import Dispatcher, TablePlan
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import (
    ApplyBatch,
    Lane,
    LaneEffect,
    LaneLimits,
    WaitForTickets,
    WaitForWork,
)
from consumer.ordering.model import QuarantineEntry, RowChange
from consumer.ordering.progress import LaneMark
from consumer.ordering.tickets import Ticket, TicketTable
from schemas.problems import Problem

CommitBatch = Callable[[int, LaneBatch], Machine[None]]
"""(lane, batch) → a `Machine` that applies the batch in one transaction, with the lane's progress."""


class Signals(Protocol):
    """The mutex and the wake-ups by which an attempt and its lanes share state; the driver provides them."""

    @property
    def mutex(self) -> AbstractContextManager[object]: ...

    def wake_lane(self, lane: int | None) -> None:
        """Make lane `lane` (None: the attempt itself) check its condition again.

        Called with the mutex held.
        """


@dataclass(slots=True)
class LockWaits:
    """Waits of the lanes of one group for each other's commits."""

    count: int = 0
    seconds: float = 0.0
    """Lanes that wait at the same time count each."""
    longest_chain: int = 0
    """The most lanes that waited one for the next."""

    def begin_wait(self, chain: int) -> None:
        """Count a wait. `chain`: how many lanes wait one for the next now, if they are more than ever."""
        self.count += 1
        self.longest_chain = max(self.longest_chain, chain)

    def end_wait(self, seconds: float) -> None:
        self.seconds += seconds

    def add_waits(self, other: LockWaits) -> None:
        """Add the waits of lanes that have ended."""
        self.count += other.count
        self.seconds += other.seconds
        self.longest_chain = max(self.longest_chain, other.longest_chain)


class LaneGroup:
    """The lanes of one attempt and one layout. Not restartable.

    `lock_waits` is complete after the lanes have ended.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        tickets: TicketTable,
        commit: CommitBatch,
        *,
        limits: LaneLimits,
        held: Sequence[Sequence[QuarantineEntry]] = (),
        replace: bool = True,
        unfit: Problem | None = None,
        signals: Signals,
    ) -> None:
        """`held`: the quarantine entries of each lane; () if there are none. `replace`, `unfit`: see Lane."""
        self.count = dispatcher.layout.lanes
        self.stopping = False
        self.signals = signals
        self._dispatcher, self._tickets, self._commit = dispatcher, tickets, commit
        self._lanes = [
            Lane(number, tickets, limits, held[number] if held else (), replace=replace, unfit=unfit)
            for number in range(self.count)
        ]
        self.lock_waits = LockWaits()
        self._waits: dict[int, Sequence[Ticket]] = {}  # lane → what it waits for
        self._pending_events, self._max_pending = 0, limits.max_pending
        self._drained: dict[int, bool] = {}  # lane → wrote the mark itself
        self._error: BaseException | None = None

    # --- the attempt's side

    def start(self) -> Machine[None]:
        yield StartLanes(self)

    def submit_changes(self, plan: TablePlan, changes: Sequence[RowChange]) -> Machine[None]:
        """Dispatch `changes` of a table to the lanes.

        Waits while more than `max_pending` events are queued.
        """
        with self.signals.mutex:
            self._require_running()
            self._dispatcher.dispatch(plan, changes)
            for number, items in enumerate(self._dispatcher.take_queued()):
                if items:
                    self._pending_events += len(items)
                    self._lanes[number].queue_items(items)
                    self.signals.wake_lane(number)
        while self._pending_events > self._max_pending and self._error is None:
            with self.signals.mutex:
                before = self._pending_events
                for number, lane in enumerate(self._lanes):
                    lane.push_collected()
                    self.signals.wake_lane(number)
            yield Await(partial(self._has_fewer_pending_than, before))
        self._require_running()

    def _has_fewer_pending_than(self, pending: int) -> bool:
        return self._pending_events < pending or self._error is not None

    def drain(self, mark: LaneMark) -> Machine[list[int]]:
        """Let every lane apply its queue; return the lanes that had nothing to apply and so did not
        write `mark`.
        """
        with self.signals.mutex:
            self._require_running()
            self._drained = {}
            for number, lane in enumerate(self._lanes):
                lane.drain_to(mark)
                self.signals.wake_lane(number)
        yield Await(lambda: len(self._drained) == self.count or self._error is not None)
        self._require_running()
        return [number for number, wrote in sorted(self._drained.items()) if not wrote]

    def close(self, error: BaseException | None = None) -> Machine[None]:
        """Stop the lanes, each after its current transaction; queued changes are dropped.

        Raises a lane's error, unless the attempt already ends with `error`.
        """
        self.stop()
        yield JoinLanes(self)
        if error is None and self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self.signals.mutex:
            self._stop_locked()

    def record_lane_error(self, error: BaseException) -> None:
        """Record that a lane ended with `error`."""
        with self.signals.mutex:
            if self._error is None:
                self._error = error
            self._stop_locked()

    def _stop_locked(self) -> None:
        self.stopping = True
        for number in range(self.count):
            self.signals.wake_lane(number)
        self.signals.wake_lane(None)

    def _require_running(self) -> None:
        if self._error is not None:
            raise self._error
        if self.stopping:
            raise RuntimeError("the lanes are closed")

    # --- the lanes' side

    def run_lane(self, number: int) -> Machine[None]:
        """Run lane `number` until the lanes are stopping. Raises the errors that the lane cannot handle."""
        lane = self._lanes[number]
        while not self.stopping:
            with self.signals.mutex:
                effect: LaneEffect = lane.choose_effect()
            if isinstance(effect, ApplyBatch):
                yield from self._apply_batch(number, lane, effect)
            elif isinstance(effect, WaitForTickets):
                yield from self._wait_for_lanes(number, effect.waits)
            else:
                yield from self._wait_for_work(number, lane, effect)

    def _apply_batch(self, number: int, lane: Lane, effect: ApplyBatch) -> Machine[None]:
        if effect.pause:
            yield Sleep(effect.pause)
            if self.stopping:
                return
        batch = lane.build_batch()
        try:
            yield from self._commit(number, batch)
        except Exception as error:  # noqa: BLE001  # the lane retries, or raises the error
            lane.handle_failure(error)
            return
        with self.signals.mutex:
            self._pending_events -= lane.record_applied()
            self.signals.wake_lane(None)
            for other in self._waits:
                self.signals.wake_lane(other)

    def _wait_for_lanes(self, number: int, waits: Sequence[Ticket]) -> Machine[None]:
        ready = self._tickets.is_released
        with self.signals.mutex:
            for wait in waits:
                if not ready(wait):
                    self._lanes[wait[1]].request_commit(wait[0])
                    self.signals.wake_lane(wait[1])
            self._waits[number] = waits
            self.lock_waits.begin_wait(self._measure_chain(number))
            began = monotonic()
        yield Await(lambda: self.stopping or all(ready(wait) for wait in waits))
        with self.signals.mutex:
            self._waits.pop(number)
            self.lock_waits.end_wait(monotonic() - began)

    def _measure_chain(self, lane: int) -> int:
        """Return how many lanes wait one for the next, of those that wait for `lane` and those that it waits
        for. They wait in no circle: each waits for an earlier event.
        """
        if len(self._waits) <= self.lock_waits.longest_chain:
            return 0  # no chain of them is longer than one before, so its length is of no interest
        return self._count_below(lane, {}) + self._count_above(lane, {})

    def _count_below(self, lane: int, known: dict[int, int]) -> int:
        """Return the length of the longest chain that begins at `lane`."""
        if lane not in known:
            known[lane] = 0
            for wait in self._waits.get(lane, ()):
                if not self._tickets.is_released(wait):
                    known[lane] = max(known[lane], 1 + self._count_below(wait[1], known))
        return known[lane]

    def _count_above(self, lane: int, known: dict[int, int]) -> int:
        """Return the length of the longest chain that ends at `lane`."""
        if lane not in known:
            known[lane] = 0
            for other, waits in self._waits.items():
                for wait in waits:
                    if wait[1] == lane and not self._tickets.is_released(wait):
                        known[lane] = max(known[lane], 1 + self._count_above(other, known))
        return known[lane]

    def _wait_for_work(self, number: int, lane: Lane, effect: WaitForWork) -> Machine[None]:
        if effect.drained:
            with self.signals.mutex:
                self._drained[number] = effect.wrote
                self.signals.wake_lane(None)
        yield Await(lambda: self.stopping or lane.busy)
