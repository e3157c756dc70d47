"""The hands that operations on units run with: connections to the target, facts about topics from Kafka, and the result of an
error for its unit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import structlog

from consumer.attempt.reports import CopyNeed
from consumer.attempt.trouble import trouble_of
from consumer.errors import ConsumerError, TransientError, UnitStoppedError
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.worker import ConnectionCache
from consumer.tables.discovery import Cluster, Described
from consumer.units.messages import Failed
from consumer.units.unit import About
from schemas.findings import START_OVER
from schemas.topic_rules import compaction_refusal, partitions_refusal

log = structlog.get_logger(__name__)

TAKERS, FENCERS, LOOKERS, CHECKERS = 3, 2, 1, 1
"""Hands that prepare and start units, that end them, that look at those that wait and at those that run: none of these waits for
another."""
MESSAGE = 1000
"""Characters of an error that are passed on."""
Bounds = tuple[int, int]


class Hands:
    """Connections to the target of one pipeline: as many as operations run at once. A unit has one hand at a time (the core sees to it)."""

    def __init__(self, pipeline: PipelineSettings) -> None:
        self._lanes = pipeline.config.lanes
        self._free: queue.LifoQueue[ConnectionCache] = queue.LifoQueue()
        for number in range(TAKERS + FENCERS + LOOKERS + CHECKERS):
            self._free.put(ConnectionCache(pipeline.target, f"rowlock {pipeline.name} hand {number}"))
        self._books = threading.Lock()
        self._books_are_there = False

    @contextmanager
    def one(self) -> Iterator[ConnectionCache]:
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
            for lane in range(1, self._lanes):
                sessions.drop(lane)
            self._free.put(sessions)

    def _ensure_books(self, sessions: ConnectionCache) -> None:
        with self._books:
            if not self._books_are_there:
                sessions.get(0).ensure_bookkeeping()
                self._books_are_there = True

    def close(self) -> None:
        """Close the connections of the hands that are free."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close()


class UnitTopics:
    """Reads from Kafka the ids and bounds of units' topics. `seen`: is told (source, topic, last offset) of every topic that a hand looks at."""

    def __init__(self, cluster: Cluster, seen: Callable[[str, str, int], None]) -> None:
        self._cluster = cluster
        self._seen = seen

    def bounds(self, topics: Iterable[str]) -> dict[str, Bounds]:
        """Return topic → (first, next) offset. Raises TransientError."""
        return self._cluster.bounds(list(topics))

    def described(self, unit: About) -> Described | None:
        return self._cluster.described([unit.topic]).get(unit.topic)

    def split(self, unit: About, *, debezium: bool) -> str | None:
        """Return why a topic with several partitions is not applied; None: it has one. Raises TransientError."""
        found = self.described(unit)
        return found and partitions_refusal(unit.topic, found.partitions, debezium=debezium)

    def refusal(self, unit: About, *, debezium: bool) -> str | None:
        """Return why the topic's settings keep its events from being applied; None: nothing does, as far as the user may see them.

        Raises TransientError.
        """
        if (split := self.split(unit, debezium=debezium)) is not None:
            return split
        policy = self._cluster.policy(unit.topic)
        return None if policy is None else compaction_refusal(unit.topic, policy)

    def awaited(self, unit: About) -> Bounds:
        """Return the bounds of a topic that may come yet. Raises TransientError."""
        found = self.bounds([unit.topic]).get(unit.topic)
        if found is None:
            raise TransientError(f"{unit.topic}: the topic is gone")
        self._seen(unit.source, unit.topic, found[1] - 1)
        return found

    def present(self, unit: About) -> Bounds:
        """Return the bounds of a topic that has been there. Raises UnitStoppedError: it is gone."""
        found = self.bounds([unit.topic]).get(unit.topic)
        if found is None:
            raise UnitStoppedError(
                f"{unit.topic}: Kafka does not have the topic any more, with what is not applied yet: {START_OVER}"
            )
        self._seen(unit.source, unit.topic, found[1] - 1)
        return found


def failed(unit: About, error: Exception) -> Failed:
    """Say what `error` means for the unit; one that is fenced belongs to somebody else, and ends here."""
    trouble = trouble_of(unit.topic, error)
    if trouble.fault:
        log.error("a unit failed by a fault of rowlock", topic=unit.topic, exc_info=error)
    return Failed(
        unit.topic, unit.assignment, trouble.message[:MESSAGE], again=trouble.state == "behind",
        waits=trouble.state == "stopped", copy=trouble.copy,
    )  # fmt: skip


def refused(unit: About, epoch: int, why: str, copy: CopyNeed | None = None) -> Failed:
    return Failed(unit.topic, unit.assignment, why, again=False, epoch=epoch, waits=True, copy=copy)
