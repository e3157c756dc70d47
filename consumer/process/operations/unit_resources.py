"""The resources that operations on units share: target connections, offsets of topics, and the classification
of errors.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import structlog

from consumer.attempt.reports import CopyNeed
from consumer.attempt.unit_errors import classify_error
from consumer.errors import ConsumerError, CopyNeededError, MissingGrantError
from consumer.slots.connections import ConnectionCache
from consumer.slots.pipeline import PipelineSettings
from consumer.tables.discovery import KafkaCluster, TopicDescription
from consumer.units.messages import OperationFailed
from consumer.units.unit import UnitRef
from schemas.config.model import TargetConfig
from schemas.problems import Problem, encode_problem
from schemas.topic_rules import explain_compaction_refusal, partitions_refusal

log = structlog.get_logger(__name__)

TAKERS, FENCERS, LOOKERS, CHECKERS = 3, 2, 1, 1
"""Threads that prepare and take over units, fence them, probe stopped units, and check running ones.
These four groups do not wait for each other."""
MAX_ERROR_CHARS = 1000
"""Characters of an error that are passed on."""
OffsetBounds = tuple[int, int]


class TargetConnectionPool:
    """Connections to the target of one pipeline, one set for each operation that may run at once."""

    def __init__(self, pipeline: PipelineSettings) -> None:
        self._lanes = pipeline.config.lanes
        self._free: queue.LifoQueue[ConnectionCache] = queue.LifoQueue()
        self._all = [
            ConnectionCache(pipeline.target, f"rowlock {pipeline.name} hand {number}")
            for number in range(TAKERS + FENCERS + LOOKERS + CHECKERS)
        ]
        for each in self._all:
            self._free.put(each)
        self._stale: set[ConnectionCache] = set()
        """The sets that log in again: MySQL gives a right on *.* to sessions that begin after its GRANT."""
        self._books = threading.Lock()
        self._books_are_there = False

    def use_target(self, target: TargetConfig) -> None:
        """Connect with these settings from now on, which differ in secrets alone: units must be fenced also
        when the server refuses the earlier password.
        """
        for each in self._all:
            each.use_target(target)

    @contextmanager
    def borrow_connections(self) -> Iterator[ConnectionCache]:
        """Borrow a free set of connections.

        Afterwards its lanes' connections are closed; the first is kept unless it broke.
        """
        sessions = self._free.get()
        if sessions in self._stale:
            self._stale.discard(sessions)
            sessions.drop_connection(0)
        try:
            self._ensure_books(sessions)
            yield sessions
        except MissingGrantError:
            self._stale = {*self._all}
            raise
        except ConsumerError:
            sessions.drop_if_broken(0)
            raise
        except Exception:
            sessions.drop_connection(0)
            raise
        finally:
            for lane in range(1, self._lanes):
                sessions.drop_connection(lane)
            self._free.put(sessions)

    def _ensure_books(self, sessions: ConnectionCache) -> None:
        with self._books:
            if not self._books_are_there:
                sessions.get_connection(0).ensure_bookkeeping()
                self._books_are_there = True

    def close(self) -> None:
        """Close the idle connections."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close()


class UnitTopics:
    """Reads the ids and bounds of units' topics from Kafka.

    `seen` receives (source, topic, last offset) of every topic after its bounds were read.
    """

    def __init__(self, cluster: KafkaCluster, seen: Callable[[str, str, int], None]) -> None:
        self._cluster = cluster
        self._seen = seen

    def fetch_bounds(self, topics: Iterable[str]) -> dict[str, OffsetBounds]:
        """Return topic → (first, next) offset. Raises TransientError."""
        return self._cluster.fetch_bounds(list(topics))

    def describe_topic(self, unit: UnitRef) -> TopicDescription | None:
        return self._cluster.describe_topics([unit.topic]).get(unit.topic)

    def find_partitions_problem(self, unit: UnitRef, *, debezium: bool) -> Problem | None:
        """Return why a topic with several partitions is not applied; None if it has one. Raises
        TransientError.
        """
        found = self.describe_topic(unit)
        return None if found is None else partitions_refusal(unit.topic, found.partitions, debezium=debezium)

    def find_topic_problem(self, unit: UnitRef, *, debezium: bool) -> Problem | None:
        """Return why the topic's settings do not allow its events to be applied; None if they do, or may
        not be read.

        Raises TransientError.
        """
        if (split := self.find_partitions_problem(unit, debezium=debezium)) is not None:
            return split
        policy = self._cluster.fetch_cleanup_policy(unit.topic)
        return None if policy is None else explain_compaction_refusal(unit.topic, policy)

    def require_bounds(self, unit: UnitRef) -> OffsetBounds:
        """Return the bounds of a topic that has existed. Raises CopyNeededError if it was deleted."""
        found = self.fetch_bounds([unit.topic]).get(unit.topic)
        if found is None:
            raise CopyNeededError(
                f"{unit.topic}: Kafka no longer has the topic, nor the records that are not applied yet",
                cause="topic-lost", after=-1,
            )  # fmt: skip
        self._seen(unit.source, unit.topic, found[1] - 1)
        return found


def build_failure(unit: UnitRef, error: Exception) -> OperationFailed:
    """Return the failure that `error` means for the unit. A fenced unit belongs to another process, so
    it ends here.
    """
    trouble = classify_error(unit.topic, error)
    if trouble.fault:
        log.error("unit failed by an internal error", topic=unit.topic, exc_info=error)
    return OperationFailed(
        unit.topic, unit.assignment, encode_problem(trouble.problem, MAX_ERROR_CHARS),
        should_retry=trouble.state == "behind", waits=trouble.state == "stopped", copy=trouble.copy,
    )  # fmt: skip


def build_stop(unit: UnitRef, epoch: int, why: str, copy: CopyNeed | None = None) -> OperationFailed:
    return OperationFailed(
        unit.topic, unit.assignment, why, should_retry=False, epoch=epoch, waits=True, copy=copy
    )
