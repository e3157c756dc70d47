"""The takeover of a unit in a target that keeps its progress: writes a higher epoch into the lane rows
despite locks.

A dead or hung worker may hold the lock of lane rows: over a second connection, the takeover finds out
which connections block the first one, and ends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import structlog
from msgspec.structs import replace

from consumer.errors import ConsumerError, TargetConfigError, TransientError, UniqueViolationError
from consumer.ordering.fencing_tokens import compute_next_epoch
from consumer.ordering.model import ApplyUnit, LaneProgress, UnitState
from consumer.targets.bookkeeping.books import Bookkeeping
from consumer.targets.bookkeeping.lanes import parse_lane_row
from consumer.targets.bookkeeping.units import NO_STATE, parse_unit_rows
from consumer.targets.dialect_components import Link, Rows
from consumer.targets.sql import Fragment
from consumer.targets.statements import commit_block
from schemas.wire.position import ZERO

log = structlog.get_logger(__name__)

TAKEOVER_TRIES = 3
#: Seconds a takeover waits for the lane rows before it looks up their holders, and before it gives up
#: one try.
TAKEOVER_LOCK_TIMEOUT_S = 1.0
LOCK_S = 4.0
POLL_BLOCKERS_S = 0.1

TakenOver = tuple[int, list[LaneProgress], UnitState]
"""(new epoch, lane rows, previous state of the unit)."""


def read_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqlTakeover:
    """Takes over units over a Link."""

    def __init__(self, link: Link, books: Bookkeeping, fresh: Callable[[], Link]) -> None:
        """Create a takeover. `fresh` makes a second connection to the same database."""
        self._link = link
        self._books = books
        self._fresh = fresh

    def take_over_unit(
        self, unit: ApplyUnit, topic_id: str, layout: str, lanes: int, *, assigned: int | None, above: int
    ) -> TakenOver:
        """See `consumer.targets.base.ProgressStore.take_over`."""

        def epoch_after(highest: int) -> int:
            return compute_next_epoch(unit, highest, assigned=assigned, above=above, now_ms=read_clock_ms())

        last: ConsumerError | None = None
        for _ in range(TAKEOVER_TRIES):
            try:
                return self._take_once(unit, topic_id, layout, lanes, epoch_after)
            except (TransientError, UniqueViolationError) as error:
                # UniqueViolationError: another process created the rows
                log.info("takeover retried", pipeline=unit.pipeline, topic=unit.topic, error=str(error))
                last = error
        raise TransientError(
            f"the progress rows of {unit.topic} (pipeline {unit.pipeline}) stay locked after {TAKEOVER_TRIES} tries: {last}"
        ) from last

    def _take_once(
        self, unit: ApplyUnit, topic_id: str, layout: str, lanes: int, epoch_after: Callable[[int], int]
    ) -> TakenOver:
        books = self._books
        with commit_block(self._link):
            rows = [parse_lane_row(row) for row in self._lock_ending_blockers(unit)]
            if not rows:
                rows = [LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout) for lane in range(lanes)]
                self._run_fragment(books.lanes.build_insert(unit, rows))
            epoch = epoch_after(max(row.epoch for row in rows))
            self._run_fragment(books.lanes.raise_epoch(unit, epoch))
            state = parse_unit_rows(self._run_fragment(books.units.build_select(unit)))
            if state is None:
                self._run_fragment(books.units.build_insert(unit))
            elif state.stopped is not None:
                self._run_fragment(books.units.update_stopped(unit, None))
        return epoch, [replace(row, epoch=epoch) for row in rows], state or NO_STATE

    def _lock_ending_blockers(self, unit: ApplyUnit) -> Rows:
        """Lock all lane rows; if that waits longer than TAKEOVER_LOCK_TIMEOUT_S, end the connections
        that hold them.
        """
        text, params = self._books.lanes.build_select(unit, lock=True)
        with ThreadPoolExecutor(1, "take-over") as pool:
            waiting = pool.submit(self._link.begin_transaction, LOCK_S, text, params)
            if not wait([waiting], TAKEOVER_LOCK_TIMEOUT_S).done:
                try:
                    self._end_blockers(unit, waiting)
                except TargetConfigError:  # a missing grant; the holder may release the lock by itself
                    if waiting.exception() is not None:
                        raise
            return waiting.result()

    def _end_blockers(self, unit: ApplyUnit, waiting: Future[Rows]) -> None:
        """End the blockers, found over a second connection.

        The query is repeated, because some servers show a lock wait late.
        """
        mine = self._link.get_connection_id()
        second = self._fresh()
        try:
            second.connect()
            deadline = time.monotonic() + LOCK_S
            while not waiting.done() and time.monotonic() < deadline:
                ended = second.locks.end_blockers_of(mine)
                if ended:
                    log.warning(
                        "connections that locked progress rows killed",
                        pipeline=unit.pipeline, topic=unit.topic, connections=ended,
                    )  # fmt: skip
                wait([waiting], POLL_BLOCKERS_S)
        finally:
            second.close()

    def _run_fragment(self, fragment: Fragment) -> Rows:
        return self._link.execute(*fragment)
