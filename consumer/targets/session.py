"""A session with a target: guards, fences and reads, the same for every dialect (research/scheduling.md §7).

The dialect's part is a `Link`: one connection that runs statements, translates its driver's errors into
consumer.errors, and can tell from a second connection who blocks it. Everything here rests on one fact: guard and
take-over both need the exclusive lock of the same lane rows, and hold it to the end of their transaction. Whichever
comes second therefore sees what the first one committed; no clock, pause or message order enters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog

from consumer.epochs import next_epoch
from consumer.errors import (
    AlreadyThereError,
    ConsumerError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.model import Held, LaneProgress, TargetTable, Unit, UnitState
from consumer.targets.base import Transaction
from consumer.targets.bookkeeping import NO_STATE, held_from, lane_from, unit_from
from consumer.targets.facts import Remark, TableFacts
from consumer.targets.parts import Parts, Rows
from consumer.targets.rights import MissingRight, Place, Wanted
from consumer.targets.sql import Fragment, keys_in
from consumer.targets.transaction import SqlTransaction, fenced, read_page
from schemas.position import ZERO
from schemas.table import Key, Row, Table

log = structlog.get_logger(__name__)

T = TypeVar("T")

TAKE_OVER_TRIES = 3
#: Seconds a take-over waits for the lane rows before it looks for who holds them, and before it gives up a try.
PATIENCE_S = 1.0
TAKE_OVER_LOCK_S = 4.0
POLL_BLOCKERS_S = 0.1
#: Attempts at making a table that somebody else makes at the same time.
MAKE_TRIES = 5
KEYS_PER_STATEMENT = 500


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class SqlSession:
    """`consumer.targets.base.Session` over a Link. Used by one thread at a time."""

    def __init__(self, parts: Parts) -> None:
        self._link = parts.link
        self._books = parts.books
        self.catalogue = parts.catalogue
        self._applier = parts.applier
        self._fresh = parts.fresh
        self._link.connect()

    # -- bookkeeping

    def ensure_bookkeeping(self) -> None:
        for name in self._books.names():
            self._make(self._books.create(name))

    def take_over(
        self,
        unit: Unit,
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
        self, unit: Unit, topic_id: str, layout: str, lanes: int, epoch_after: Callable[[int], int]
    ) -> tuple[int, list[LaneProgress], UnitState]:
        self._link.connect()
        with self._rolled_back_on_error():
            rows = [lane_from(row) for row in self._lock_ending_blockers(unit)]
            if not rows:
                rows = [LaneProgress(lane, 0, 0, topic_id, -1, ZERO, 0, layout) for lane in range(lanes)]
                self._run(self._books.insert_lanes(unit, rows))
            epoch = epoch_after(max(row.epoch for row in rows))
            self._run(self._books.raise_epoch(unit, epoch))
            state = unit_from(self._run(self._books.select_unit(unit)))
            if state is None:
                self._run(self._books.insert_unit(unit))
            elif state.stopped is not None:
                self._run(self._books.update_stopped(unit, None))
            self._link.commit()
        return epoch, [replace(row, epoch=epoch) for row in rows], state or NO_STATE

    def _lock_ending_blockers(self, unit: Unit) -> Rows:
        """Lock all lane rows; when that waits longer than PATIENCE_S, end the connections that hold them."""
        text, params = self._books.select_lanes(unit, lock=True)
        with ThreadPoolExecutor(1, "take-over") as pool:
            waiting = pool.submit(self._link.begin, TAKE_OVER_LOCK_S, text, params)
            if not wait([waiting], PATIENCE_S).done:
                try:
                    self._end_blockers(unit, waiting)
                except TargetConfigError:  # a missing grant; who may not be ended may let go by itself
                    if waiting.exception() is not None:
                        raise
            return waiting.result()

    def _end_blockers(self, unit: Unit, waiting: Future[Rows]) -> None:
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

    def begin(self, unit: Unit, epoch: int) -> tuple[list[LaneProgress], UnitState, list[Held]]:
        self._link.connect()
        books = self._books
        with self._rolled_back_on_error():
            # All in one message: under load each round trip costs a turn of the scheduler. What the guard's rows do
            # not allow has then been done already, and is rolled back.
            guard, _, about, entries = self._link.begin_all(
                [
                    books.select_lanes(unit, lock=True),
                    books.raise_attempt(unit, epoch),
                    books.select_unit(unit),
                    books.select_held(unit),
                ]
            )
            rows = [lane_from(row) for row in guard]
            if not rows or any(row.epoch != epoch for row in rows):
                raise fenced(unit, f"epoch {epoch}", [row.epoch for row in rows])
            self._link.commit()
        state, held = unit_from(about), [held_from(row) for row in entries]
        return [replace(row, attempt=row.attempt + 1) for row in rows], state or NO_STATE, held

    @contextmanager
    def transaction(self, unit: Unit, guards: Sequence[LaneProgress]) -> Iterator[Transaction]:
        if not guards:
            raise ValueError("a transaction needs the lane rows it is guarded by")
        expected = sorted((row.lane, row.epoch, row.attempt, row.offset) for row in guards)
        committed = False
        self._link.connect()
        try:
            with self._rolled_back_on_error():
                guard = self._books.select_lanes(unit, [row[0] for row in expected], lock=True)
                found = [lane_from(row) for row in self._link.begin(None, *guard)]
                seen = [(row.lane, row.epoch, row.attempt, row.offset) for row in found]
                if seen != expected:
                    raise fenced(unit, f"(lane, epoch, attempt, offset) {expected}", seen)
                yield SqlTransaction(unit, self._link, self._books, self.catalogue, self._applier)
                self._link.commit()
                committed = True
        finally:
            self._applier.ended(committed=committed)

    def read(self, unit: Unit, lanes: bool = True) -> tuple[list[LaneProgress], UnitState | None]:
        def run() -> tuple[list[LaneProgress], UnitState | None]:
            rows = self._run(self._books.select_lanes(unit)) if lanes else []
            return [lane_from(row) for row in rows], unit_from(self._run(self._books.select_unit(unit)))

        return self._alone(run)

    def topics(self, pipeline: str) -> list[str]:
        """Return the topics of which `pipeline` has a unit here (status)."""
        return self._alone(lambda: [str(row[0]) for row in self._run(self._books.select_topics(pipeline))])

    def held(self, unit: Unit) -> list[Held]:
        """Return the quarantine entries of the unit by (offset, part), without locks (list)."""
        return self._alone(lambda: [held_from(row) for row in self._run(self._books.select_held(unit))])

    def displaced(self, pipeline: str) -> dict[str, int]:
        """Return topic → rows in `rowlock_displaced`, without topics that displaced nothing (status)."""

        def run() -> dict[str, int]:
            found = self._run(self._books.count_displaced(pipeline))
            return {str(topic): int(str(rows)) for topic, rows in found}

        return self._alone(run)

    def stop_unit(self, unit: Unit, epoch: int, message: str, *, was: str | None = None) -> None:
        self._link.connect()
        with self._rolled_back_on_error():
            rows = [
                lane_from(row) for row in self._link.begin(None, *self._books.select_lanes(unit, lock=True))
            ]
            if rows and all(row.epoch == epoch for row in rows):
                self._run(self._books.update_stopped(unit, message, still=message == was))
            self._link.commit()

    # -- definitions and reads

    def read_table(self, schema: str, name: str) -> Table | None:
        return self.catalogue.read_table(schema, name)

    def facts(self, schema: str, name: str) -> TableFacts:
        """Return what `findings` judges beside the definition of an existing table."""
        return self.catalogue.facts(schema, name)

    def surroundings(self, schema: str, name: str) -> object:
        return self.facts(schema, name), self.missing_rights([(schema, name)], create=False)

    def missing_rights(self, tables: Sequence[Place], *, create: bool) -> list[MissingRight]:
        """Return the rights that writing `tables` would miss; `create`: tables that are missing are made."""
        self._link.connect()
        books = self._books
        return self.catalogue.missing_rights(Wanted(books.schema, books.rights(), tuple(tables), create))

    def probe_blockers(self) -> None:
        """Ask for blockers of nobody: raises MissingGrantError when a take-over could not ask."""
        self._link.connect()
        self._link.end_blockers_of(self._link.identity())

    def probe_durability(self) -> Remark | None:
        """Say why a crash of the target may take back commits that readers have seen; None: it may not."""
        self._link.connect()
        return self._link.durability()

    def create_table(self, table: Table) -> None:
        for text in self.catalogue.create_statements(table):
            self._make(text)

    def fetch_rows(
        self, table: TargetTable, after: Key | None, limit: int, where: dict[str, str] | None = None
    ) -> list[Row]:
        return self._alone(
            lambda: read_page(
                self._link, self.catalogue, self._books.syntax, table, after, where=where, limit=limit
            )
        )

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        def run() -> list[Row]:
            select, decode = self.catalogue.select_rows(table)
            found: list[Row] = []
            for at in range(0, len(keys), KEYS_PER_STATEMENT):
                chunk = [self.catalogue.key_params(table, key) for key in keys[at : at + KEYS_PER_STATEMENT]]
                text, params = keys_in(self.catalogue.key_columns(table), chunk)
                found += [decode(row) for row in self._run((f"{select} WHERE {text}", params))]
            return found

        return self._alone(run)

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
        for attempt in range(MAKE_TRIES):
            try:
                self._alone(lambda: self._run((text, [])))
            except (UniqueViolationError, AlreadyThereError) as error:
                last = error
                time.sleep(0.05 * 2**attempt)
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
