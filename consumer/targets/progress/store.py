"""The progress store of a target that keeps progress itself: each unit's epoch, lane progress, layout
and quarantine.

The dialect's part is a `Link`: one connection that runs statements, translates its driver's errors into
consumer.errors, and can find out over a second connection who blocks it. The safety rests on one fact:
guard and takeover both need the exclusive lock of the same lane rows, and hold it to the end of their
transaction. The second one therefore always sees what the first one committed, independent of clocks,
pauses and message order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry, UnitState
from consumer.targets.bookkeeping.books import Bookkeeping
from consumer.targets.bookkeeping.lanes import parse_lane_row
from consumer.targets.bookkeeping.quarantine import parse_quarantine_row
from consumer.targets.bookkeeping.units import NO_STATE, parse_unit_rows
from consumer.targets.dialect_components import Link, Rows
from consumer.targets.progress.takeover import SqlTakeover, TakenOver
from consumer.targets.progress.writer import build_fenced_error
from consumer.targets.sql import Fragment
from consumer.targets.statements import commit_block, run_create

T = TypeVar("T")


class SqlProgressStore:
    """A `consumer.targets.base.ProgressStore` over a Link. Used by one thread at a time."""

    def __init__(self, link: Link, books: Bookkeeping, fresh: Callable[[], Link]) -> None:
        """Create the store and connect. `fresh` makes a second connection to the same database."""
        self._link = link
        self._books = books
        self._takeover = SqlTakeover(link, books, fresh)
        self._link.connect()

    def ensure_bookkeeping(self) -> None:
        for name in self._books.tables.list_names():
            run_create(self._link, self._books.tables.build_create(name))

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> TakenOver:
        return self._takeover.take_over_unit(unit, topic_id, layout, lanes, assigned=assigned, above=above)

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        books = self._books
        with commit_block(self._link):
            # One message for all, because under load each round trip costs a turn of the scheduler. If
            # the guard's rows forbid the attempt, the statements have already run, and are rolled back.
            guard, _, about, entries = self._link.begin_all(
                [
                    books.lanes.build_select(unit, lock=True),
                    books.lanes.raise_attempt(unit, epoch),
                    books.units.build_select(unit),
                    books.quarantine.build_select(unit),
                ]
            )
            rows = [parse_lane_row(row) for row in guard]
            if not rows or any(row.epoch != epoch for row in rows):
                raise build_fenced_error(unit, f"epoch {epoch}", [row.epoch for row in rows])
        state, held = parse_unit_rows(about), [parse_quarantine_row(row) for row in entries]
        return [replace(row, attempt=row.attempt + 1) for row in rows], state or NO_STATE, held

    @contextmanager
    def begin_guarded(self, unit: ApplyUnit, guards: Sequence[LaneProgress]) -> Iterator[None]:
        """Begin a transaction for the block after a check of the guard; its writes are committed as a
        whole, or not at all.
        """
        if not guards:
            raise ValueError("a transaction needs the lane rows it is guarded by")
        expected = sorted((row.lane, row.epoch, row.attempt, row.offset) for row in guards)
        with commit_block(self._link):
            guard = self._books.lanes.build_select(unit, [row[0] for row in expected], lock=True)
            found = [parse_lane_row(row) for row in self._link.begin_transaction(None, *guard)]
            seen = [(row.lane, row.epoch, row.attempt, row.offset) for row in found]
            if seen != expected:
                raise build_fenced_error(unit, f"(lane, epoch, attempt, offset) {expected}", seen)
            yield

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        def run() -> tuple[list[LaneProgress], UnitState | None]:
            rows = self._run_fragment(self._books.lanes.build_select(unit)) if lanes else []
            return [parse_lane_row(row) for row in rows], parse_unit_rows(
                self._run_fragment(self._books.units.build_select(unit))
            )

        return self._run_unguarded(run)

    def list_unit_topics(self, pipeline: str) -> list[str]:
        """Return the topics for which this target keeps a unit of `pipeline` (for status)."""
        return self._run_unguarded(
            lambda: [str(row[0]) for row in self._run_fragment(self._books.units.select_topics(pipeline))]
        )

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        """Return the quarantine entries of the unit by (offset, part), without locks (for list)."""
        return self._run_unguarded(
            lambda: [
                parse_quarantine_row(row)
                for row in self._run_fragment(self._books.quarantine.build_select(unit))
            ]
        )

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        """Return topic → number of rows in `rowlock_displaced` that are `superseded` or not; topics
        without rows are left out.
        """
        found = self._run_unguarded(
            lambda: self._run_fragment(self._books.displaced.build_count(pipeline, superseded=superseded))
        )
        return {str(topic): int(str(rows)) for topic, rows in found}

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        with commit_block(self._link):
            rows = [
                parse_lane_row(row)
                for row in self._link.begin_transaction(
                    None, *self._books.lanes.build_select(unit, lock=True)
                )
            ]
            if rows and all(row.epoch == epoch for row in rows):
                self._run_fragment(self._books.units.update_stopped(unit, message, still=message == was))

    def ping(self) -> bool:
        return self._link.ping()

    def close(self) -> None:
        self._link.close()

    # -- helpers

    def _run_fragment(self, fragment: Fragment) -> Rows:
        return self._link.execute(*fragment)

    def _run_unguarded(self, work: Callable[[], T]) -> T:
        """Run statements that need no guard, each in its own transaction."""
        self._link.connect()
        return work()
