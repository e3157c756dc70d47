"""What is done for a unit by asking target and Kafka: warm, take over and catch up, fence. Each call may block.

A hand has connections of its own; a few of them serve all units of a pipeline, each unit one at a time (the core sees to
that). A unit that lacks little is applied here, by the same code as in Spark's workers, before it goes onto a query's
board: so a move interrupts it for as long as this takes, and no query is touched.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import structlog

from consumer.applier import SHORT
from consumer.assigned.core import SMALL
from consumer.assigned.units import About, Failed, Fence, Fenced, Take, Took, Warm, Warmed
from consumer.board import Attempts
from consumer.definition import InForce, read_real, stored_table
from consumer.discovery import Cluster, partitions_refusal
from consumer.errors import ConsumerError, FencedError, TransientError
from consumer.kafka_reader import client_options, read_range
from consumer.model import Unit
from consumer.pipeline import Pipeline
from consumer.reports import Report
from consumer.taking import Taken, define_unit, take_unit
from consumer.targets.base import Session
from consumer.unit import UnitSpec, apply_topic
from consumer.worker import SessionCache
from schemas.codec import encode_table
from schemas.findings import START_OVER

log = structlog.get_logger(__name__)

TAKERS, FENCERS = 3, 2
"""Hands that open and start units, and that end them: the latter never wait for the former."""
BY_HAND = 60_000
"""Events that a hand applies itself when it takes a unit over; the catching-up query needs a second to start."""
GRACE_S = 0.2
"""How long an attempt in a worker may go on after its unit was stopped, before it is fenced."""
PROOF_S = 5.0
"""How long a target may say nothing to a fence; then the unit's attempts are ended another way."""
AGAIN_S = 0.2

Bounds = tuple[int, int]


