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
from contextlib import contextmanager
from dataclasses import replace

import structlog

from consumer.assigned.core import SMALL
from consumer.assigned.units import Failed, Fence, Fenced, Take, Took, Warm, Warmed
from consumer.board import Attempts
from consumer.definition import InForce
from consumer.discovery import Cluster
from consumer.errors import ConsumerError, FencedError, TransientError, UnitStoppedError
from consumer.kafka_reader import client_options, read_range
from consumer.model import Unit
from consumer.pipeline import Pipeline
from consumer.reports import Report
from consumer.taking import Taken, take_unit
from consumer.unit import Slice, UnitSpec, apply_topic, definition_in_force
from consumer.worker import SessionCache

log = structlog.get_logger(__name__)

TAKERS, FENCERS = 3, 2
"""Hands that open and start units, and that end them: the latter never wait for the former."""
GRACE_S = 0.2
"""How long an attempt in a worker may go on after its unit was stopped, before it is fenced."""
PROOF_S = 5.0
"""How long an attempt may outlast its unit while the target does not answer; then its process is ended."""
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
        try:
            topic_id = self._cluster.topic_ids([asked.topic]).get(asked.topic)
            if topic_id is None:
                return Failed(asked.topic, asked.assignment, f"{asked.topic}: no such topic yet", again=True)
            self._bounds(asked.topic, asked.source)
            with self._hand() as sessions:
                self._warm_table(sessions, self._spec(asked, topic_id, create=False))
        except ConsumerError as error:
            return _failed(asked, error)
        return Warmed(asked.topic, asked.assignment, topic_id)

    def _warm_table(self, sessions: SessionCache, spec: UnitSpec) -> None:
        _, state = sessions.get(0).read(spec.unit, lanes=False)
        if state is None or state.definition is None:
            return
        try:
            definition_in_force(spec, sessions.get(0), state.definition, self._tables)
        except UnitStoppedError as error:  # the start will say so, or find it mended
            log.info("the target does not fit yet", topic=spec.unit.topic, reason=str(error))

    def _bounds(self, topic: str, source: str) -> Bounds:
        found = self._cluster.bounds([topic]).get(topic)
        if found is None:
            raise TransientError(f"{topic}: the topic is gone")
        self._seen(source, topic, found[1] - 1)
        return found

    def _spec(self, asked: Warm | Take, topic_id: str, *, epoch: int = 0, create: bool) -> UnitSpec:
        return self._pipeline.spec(
            asked.topic,
            asked.source,
            epoch=epoch,
            topic_id=topic_id,
            assigned=asked.assignment,
            create=create,
        )

    # -- start

    def take(self, asked: Take) -> Took | Failed:
        """Raise the epoch; then apply what is missing, if it is little."""
        began = time.monotonic()
        try:
            bounds = self._bounds(asked.topic, asked.source)
            with self._hand() as sessions:
                taken = take_unit(
                    sessions.get(0), self._pipeline, asked.topic, asked.topic_id, bounds,
                    assigned=asked.assignment, above=asked.above,
                )  # fmt: skip
                if taken.refusal is not None:
                    return self._refused(asked, taken.epoch, taken.refusal)
                took = self._catch_up(asked, taken, bounds[1], sessions)
        except ConsumerError as error:
            return _failed(asked, error)
        if isinstance(took, Took):
            log.info(
                "unit taken over", pipeline=self._pipeline.name, topic=asked.topic, epoch=took.epoch,
                offset=took.offset, end=took.end, ms=round((time.monotonic() - began) * 1000),
            )  # fmt: skip
        return took

    def _refused(self, asked: Take, epoch: int, why: str) -> Failed:
        return Failed(asked.topic, asked.assignment, why, again=False, epoch=epoch, waits=True)

    def _catch_up(self, asked: Take, taken: Taken, end: int, sessions: SessionCache) -> Took | Failed:
        lowest = taken.lowest
        took = Took(
            asked.topic,
            asked.assignment,
            taken.epoch,
            lowest.offset,
            end,
            lowest.position,
            taken.commit_ts_ms,
        )
        if not 0 < end - (lowest.offset + 1) <= SMALL:
            return took
        report = self._apply(asked, taken.epoch, sessions, lowest.offset + 1, end)
        if report.state == "stopped":
            return self._refused(asked, taken.epoch, report.message)
        if report.state != "ok":
            return Failed(asked.topic, asked.assignment, report.message, again=True, epoch=taken.epoch)
        return Took(
            asked.topic, asked.assignment, taken.epoch, report.offset, end, report.position,
            max(taken.commit_ts_ms, report.commit_ts_ms), report.applied,
        )  # fmt: skip

    def _apply(self, asked: Take, epoch: int, sessions: SessionCache, start: int, end: int) -> Report:
        place = (asked.topic, asked.assignment)
        slices = read_range(self._reader, asked.topic, start, end)
        spec = self._spec(asked, asked.topic_id, epoch=epoch, create=True)
        return apply_topic(
            replace(spec, short=min(SMALL, spec.limits.max_gather)),  # one transaction, where that can be
            sessions,
            _until(lambda: place in self._aborted, slices),
            read_missing=lambda first, upto: read_range(self._reader, asked.topic, first, upto),
            tables=self._tables,
        )

    # -- stop

    def fence(self, asked: Fence) -> Fenced:
        """Raise the epoch, so that no worker can write any more, and say where the unit stands.

        While the target does not answer, wait for the attempts to end, and end their processes in the end: then nothing
        of ours can write either, and where the unit stands is not known.
        """
        began = time.monotonic()
        self._let_end(asked.topic)
        while asked.above:
            try:
                return self._fence(asked)
            except FencedError as error:
                log.info("unit was taken over by another agent", topic=asked.topic, seen=str(error))
                break
            except ConsumerError as error:
                holder = self._attempts.holder(asked.topic)
                if holder is None:
                    log.warning("unit ended without its target", topic=asked.topic, error=str(error)[:300])
                    break
                if time.monotonic() - began > PROOF_S:
                    _end(holder, asked.topic)
                time.sleep(AGAIN_S)
        return Fenced(asked.topic, asked.assignment)

    def _let_end(self, topic: str) -> None:
        """Let an attempt end by itself, if it soon does: its lanes then stand equal, and nothing is applied twice."""
        last = time.monotonic() + GRACE_S
        while time.monotonic() < last and self._attempts.holder(topic) is not None:
            time.sleep(GRACE_S / 50)

    def _fence(self, asked: Fence) -> Fenced:
        unit = Unit(self._pipeline.name, asked.topic)
        with self._hand() as sessions:
            epoch, rows, _ = sessions.get(0).take_over(
                unit, asked.topic_id, self._pipeline.layout, self._pipeline.config.lanes,
                assigned=asked.assignment, above=asked.above,
            )  # fmt: skip
            if asked.stopped is not None:
                sessions.get(0).stop_unit(unit, epoch, asked.stopped)
        lowest = min(rows, key=lambda row: row.offset)
        return Fenced(asked.topic, asked.assignment, lowest.offset, lowest.position)

    def close(self) -> None:
        """Close the connections of the hands that are free."""
        while not self._free.empty():
            self._free.get().close()


def _failed(asked: Warm | Take, error: ConsumerError) -> Failed:
    again = isinstance(error, TransientError)
    return Failed(asked.topic, asked.assignment, str(error)[:500], again=again)


def _until(aborted: Callable[[], bool], slices: Iterable[Slice]) -> Iterator[Slice]:
    for records in slices:
        if aborted():
            return
        yield records


def _end(process: int, topic: str) -> None:
    log.error("a worker holds on to a unit that has ended: its process is ended", topic=topic, worker=process)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
