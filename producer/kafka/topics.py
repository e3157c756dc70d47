"""Topics: created as capture needs them, and refused when they are not (one partition is what keeps events in order)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.cimpl import NewTopic

from producer.errors import KafkaRefusedError, TransientSourceError
from producer.kafka.settings import MAX_MESSAGE_BYTES, RETENTION_MS, admin_settings
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_admin

_LATEST: Any = cast(Any, kafka_admin).OffsetSpec.latest()
_LEADERS_WITHIN, _LOOK_AGAIN = 60.0, 0.05
_DAY_MS = 24 * 3600 * 1000

EVENTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "max.message.bytes": str(MAX_MESSAGE_BYTES + 65536),
    "message.timestamp.type": "CreateTime",
}
WATERMARKS: dict[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(_DAY_MS),
    "segment.ms": str(_DAY_MS // 4),
}
POSITIONS: dict[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": str(_DAY_MS // 24),
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


class Topics:
    """The topics of one source. All methods raise KafkaRefusedError, or TransientSourceError when no broker answers."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._admin = open_admin(admin_settings(kafka))
        self._known: set[str] = set()

    def ensure(self, names: Iterable[str], settings: dict[str, str]) -> set[str]:
        """Create what is missing, refuse what has another partition count. Returns the names that it created."""
        wanted = sorted(set(names) - self._known)
        if not wanted:
            return set()
        existing = self.partitions()
        refuse_partitions({name: existing[name] for name in wanted if name in existing})
        missing = [name for name in wanted if name not in existing]
        created = self._create(missing, settings) if missing else set()
        self._await_leaders(missing)
        self._known.update(wanted)
        return created

    def _await_leaders(self, names: list[str]) -> None:
        """Return when the leader of each new topic answers for it.

        A topic is created before its leader knows: what is produced until then is refused (UNKNOWN_TOPIC_OR_PART), for
        good, and would end the run of all tables of the source.
        """
        left, deadline = dict.fromkeys(names, ""), time.monotonic() + _LEADERS_WITHIN
        pause = threading.Event()
        while left := self._without_leader(left):
            if time.monotonic() > deadline:
                raise TransientSourceError(
                    f"the new topics {', '.join(sorted(left)[:3])} have no leader that answers: {min(left.values())}"
                )
            pause.wait(_LOOK_AGAIN)
            for (
                name
            ) in left:  # the client keeps the answer that a topic is unknown, and asks for its leader no more
                self._listed(topic=name)

    def _without_leader(self, names: Iterable[str]) -> dict[str, str]:
        """Return the topics whose leader does not answer for them, and what is said instead."""
        asked = {TopicPartition(name, 0): _LATEST for name in sorted(names)}
        left = {}
        for partition, future in self._admin.list_offsets(asked, request_timeout=15).items() if asked else ():
            try:
                future.result()
            except KafkaException as error:
                left[str(partition.topic)] = str(error)
        return left

    def partitions(self) -> dict[str, int]:
        """Return the partition count of every topic of the cluster."""
        return {name: len(topic.partitions) for name, topic in self._listed().items() if topic.partitions}

    def _listed(self, **which: str) -> dict[str, Any]:
        try:
            return dict(self._admin.list_topics(timeout=15, **which).topics)
        except KafkaException as error:
            raise TransientSourceError(
                f"no Kafka broker answers at {self._kafka.bootstrap}: {error}"
            ) from error

    def _create(self, names: list[str], settings: dict[str, str]) -> set[str]:
        replication = self._kafka.replication
        config = {**settings, "min.insync.replicas": "2"} if replication >= 2 else dict(settings)
        new = [
            NewTopic(name, num_partitions=1, replication_factor=replication, config=config) for name in names
        ]
        created = set()
        for name, future in self._admin.create_topics(new, operation_timeout=20, request_timeout=30).items():
            if self._outcome(name, future):
                created.add(name)
        return created

    def _outcome(self, name: str, future: Any) -> bool:
        try:
            future.result()
        except KafkaException as error:
            kafka_error: KafkaError = error.args[0]
            if kafka_error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if kafka_error.retriable() or kafka_error.code() in (
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
            ):
                raise TransientSourceError(
                    f"topic {name} cannot be created just now: {kafka_error.str()}"
                ) from error
            raise KafkaRefusedError(
                f"Kafka refuses to create topic {name} with {self._kafka.replication} replicas: {kafka_error.str()}: "
                "set kafka.replication to what the cluster can do, or allow the user to create topics"
            ) from error
        return True


def refuse_partitions(found: dict[str, int]) -> None:
    """Raise KafkaRefusedError if a topic has another number of partitions than one."""
    wrong = {name: count for name, count in found.items() if count != 1}
    if wrong:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(wrong.items()))
        raise KafkaRefusedError(
            f"topics with another number of partitions than one: {listed}: events would lose their order; "
            "delete them, or choose another kafka.prefix"
        )