class Hands:
    """The hands of one pipeline. Every method returns what the core is to be told, and never raises ConsumerError."""

    def __init__(self, pipeline: Pipeline, attempts: Attempts, seen: Callable[[str, str, int], None]) -> None:
        """`seen`: is told (source, topic, last offset) of every topic that a hand looks at."""
        self._pipeline = pipeline
        self._attempts = attempts
        self._seen = seen
        self._cluster = Cluster(pipeline.bootstrap, pipeline.kafka_options)
        self._reader = client_options(pipeline.bootstrap, pipeline.kafka_options)
        self._tables: dict[tuple[str, int], InForce] = {}
        self._free: queue.LifoQueue[SessionCache] = queue.LifoQueue()
        for number in range(TAKERS + FENCERS):
            self._free.put(SessionCache(pipeline.target, f"rowlock {pipeline.name} hand {number}"))
        self._mutex = threading.Lock()
        self._taking = 0
        self._books = threading.Lock()
        self._books_are_there = False
        self._aborted: set[tuple[str, int]] = set()

    def bounds(self, topics: Iterable[str]) -> dict[str, Bounds]:
        """Return topic → (first, next) offset. Raises TransientError."""
        return self._cluster.bounds(list(topics))

    def abort(self, topic: str, assignment: int) -> None:
        """What is under way for the unit shall end soon; until it is forgotten."""
        self._aborted.add((topic, assignment))

    def forget(self, topic: str, assignment: int) -> None:
        """The unit is no longer here."""
        self._aborted.discard((topic, assignment))
        self._tables.pop((topic, assignment), None)

    @contextmanager
    def _hand(self) -> Iterator[SessionCache]:
        """A free hand; its lanes' connections are closed afterwards, the first is kept."""
        sessions = self._free.get()
        try:
            self._ensure_books(sessions)
            yield sessions
        except ConsumerError:
            sessions.check(0)
            raise
        finally:
            for lane in range(1, self._pipeline.config.lanes):
                sessions.drop(lane)
            self._free.put(sessions)

    def _ensure_books(self, sessions: SessionCache) -> None:
        with self._books:
            if not self._books_are_there:
                sessions.get(0).ensure_bookkeeping()
                self._books_are_there = True

    # -- open

    def warm(self, asked: Warm) -> Warmed | Failed:
        """Learn the topic's id, connect, and read the target table that a start will need."""
        unit = asked.unit
        try:
            found = self._cluster.described([unit.topic]).get(unit.topic)
            if found is None:
                return Failed(unit.topic, unit.assignment, f"{unit.topic}: no such topic yet", again=True)
            debezium = unit.source in self._pipeline.debezium
            if refusal := partitions_refusal(unit.topic, found.partitions, debezium=debezium):
                return Failed(unit.topic, unit.assignment, refusal, again=False)
            self._bounds(unit)
            with self._hand() as sessions:
                real = self._real_table(sessions.get(0), unit)
        except ConsumerError as error:
            return _failed(unit, error)
        return Warmed(unit.topic, unit.assignment, found.id, real)

    def _real_table(self, session: Session, unit: About) -> bytes:
        """Return the target table that the unit's stored definition leads to, as JSON; empty when there is none yet."""
        _, state = session.read(Unit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None:
            return b""
        real = read_real(session, stored_table(state.definition), unit.source, self._pipeline.routes)
        return b"" if real is None else encode_table(real)

    def _bounds(self, unit: About) -> Bounds:
        found = self._cluster.bounds([unit.topic]).get(unit.topic)
        if found is None:
            raise TransientError(f"{unit.topic}: the topic is gone")
        self._seen(unit.source, unit.topic, found[1] - 1)
        return found

    # -- start

    def take(self, asked: Take) -> Took | Failed:
        """Raise the epoch; then apply what is missing, if it is little."""
        unit, began = asked.unit, time.monotonic()
        with self._counted():
            took = self._take(unit, asked.above)
        if isinstance(took, Took):
            log.info(
                "unit taken over", pipeline=self._pipeline.name, topic=unit.topic, epoch=took.epoch,
                offset=took.offset, behind=took.behind, ms=round((time.monotonic() - began) * 1000),
            )  # fmt: skip
        return took

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the units that are being taken, by those that wait for a hand, too."""
        try:
            yield
        finally:
            with self._mutex:
                self._taking -= 1

    def announce(self) -> None:
        """A `take` has been asked for; it may have to wait for a hand."""
        with self._mutex:
            self._taking += 1

    def _take(self, unit: About, above: int) -> Took | Failed:
        try:
            bounds = self._bounds(unit)
            with self._hand() as sessions:
                taken = take_unit(
                    sessions.get(0), self._pipeline, unit.topic, unit.topic_id, bounds,
                    assigned=unit.assignment, above=above,
                )  # fmt: skip
                if taken.refusal is not None:
                    return _refused(unit, taken.epoch, taken.refusal)
                if taken.definition is None and unit.source in self._pipeline.debezium:
                    undefined = self._define(unit, taken.epoch, sessions)
                    if undefined is not None:
                        return undefined
                return self._catch_up(unit, taken, bounds[1], sessions)
        except ConsumerError as error:
            return _failed(unit, error)

    def _define(self, unit: About, epoch: int, sessions: SessionCache) -> Failed | None:
        """Put in force what the source's database says of the table; return why that cannot be, None: it is."""
        try:
            refusal = define_unit(self._pipeline, self._spec(unit, epoch), sessions)
        except ConsumerError as error:
            return replace(_failed(unit, error), epoch=epoch)
        return None if refusal is None else _refused(unit, epoch, refusal)

    def _catch_up(self, unit: About, taken: Taken, end: int, sessions: SessionCache) -> Took | Failed:
        """Apply what is missing up to `end`, if it is little, in stretches of one transaction each."""
        lowest = taken.lowest
        took = Took(
            unit.topic, unit.assignment, taken.epoch, lowest.offset,
            position=lowest.position, commit_ts_ms=taken.commit_ts_ms,
        )  # fmt: skip
        if end - (lowest.offset + 1) > self._little:
            return replace(took, behind=True)
        while took.offset + 1 < end and (unit.topic, unit.assignment) not in self._aborted:
            upto = min(took.offset + 1 + SMALL, end)
            report = self._apply(unit, taken.epoch, sessions, took.offset + 1, upto)
            if report.state == "stopped":
                return _refused(unit, taken.epoch, report.message)
            if report.state != "ok":
                return Failed(unit.topic, unit.assignment, report.message, again=True, epoch=taken.epoch)
            if report.offset == took.offset:
                return self._no_records(unit, taken.epoch, took.offset + 1, end)
            took = replace(
                took, offset=report.offset, position=report.position, applied=took.applied + report.applied,
                displaced=took.displaced + report.displaced,
                commit_ts_ms=max(took.commit_ts_ms, report.commit_ts_ms),
            )  # fmt: skip
        return took

    def _no_records(self, unit: About, epoch: int, start: int, end: int) -> Failed:
        """Say why [start, end) of a topic could be read and nothing came: progress would never arrive at its end."""
        what = f"{unit.topic}: offsets {start} to {end - 1} hold no records"
        if (
            unit.source not in self._pipeline.debezium
        ):  # a new leader may not know the end of its own topic yet
            return Failed(unit.topic, unit.assignment, f"{what} yet", again=True, epoch=epoch)
        return _refused(
            unit,
            epoch,
            f"{what}: they are marks of Kafka transactions, and rowlock applies topics that are written without: set "
            f"exactly.once.source.support=disabled for the workers of Debezium's connector, and {START_OVER}",
        )

    @property
    def _little(self) -> int:
        """Return how many events a hand applies itself now: when many units start at once, Spark is better at it."""
        return BY_HAND if self._taking <= 2 else SHORT

    def _apply(self, unit: About, epoch: int, sessions: SessionCache, start: int, end: int) -> Report:
        spec = self._spec(unit, epoch)
        return apply_topic(
            replace(spec, short=min(SMALL, spec.limits.max_gather)),  # one transaction, where that can be
            sessions,
            read_range(self._reader, unit.topic, start, end),
            read_missing=lambda first, upto: read_range(self._reader, unit.topic, first, upto),
            tables=self._tables,
        )

    def _spec(self, unit: About, epoch: int) -> UnitSpec:
        return self._pipeline.spec(
            unit.topic, unit.source,
            epoch=epoch, topic_id=unit.topic_id, assigned=unit.assignment, real=unit.real,
        )  # fmt: skip

    # -- stop

    def fence(self, asked: Fence) -> Fenced:
        """Raise the epoch, so that no worker can write any more, and say where the unit stands.

        When the target does not answer for PROOF_S, wait for the attempts to end, and end their processes: then nothing
        of ours can write either, and where the unit stands is not known.
        """
        unit = asked.unit
        nobody = Fenced(unit.topic, unit.assignment)
        if not asked.above:
            return nobody
        self._let_end(unit.topic)
        answer: queue.SimpleQueue[Fenced] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: answer.put(self._fenced_in_target(asked)), name=f"fence {unit.topic}", daemon=True
        ).start()
        with suppress(queue.Empty):
            return answer.get(timeout=PROOF_S)
        log.warning("unit ends without its target, which does not answer", topic=unit.topic)
        while (holder := self._attempts.holder(unit.topic)) is not None:
            _end(holder, unit.topic)
            time.sleep(AGAIN_S)
        return nobody

    def _let_end(self, topic: str) -> None:
        """Let an attempt end by itself, if it soon does: its lanes then stand equal, and nothing is applied twice."""
        last = time.monotonic() + GRACE_S
        while time.monotonic() < last and self._attempts.holder(topic) is not None:
            time.sleep(GRACE_S / 50)

    def _fenced_in_target(self, asked: Fence) -> Fenced:
        """Try for as long as it takes; somebody's later assignment is as good as our own fence."""
        while True:
            try:
                return self._fence(asked)
            except FencedError as error:
                log.info("unit belongs to a later assignment", topic=asked.unit.topic, seen=str(error))
                return Fenced(asked.unit.topic, asked.unit.assignment)
            except ConsumerError as error:
                log.warning("unit cannot be fenced yet", topic=asked.unit.topic, error=str(error)[:300])
                time.sleep(AGAIN_S)

    def _fence(self, asked: Fence) -> Fenced:
        unit, pipeline = asked.unit, self._pipeline
        place = Unit(pipeline.name, unit.topic)
        with self._hand() as sessions:
            epoch, rows, _ = sessions.get(0).take_over(
                place, unit.topic_id, pipeline.layout, pipeline.config.lanes,
                assigned=unit.assignment, above=asked.above,
            )  # fmt: skip
            if asked.stopped is not None:
                sessions.get(0).stop_unit(place, epoch, asked.stopped)
        lowest = min(rows, key=lambda row: row.offset)
        return Fenced(unit.topic, unit.assignment, lowest.offset, lowest.position)

    def close(self) -> None:
        """Close the connections of the hands that are free."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close()


def _failed(unit: About, error: ConsumerError) -> Failed:
    again = isinstance(error, TransientError)
    return Failed(unit.topic, unit.assignment, str(error)[:500], again=again)


def _refused(unit: About, epoch: int, why: str) -> Failed:
    return Failed(unit.topic, unit.assignment, why, again=False, epoch=epoch, waits=True)


def _end(process: int, topic: str) -> None:
    log.error("a worker holds on to a unit that has ended: its process is ended", topic=topic, worker=process)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
