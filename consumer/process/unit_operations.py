"""Blocking operations on one unit: prepare, take over (and catch up), fence.

A hand has connections of its own; a few of them serve all units of a pipeline, each unit one at a time (the core sees to
that). A unit that lacks little is applied here, by the same code as in Spark's workers, before it goes onto a query's
board: so a move interrupts it for as long as this takes, and no query is touched. It goes on being applied here, a stretch at a time,
until a query is there that reads it: a start does not wait for Spark.
"""

from __future__ import annotations

import hashlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import structlog

from consumer.attempt.drivers.threads import apply_topic, stop_topic
from consumer.attempt.kafka_reader import client_options, read_range
from consumer.attempt.reports import Report
from consumer.attempt.spec import SMALL_BATCH, UnitSpec
from consumer.attempt.trouble import trouble_of
from consumer.errors import ConsumerError, FencedError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.process.takeover import TakeoverResult, define_unit, take_unit
from consumer.spark.active_units import Attempts
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.worker import SessionCache
from consumer.tables.definition import InForce, read_real, stored_table, wanted_of
from consumer.tables.discovery import Cluster, partitions_refusal
from consumer.tables.fitness import explained, misfit
from consumer.targets.base import Session
from consumer.units.decisions import SMALL
from consumer.units.messages import (
    About,
    Check,
    Checked,
    Examine,
    Examined,
    Failed,
    FenceUnit,
    Follow,
    Followed,
    Take,
    Took,
    UnitFenced,
    Warm,
    Warmed,
)
from schemas.findings import START_OVER
from schemas.wire.codec import encode_table

log = structlog.get_logger(__name__)

TAKERS, FENCERS, LOOKERS, CHECKERS = 3, 2, 1, 1
"""Hands that open and start units, that end them, that look at those that wait and at those that run: none of these waits for
another."""
BY_HAND = 60_000
"""On takeover a backlog of up to so many events is applied by the agent itself, before a Spark query gets the unit: the catching-up
query needs a second to start."""
MESSAGE = 1000
"""Characters of an error that are passed on."""
GRACE_S = 0.2
"""How long an attempt in a worker may go on after its unit was stopped, before it is fenced."""
PROOF_S = 5.0
"""How long a target may say nothing to a fence; then the unit's attempts are ended another way."""
AGAIN_S, LONGEST_AGAIN_S = 0.2, 10.0
Bounds = tuple[int, int]


