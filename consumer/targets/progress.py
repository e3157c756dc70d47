"""The progress of units in a target with transactions: its store, the takeover, and the writer of progress
beside rows.

The dialect's part is a `Link`: one connection that runs statements, translates its driver's errors into
consumer.errors, and can find out over a second connection who blocks it. The safety rests on one fact:
guard and takeover both need the exclusive lock of the same lane rows, and hold it to the end of their
transaction. The second one therefore always sees what the first one committed, independent of clocks,
pauses and message order. A dead or hung worker may hold that lock: the takeover finds out which
connections block it, and ends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import structlog
from msgspec.structs import replace

from consumer.errors import (
    AlreadyExistsError,
    ConsumerError,
    FencedError,
    LockWaitError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.fencing_tokens import compute_next_epoch
from consumer.ordering.model import (
    ApplyUnit,
    KeptRows,
    LaneProgress,
    QuarantineEntry,
    ResolvedEntry,
    UnitState,
)
from consumer.targets.bookkeeping import (
    NO_STATE,
    Bookkeeping,
    digest_kept_key,
    parse_lane_row,
    parse_quarantine_row,
    parse_resolved_row,
    parse_unit_rows,
)
from consumer.targets.dialect_components import Link, Rows
from consumer.targets.displaced_rows import parse_displaced_row, yield_superseded_marks
from consumer.targets.sql import Fragment
from schemas import clock
from schemas.backoff import pause_after
from schemas.wire.position import ZERO

#: Attempts at creating a table that another process creates at the same time, and seconds between them.
MAKE_TRIES, MAKE_PAUSE_S = 5, 0.05


@contextmanager
def _commit_block(link: Link) -> Iterator[None]:
    """Commit what the block does over `link`; the block begins the transaction.

    Roll back after any error: after a lock time-out some databases keep the transaction and its locks.
    """
    link.connect()
    try:
        yield
        link.commit()
    except BaseException:
        link.roll_back()
        raise


def run_create(link: Link, text: str) -> None:
    """Run a CREATE … IF NOT EXISTS.

    If another process creates the same object at the same time, a database may report a violated index
    of its catalog, or that a part of the object exists. The object then exists, or its creation was
    given up, so the statement is retried.

    Raises TransientError if that continues, and AlreadyExistsError if an object of another kind has the
    name.
    """
    last: ConsumerError | None = None
    for tries in range(1, MAKE_TRIES + 1):
        try:
            link.connect()
            link.execute(text, [])
        except (UniqueViolationError, AlreadyExistsError) as error:
            last = error
            time.sleep(pause_after(tries, MAKE_PAUSE_S))
        else:
            return
    if isinstance(last, AlreadyExistsError):
        raise last
    raise TransientError(f"another session of the target keeps creating the same object: {last}") from last


log = structlog.get_logger(__name__)

TAKEOVER_TRIES = 3
#: Seconds a takeover waits for the lane rows before it looks up their holders, and before it gives up
#: one try.
TAKEOVER_LOCK_TIMEOUT_S = 1.0
LOCK_S = 4.0
POLL_BLOCKERS_S = 0.1

TakenOver = tuple[int, list[LaneProgress], UnitState]
"""(new epoch, lane rows, previous state of the unit)."""


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

        def compute_epoch(highest: int) -> int:
            return compute_next_epoch(
                unit, highest, assigned=assigned, above=above, now_ms=clock.read_clock_ms()
            )

        last: TransientError | UniqueViolationError | None = None
        for _ in range(TAKEOVER_TRIES):
            try:
                return self._take_once(unit, topic_id, layout, lanes, compute_epoch)
            except (TransientError, UniqueViolationError) as error:
                # UniqueViolationError: another process created the rows
                log.debug(
                    "takeover of a unit failed",
                    pipeline=unit.pipeline,
                    topic=unit.topic,
                    error=str(error),
                )
                last = error
        raise TransientError(_explain_failed_takeover(unit, last)) from last

    def _take_once(
        self, unit: ApplyUnit, topic_id: str, layout: str, lanes: int, compute_epoch: Callable[[int], int]
    ) -> TakenOver:
        books = self._books
        with _commit_block(self._link):
            rows = [parse_lane_row(row) for row in self._lock_ending_blockers(unit)]
            if not rows:
                rows = [LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout) for lane in range(lanes)]
                self._run_fragment(books.lanes.build_insert(unit, rows))
            epoch = compute_epoch(max(row.epoch for row in rows))
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


def _explain_failed_takeover(unit: ApplyUnit, last: ConsumerError | None) -> str:
    """Return why the last try failed: another session had the rows, or the target's or driver's error."""
    rows = f"the rows of {unit.topic} (pipeline {unit.pipeline}) in rowlock_progress"
    tried = f"rowlock has tried {TAKEOVER_TRIES} times: {last}"
    if isinstance(last, LockWaitError):
        return f"another session keeps {rows} locked; {tried}"
    if isinstance(last, UniqueViolationError):
        return f"another session creates {rows}, too; {tried}"
    return str(last)


class SqlProgressWriter:
    """Writes progress and quarantine within an open transaction that has passed its guard.

    Statements on the quarantine and on kept rows wait for those on the progress, so that the server is asked
    once for all of them. `send_waiting` sends what still waits, before the commit.
    """

    def __init__(self, unit: ApplyUnit, link: Link, books: Bookkeeping) -> None:
        self._unit = unit
        self._link = link
        self._books = books
        self._waiting: list[Fragment] = []

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        """Write entries to `rowlock_quarantine`."""
        self._waiting.extend(self._books.quarantine.build_insert(self._unit, held))

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        """Move entries of this unit, by (offset, part), from the quarantine to its history."""
        if ids:
            self._waiting.extend(self._books.quarantine.build_close(self._unit, ids, why))

    def drop_held(self, ids: Sequence[tuple[int, int]]) -> None:
        """Remove entries of this unit, by (offset, part), that a later entry of their key replaces."""
        self._waiting.extend(self._books.quarantine.build_drop(self._unit, ids))

    def close_held_before(self, offset: int, why: str) -> None:
        """Move all entries of this unit below `offset` from the quarantine to its history: their rows
        no longer exist.
        """
        self._waiting.extend(self._books.quarantine.close_before(self._unit, offset, why))

    def supersede_displaced(self, table: str, before: int, why: str) -> None:
        """Mark the displaced rows of `table` ("schema.name") as superseded, because the source sent its
        rows again.

        These are the rows in `rowlock_displaced` that events of this unit below the offset `before`
        displaced.
        """
        rows = self._link.execute(*self._books.displaced.build_select(self._unit))
        for by, ids in yield_superseded_marks(map(parse_displaced_row, rows), table, before, why):
            self._link.execute(*self._books.displaced.build_mark(by, ids))

    def record_kept_rows(self, kept: KeptRows) -> None:
        """Record rows that stay in the target although the source removed them. It may be repeated."""
        self._waiting.extend(self._books.kept.build_delete(self._unit, kept.table, kept.keys))
        self._waiting.extend(self._books.kept.build_insert(self._unit, kept))

    def forget_kept_rows(self) -> None:
        """Forget all rows that the unit keeps; they stay in the target until a sweep deletes them."""
        self._waiting.append(self._books.kept.build_delete_all(self._unit))

    def send_waiting(self) -> None:
        """Send the statements that wait for others."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._link.execute_all(waiting)

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        """Write lane rows, as the last statement of the transaction.

        Epoch and attempt are part of the condition.
        """
        updates = self._books.lanes.build_updates(self._unit, rows)
        waiting, self._waiting = self._waiting, []
        matched = self._link.execute_all([*waiting, *(fragment for fragment, _ in updates)])
        for (_, expected), affected in zip(updates, matched[len(waiting) :], strict=True):
            if affected != expected:
                lanes = [row.lane for row in rows]
                raise _build_fenced_error(self._unit, f"lanes {lanes} of this attempt", f"{affected} rows")

    def write_unit(self, state: UnitState) -> None:
        self._link.execute(*self._books.units.build_update(self._unit, state))
        if self._link.affected != 1:
            raise _build_fenced_error(self._unit, "its row in rowlock_unit", f"{self._link.affected} rows")

    def replace_lanes(self, rows: Sequence[LaneProgress]) -> None:
        """Replace all lane rows of the unit by `rows` (another lane count or layout)."""
        self._link.execute(*self._books.lanes.build_delete(self._unit))
        self._link.execute(*self._books.lanes.build_insert(self._unit, rows))


