"""The progress store of a target that keeps progress itself: the unit's epoch, how far each lane is, their layout, its quarantine.

The dialect's part is a `Link`: one connection that runs statements, translates its driver's errors into
consumer.errors, and can tell from a second connection who blocks it. Everything here rests on one fact: guard and
take-over both need the exclusive lock of the same lane rows, and hold it to the end of their transaction. Whichever
comes second therefore sees what the first one committed; no clock, pause or message order enters (research/scheduling.md §7).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog

from consumer.errors import (
    AlreadyThereError,
    ConsumerError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.fencing_tokens import next_epoch
from consumer.ordering.model import ApplyUnit, Held, LaneProgress, UnitState
from consumer.targets.bookkeeping.books import Books
from consumer.targets.bookkeeping.lanes import lane_from
from consumer.targets.bookkeeping.quarantine import held_from
from consumer.targets.bookkeeping.units import NO_STATE, unit_from
from consumer.targets.dialect_components import Link, Rows
from consumer.targets.progress_writer import fenced
from consumer.targets.sql import Fragment
from schemas.backoff import pause_after
from schemas.wire.position import ZERO

log = structlog.get_logger(__name__)

T = TypeVar("T")

TAKE_OVER_TRIES = 3
#: Seconds a take-over waits for the lane rows before it looks for who holds them, and before it gives up a try.
PATIENCE_S = 1.0
TAKE_OVER_LOCK_S = 4.0
POLL_BLOCKERS_S = 0.1
#: Attempts at making a table that somebody else makes at the same time.
MAKE_TRIES, MAKE_PAUSE_S = 5, 0.05


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class SqlProgressStore:
    """`consumer.targets.base.ProgressStore` over a Link. Used by one thread at a time."""

    def __init__(self, link: Link, books: Books, fresh: Callable[[], Link]) -> None:
        """`fresh` makes a second connection to the same database."""
        self._link = link
        self._books = books
        self._fresh = fresh
        self._link.connect()

    def ensure_bookkeeping(self) -> None:
        for name in self._books.tables.names():
            self._make(self._books.tables.create(name))

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        def epoch_after(highest: int) -> int:
            return next_epoch(unit, highest, assigned=assigned, above=above, now_ms=now_ms())

        last: ConsumerError | None = None
        for _ in range(TAKE_OVER_TRIES):
            try:
                return self._take_over_once(unit, topic_id, layout, lanes, epoch_after)
            except (
                TransientError,
                UniqueViolationError,
            ) as error:  # the latter: another one created the rows
                log.info(
                    "take-over is tried again", pipeline=unit.pipeline, topic=unit.topic, error=str(error)
                )
                last = error
        raise TransientError(
            f"the progress rows of {unit.topic} (pipeline {unit.pipeline}) stay locked after {TAKE_OVER_TRIES} tries: "
            f"{last}"
        ) from last

    def _take_over_once(
        self, unit: ApplyUnit, topic_id: str, layout: str, lanes: int, epoch_after: Callable[[int], int]
    ) -> tuple[int, list[LaneProgress], UnitState]:
        self._link.connect()
        with self._rolled_back_on_error():
            rows = [lane_from(row) for row in self._lock_ending_blockers(unit)]
            if not rows:
                rows = [LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout) for lane in range(lanes)]
                self._run(self._books.lanes.insert(unit, rows))
            epoch = epoch_after(max(row.epoch for row in rows))
            self._run(self._books.lanes.raise_epoch(unit, epoch))
            state = unit_from(self._run(self._books.units.select(unit)))
            if state is None:
                self._run(self._books.units.insert(unit))
            elif state.stopped is not None:
                self._run(self._books.units.update_stopped(unit, None))
            self._link.commit()
        return epoch, [replace(row, epoch=epoch) for row in rows], state or NO_STATE

    def _lock_ending_blockers(self, unit: ApplyUnit) -> Rows:
        """Lock all lane rows; when that waits longer than PATIENCE_S, end the connections that hold them."""
        text, params = self._books.lanes.select(unit, lock=True)
        with ThreadPoolExecutor(1, "take-over") as pool:
            waiting = pool.submit(self._link.begin, TAKE_OVER_LOCK_S, text, params)
            if not wait([waiting], PATIENCE_S).done:
                try:
                    self._end_blockers(unit, waiting)
                except TargetConfigError:  # a missing grant; who may not be ended may let go by itself
                    if waiting.exception() is not None:
                        raise
            return waiting.result()

    def _end_blockers(self, unit: ApplyUnit, waiting: Future[Rows]) -> None:
        """Ask from a second connection who blocks the first. A lock wait shows up late on some servers: ask again."""
        mine = self._link.identity()
        second = self._fresh()
        try:
            second.connect()
            deadline = time.monotonic() + TAKE_OVER_LOCK_S
            while not waiting.done() and time.monotonic() < deadline:
                ended = second.end_blockers_of(mine)
                if ended:
                    log.warning(
                        "connections that held progress rows were ended",
                        pipeline=unit.pipeline, topic=unit.topic, connections=ended,
                    )  # fmt: skip
                wait([waiting], POLL_BLOCKERS_S)
        finally:
            second.close()

    def begin(self, unit: ApplyUnit, epoch: int) -> tuple[list[LaneProgress], UnitState, list[Held]]:
        self._link.connect()
        books = self._books
        with self._rolled_back_on_error():
            # All in one message: under load each round trip costs a turn of the scheduler. What the guard's rows do
            # not allow has then been done already, and is rolled back.
            guard, _, about, entries = self._link.begin_all(
                [
                    books.lanes.select(unit, lock=True),
                    books.lanes.raise_attempt(unit, epoch),
                    books.units.select(unit),
                    books.quarantine.select(unit),
                ]
            )
            rows = [lane_from(row) for row in guard]
            if not rows or any(row.epoch != epoch for row in rows):
                raise fenced(unit, f"epoch {epoch}", [row.epoch for row in rows])
            self._link.commit()
        state, held = unit_from(about), [held_from(row) for row in entries]
        return [replace(row, attempt=row.attempt + 1) for row in rows], state or NO_STATE, held

    @contextmanager
    def guarded(self, unit: ApplyUnit, guards: Sequence[LaneProgress]) -> Iterator[None]:
        """A transaction whose guard has passed: what is written over the link in it is committed as a whole, or not at all."""
        if not guards:
            raise ValueError("a transaction needs the lane rows it is guarded by")
        expected = sorted((row.lane, row.epoch, row.attempt, row.offset) for row in guards)
        self._link.connect()
        with self._rolled_back_on_error():
            guard = self._books.lanes.select(unit, [row[0] for row in expected], lock=True)
            found = [lane_from(row) for row in self._link.begin(None, *guard)]
            seen = [(row.lane, row.epoch, row.attempt, row.offset) for row in found]
            if seen != expected:
                raise fenced(unit, f"(lane, epoch, attempt, offset) {expected}", seen)
            yield
            self._link.commit()

    def read(self, unit: ApplyUnit, lanes: bool = True) -> tuple[list[LaneProgress], UnitState | None]:
        def run() -> tuple[list[LaneProgress], UnitState | None]:
            rows = self._run(self._books.lanes.select(unit)) if lanes else []
            return [lane_from(row) for row in rows], unit_from(self._run(self._books.units.select(unit)))

        return self._alone(run)

    def topics(self, pipeline: str) -> list[str]:
        """Return the topics of which `pipeline` has a unit here (status)."""
        return self._alone(
            lambda: [str(row[0]) for row in self._run(self._books.units.select_topics(pipeline))]
        )

    def held(self, unit: ApplyUnit) -> list[Held]:
        """Return the quarantine entries of the unit by (offset, part), without locks (list)."""
        return self._alone(lambda: [held_from(row) for row in self._run(self._books.quarantine.select(unit))])

    def displaced(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        """Return topic → rows in `rowlock_displaced` that are `superseded` or are not, without topics of which there are none (status)."""
        found = self._alone(lambda: self._run(self._books.displaced.count(pipeline, superseded=superseded)))
        return {str(topic): int(str(rows)) for topic, rows in found}

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        self._link.connect()
        with self._rolled_back_on_error():
            rows = [
                lane_from(row) for row in self._link.begin(None, *self._books.lanes.select(unit, lock=True))
            ]
            if rows and all(row.epoch == epoch for row in rows):
                self._run(self._books.units.update_stopped(unit, message, still=message == was))
            self._link.commit()

    def ping(self) -> bool:
        return self._link.ping()

    def close(self) -> None:
        self._link.close()

    # -- helpers

    def _run(self, fragment: Fragment) -> Rows:
        return self._link.execute(*fragment)

    def _make(self, text: str) -> None:
        """Run a CREATE … IF NOT EXISTS. Where somebody else makes the same thing at the same time, a database may answer with a
        violated index of its catalogue, or that a part of it is there; it is there then, or was given up.

        Raises TransientError if that goes on, and AlreadyThereError where something of another kind has the name.
        """
        last: ConsumerError | None = None
        for tries in range(1, MAKE_TRIES + 1):
            try:
                self._alone(lambda: self._run((text, [])))
            except (UniqueViolationError, AlreadyThereError) as error:
                last = error
                time.sleep(pause_after(tries, MAKE_PAUSE_S))
            else:
                return
        if isinstance(last, AlreadyThereError):
            raise last
        raise TransientError(f"somebody else keeps making the same: {last}") from last

    def _alone(self, work: Callable[[], T]) -> T:
        """Run statements that need no guard, each in a transaction of its own."""
        self._link.connect()
        return work()

    @contextmanager
    def _rolled_back_on_error(self) -> Iterator[None]:
        """Roll back after any error: after a lock time-out some databases keep the transaction and its locks."""
        try:
            yield
        except BaseException:
            self._link.rollback()
            raise