class UnitOperations:
    """The hands of one pipeline. What is done for a unit returns what the core is to be told, and never raises: whatever goes
    wrong, of whatever class, is that unit's own (consumer.attempt.trouble)."""

    def __init__(
        self, pipeline: PipelineSettings, attempts: Attempts, seen: Callable[[str, str, int], None]
    ) -> None:
        """`seen`: is told (source, topic, last offset) of every topic that a hand looks at."""
        self._pipeline = pipeline
        self._attempts = attempts
        self._seen = seen
        self._cluster = Cluster(pipeline.bootstrap, pipeline.kafka_options)
        self._reader = client_options(pipeline.bootstrap, pipeline.kafka_options)
        self._tables: dict[tuple[str, int], InForce] = {}
        self._free: queue.LifoQueue[SessionCache] = queue.LifoQueue()
        for number in range(TAKERS + FENCERS + LOOKERS + CHECKERS):
            self._free.put(SessionCache(pipeline.target, f"rowlock {pipeline.name} hand {number}"))
        self._mutex = threading.Lock()
        self._taking = 0
        self._books = threading.Lock()
        self._books_are_there = False
        self._aborted: set[tuple[str, int]] = set()
        self._misfits: set[tuple[str, int]] = set()

    def bounds(self, topics: Iterable[str]) -> dict[str, Bounds]:
        """Return topic → (first, next) offset. Raises TransientError."""
        return self._cluster.bounds(list(topics))

    def abort(self, topic: str, assignment: int) -> None:
        """What is under way for the unit shall end soon; until it is forgotten."""
        self._aborted.add((topic, assignment))

    def forget(self, topic: str, assignment: int) -> None:
        """The unit is no longer here."""
        self._aborted.discard((topic, assignment))
        self._misfits.discard((topic, assignment))
        self._tables.pop((topic, assignment), None)

    @contextmanager
    def _hand(self) -> Iterator[SessionCache]:
        """A free hand; its lanes' connections are closed afterwards, the first is kept if nothing went wrong with it."""
        sessions = self._free.get()
        try:
            self._ensure_books(sessions)
            yield sessions
        except ConsumerError:
            sessions.check(0)
            raise
        except Exception:
            sessions.drop(0)
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
            self._bounds(unit)
        except Exception as error:  # noqa: BLE001  # without its topic nothing can be done for it; see consumer.attempt.trouble
            return replace(_failed(unit, error), again=True, waits=False)
        try:
            with self._hand() as sessions:
                return Warmed(unit.topic, unit.assignment, found.id, self._real_table(sessions.get(0), unit))
        except TransientError as error:
            return _failed(unit, error)
        except Exception as error:  # noqa: BLE001  # the start meets it again, and the unit then waits for a person
            log.info("a unit's target table cannot be read", topic=unit.topic, error=str(error)[:300])
            return Warmed(unit.topic, unit.assignment, found.id)

    def _real_table(self, session: Session, unit: About) -> bytes:
        """Return the target table that the unit's stored definition leads to, as JSON; empty when there is none yet."""
        _, state = session.read(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None:
            return b""
        if self._misfit(session, unit, state.definition) is not None:
            self._misfits.add((unit.topic, unit.assignment))  # its start looks again, and refuses
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
            took = self._take(unit, asked.above, asked.look)
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

    def _take(self, unit: About, above: int, look: bool = False) -> Took | Failed:
        try:
            bounds = self._present(unit)
            with self._hand() as sessions:
                taken = take_unit(
                    sessions.get(0), self._pipeline, unit.topic, unit.topic_id, bounds,
                    assigned=unit.assignment, above=above,
                )  # fmt: skip
                if taken.refusal is not None:
                    return _refused(unit, taken.epoch, taken.refusal)
                try:
                    return self._go_on(unit, taken, bounds[1], sessions, look)
                except Exception as error:  # noqa: BLE001  # see consumer.attempt.trouble
                    return self._given_up(unit, taken.epoch, error, sessions, lambda: self._spec(unit, taken))
        except Exception as error:  # noqa: BLE001  # see consumer.attempt.trouble
            return _failed(unit, error)

    def _present(self, unit: About) -> Bounds:
        """Return the topic's bounds. Raises UnitStoppedError: it is gone."""
        found = self._cluster.bounds([unit.topic]).get(unit.topic)
        if found is None:
            raise UnitStoppedError(
                f"{unit.topic}: Kafka does not have the topic any more, with what is not applied yet: {START_OVER}"
            )
        self._seen(unit.source, unit.topic, found[1] - 1)
        return found

    def _go_on(
        self, unit: About, taken: TakeoverResult, end: int, sessions: SessionCache, look: bool
    ) -> Took | Failed:
        """Do what is left of a start once the epoch is raised."""
        debezium = unit.source in self._pipeline.debezium
        found = self._cluster.described([unit.topic]).get(unit.topic)
        if found and (refusal := partitions_refusal(unit.topic, found.partitions, debezium=debezium)):
            raise UnitStoppedError(refusal)
        if look or (unit.topic, unit.assignment) in self._misfits:  # else nobody waits for this look
            why = self._misfit(sessions.get(0), unit, taken.definition)
            if why is not None:
                raise UnitStoppedError(why)
        if taken.definition is None and debezium:
            refusal = define_unit(self._pipeline, self._spec(unit, taken), sessions)
            if refusal is not None:
                return _refused(unit, taken.epoch, refusal)
        return self._catch_up(unit, taken, end, sessions)

    def _misfit(self, session: Session, unit: About, definition: str | None) -> str | None:
        """Return why the target table must not be written as it is now; None: it fits, or has no definition yet."""
        if definition is None:
            return None
        return misfit(session, stored_table(definition), unit.source, self._pipeline.routes)

    def _given_up(
        self, unit: About, epoch: int, error: Exception, sessions: SessionCache, spec: Callable[[], UnitSpec]
    ) -> Failed:
        """Record in the target what a unit waits for that we own; it waits all the same where that cannot be."""
        failed = replace(_failed(unit, error), epoch=epoch)
        if failed.waits:
            try:
                stop_topic(spec(), sessions, failed.error)
            except Exception as failure:  # noqa: BLE001  # said here, and held in memory
                log.error("a stop cannot be recorded", topic=unit.topic, error=str(failure)[:300])
                sessions.drop(0)
        return failed

    # -- wait

    def examine(self, asked: Examine) -> Examined:
        """Look at what a unit waits in front of: its topic, its target table, what the target's bookkeeping says of it."""
        unit = asked.unit
        try:
            self._tables.pop((unit.topic, unit.assignment), None)
            found = self._cluster.described([unit.topic]).get(unit.topic)
            first = self._cluster.bounds([unit.topic]).get(unit.topic, (-1, -1))[0]
            with self._hand() as sessions:
                seen, real = self._examined(sessions.get(0), unit)
        except Exception as error:  # noqa: BLE001  # seen later, or tried then
            log.info("a waiting unit cannot be looked at", topic=unit.topic, error=str(error)[:300])
            return Examined(unit.topic, unit.assignment)
        digest = hashlib.blake2b(repr((found, first, seen)).encode(), digest_size=16).hexdigest()
        return Examined(
            unit.topic, unit.assignment, digest, unit.topic_id if found is None else found.id, real
        )

    def _examined(self, session: Session, unit: About) -> tuple[object, bytes]:
        """Return all that may matter of the target, and the target table as JSON (empty: there is none)."""
        _, state = session.read(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None:
            return state and state.ddl, b""
        wanted = wanted_of(stored_table(state.definition), unit.source, self._pipeline.routes)
        about = (state.definition, state.ddl)  # what it is stopped by every try writes anew
        if wanted is None:
            return about, b""
        real = session.read_table(wanted.db, wanted.name)
        if real is None:
            return about, b""
        text = encode_table(real)
        return (about, text, session.surroundings(wanted.db, wanted.name)), text

    # -- run

    def check(self, asked: Check) -> Checked:
        """Look whether the target table of a unit that runs still fits; where not, nothing of its epoch writes any more."""
        unit, place = asked.unit, ApplyUnit(self._pipeline.name, asked.unit.topic)
        why = None
        try:
            with self._hand() as sessions:
                session = sessions.get(0)
                _, state = session.read(place, lanes=False)
                if state is not None and state.definition is not None:
                    source = stored_table(state.definition)
                    why = explained(session, source, unit.source, self._pipeline.routes)
                if why is not None:
                    session.stop_unit(place, asked.epoch, why)
        except Exception as error:  # noqa: BLE001  # it is looked at again
            log.info("a running unit cannot be looked at", topic=unit.topic, error=str(error)[:300])
        return Checked(unit.topic, unit.assignment, asked.epoch, why)

    # -- apply what is missing

    def _catch_up(
        self, unit: About, taken: TakeoverResult, end: int, sessions: SessionCache
    ) -> Took | Failed:
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
            report = self._apply(self._spec(unit, taken), sessions, took.offset + 1, upto)
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
        raise UnitStoppedError(
            f"{what}: they are marks of Kafka transactions, and rowlock applies topics that are written without: set "
            f"exactly.once.source.support=disabled for the workers of Debezium's connector, and {START_OVER}"
        )

    @property
    def _little(self) -> int:
        """Return how many events a hand applies itself now: when many units start at once, Spark is better at it."""
        return BY_HAND if self._taking <= 2 else SMALL_BATCH

    def follow(self, asked: Follow) -> Followed | Failed:
        """Apply a stretch of what has come to a unit that is ours and that no query applies yet."""
        unit, start = asked.unit, asked.offset + 1
        try:
            _, end = self._present(unit)
            if end <= start or (unit.topic, unit.assignment) in self._aborted:
                return Followed(unit.topic, unit.assignment)
            with self._hand() as sessions:
                try:
                    spec = self._spec_under(unit, asked.epoch)
                    return self._followed(unit, spec, sessions, start, end)
                except Exception as error:  # noqa: BLE001  # see consumer.attempt.trouble
                    return self._given_up(
                        unit, asked.epoch, error, sessions, lambda: self._spec_under(unit, asked.epoch)
                    )
        except Exception as error:  # noqa: BLE001  # see consumer.attempt.trouble
            return _failed(unit, error)

    def _followed(
        self, unit: About, spec: UnitSpec, sessions: SessionCache, start: int, end: int
    ) -> Followed | Failed:
        report = self._apply(spec, sessions, start, min(start + SMALL, end))
        if report.state == "stopped":
            return _refused(unit, spec.epoch, report.message)
        if report.state != "ok":
            return Failed(unit.topic, unit.assignment, report.message, again=True, epoch=spec.epoch)
        if report.offset < start:
            return self._no_records(unit, spec.epoch, start, end)
        return Followed(unit.topic, unit.assignment, report, end - (report.offset + 1))

    def _apply(self, spec: UnitSpec, sessions: SessionCache, start: int, end: int) -> Report:
        topic = spec.unit.topic
        return apply_topic(
            replace(
                spec, small_batch=min(SMALL, spec.limits.max_gather)
            ),  # one transaction, where that can be
            sessions,
            read_range(self._reader, topic, start, end),
            read_missing=lambda first, upto: read_range(self._reader, topic, first, upto),
            tables=self._tables,
        )

    def _spec(self, unit: About, taken: TakeoverResult) -> UnitSpec:
        return replace(self._spec_under(unit, taken.epoch), was=taken.was)

    def _spec_under(self, unit: About, epoch: int) -> UnitSpec:
        return self._pipeline.spec(
            unit.topic, unit.source,
            epoch=epoch, topic_id=unit.topic_id, assigned=unit.assignment, real=unit.real,
        )  # fmt: skip

    # -- stop

    def fence(self, asked: FenceUnit) -> UnitFenced:
        """Raise the epoch, so that no worker can write any more, and say where the unit stands.

        When the target does not answer for PROOF_S, wait for the attempts to end, and end their processes: then nothing
        of ours can write either, and where the unit stands is not known.
        """
        unit = asked.unit
        nobody = UnitFenced(unit.topic, unit.assignment)
        if not asked.above:
            return nobody
        self._let_end(unit.topic)
        answer: queue.SimpleQueue[UnitFenced] = queue.SimpleQueue()
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

    def _fenced_in_target(self, asked: FenceUnit) -> UnitFenced:
        """Try for as long as it takes; somebody's later assignment is as good as our own fence."""
        pause = AGAIN_S
        while True:
            try:
                return self._fence(asked)
            except FencedError as error:
                log.info("unit belongs to a later assignment", topic=asked.unit.topic, seen=str(error))
                return UnitFenced(asked.unit.topic, asked.unit.assignment)
            except Exception as error:  # whatever it is: until it is fenced, it may write
                trouble = trouble_of(asked.unit.topic, error)
                log.warning(
                    "unit cannot be fenced yet", topic=asked.unit.topic, error=trouble.message[:300],
                    again_in_s=pause, exc_info=error if trouble.fault else None,
                )  # fmt: skip
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_AGAIN_S)

    def _fence(self, asked: FenceUnit) -> UnitFenced:
        unit, pipeline = asked.unit, self._pipeline
        place = ApplyUnit(pipeline.name, unit.topic)
        with self._hand() as sessions:
            epoch, rows, state = sessions.get(0).take_over(
                place, unit.topic_id, pipeline.layout, pipeline.config.lanes,
                assigned=unit.assignment, above=asked.above,
            )  # fmt: skip
            if asked.stopped is not None:
                sessions.get(0).stop_unit(place, epoch, asked.stopped, was=state.stopped)
        lowest = min(rows, key=lambda row: row.offset)
        return UnitFenced(unit.topic, unit.assignment, lowest.offset, lowest.position)

    def close(self) -> None:
        """Close the connections of the hands that are free."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close()


def _failed(unit: About, error: Exception) -> Failed:
    """Say what `error` means for the unit; one that is fenced belongs to somebody else, and ends here."""
    trouble = trouble_of(unit.topic, error)
    if trouble.fault:
        log.error("a unit failed by a fault of rowlock", topic=unit.topic, exc_info=error)
    return Failed(
        unit.topic, unit.assignment, trouble.message[:MESSAGE], again=trouble.state == "behind",
        waits=trouble.state == "stopped",
    )  # fmt: skip


def _refused(unit: About, epoch: int, why: str) -> Failed:
    return Failed(unit.topic, unit.assignment, why, again=False, epoch=epoch, waits=True)


def _end(process: int, topic: str) -> None:
    log.error("a worker holds on to a unit that has ended: its process is ended", topic=topic, worker=process)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