def _build_fenced_error(unit: ApplyUnit, expected: object, seen: object) -> FencedError:
    return FencedError(
        f"another worker owns {unit.topic} of pipeline {unit.pipeline} now: expected "
        f"{expected}, the target has {seen}"
    )


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
        with _commit_block(self._link):
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
                raise _build_fenced_error(unit, f"epoch {epoch}", [row.epoch for row in rows])
        state, held = parse_unit_rows(about), [parse_quarantine_row(row) for row in entries]
        return [replace(row, attempt=row.attempt + 1) for row in rows], state or NO_STATE, held

    @contextmanager
    def begin_guarded(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress], lock_wait_s: float | None = None
    ) -> Iterator[None]:
        """Begin a transaction for the block after a check of the guard; its writes are committed as a
        whole, or not at all.
        """
        if not guards:
            raise ValueError("a transaction needs the lane rows it is guarded by")
        expected = sorted((row.lane, row.epoch, row.attempt, row.offset) for row in guards)
        with _commit_block(self._link):
            guard = self._books.lanes.build_select(unit, [row[0] for row in expected], lock=True)
            found = [parse_lane_row(row) for row in self._link.begin_transaction(lock_wait_s, *guard)]
            seen = [(row.lane, row.epoch, row.attempt, row.offset) for row in found]
            if seen != expected:
                raise _build_fenced_error(unit, f"(lane, epoch, attempt, offset) {expected}", seen)
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

    def read_resolved_entries(self, unit: ApplyUnit, most: int) -> list[ResolvedEntry]:
        """Return the last entries of the unit that left the quarantine, at most `most`, the newest first."""
        found = self._run_unguarded(
            lambda: self._run_fragment(self._books.quarantine.select_closed(unit, most))
        )
        return [parse_resolved_row(row) for row in found]

    def delete_expired_entries(self, pipeline: str, older_ms: int) -> int:
        """Delete up to 500 entries of the pipeline that left the quarantine more than `older_ms` ago; return
        how many were deleted. Another process may delete the same.
        """

        def run() -> int:
            found = self._run_fragment(self._books.quarantine.select_expired(pipeline, older_ms))
            if found:
                self._link.execute(*self._books.quarantine.delete_closed([row[0] for row in found]))
            return len(found)

        return self._run_unguarded(run)

    def find_kept_keys(self, unit: ApplyUnit, table: str, keys: Sequence[str]) -> list[str]:
        """Return those of `keys` (in the form of `format_entry_key`) whose rows of `table` ("schema.name")
        the unit keeps.
        """

        def run() -> set[str]:
            fragments = self._books.kept.build_select(unit, table, keys)
            return {str(row[0]) for fragment in fragments for row in self._run_fragment(fragment)}

        found = self._run_unguarded(run)
        return [key for key in keys if digest_kept_key(table, key) in found]

    def has_kept_rows(self, unit: ApplyUnit) -> bool:
        """Return whether the unit keeps any row."""
        return bool(self._run_unguarded(lambda: self._run_fragment(self._books.kept.build_select_any(unit))))

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        """Return topic → number of rows in `rowlock_displaced` that are `superseded` or not; topics
        without rows are left out.
        """
        found = self._run_unguarded(
            lambda: self._run_fragment(self._books.displaced.build_count(pipeline, superseded=superseded))
        )
        return {str(topic): int(str(rows)) for topic, rows in found}

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        with _commit_block(self._link):
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
