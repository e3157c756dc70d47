"""Creates and checks topics.

One partition is what keeps events in order, so topics with several are refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.cimpl import NewTopic

from producer.errors import KafkaRefusedError, TransientSourceError
from producer.kafka.settings import RETENTION_MS, TOPIC_MESSAGE_BYTES, build_capture_admin_settings
from schemas.config.model import KafkaConfig
from schemas.findings import START_OVER
from schemas.io.kafka_clients import open_admin
from schemas.problems import Problem
from schemas.topic_rules import explain_compaction_refusal, own_policy_refusal
from schemas.wire.records import format_source_topic


class TopicOpenings(NamedTuple):
    """The result of opening tables' topics. A topic in none of the three existed and can be used."""

    created: set[str]
    refused: dict[str, Problem]
    """Topic → why it must not be written."""
    taken: set[str]
    """Topics that Kafka refuses because it considers their names equal to those of other topics."""


_log = structlog.get_logger("capture")
_RESOURCE: Any = cast(Any, kafka_admin).ConfigResource
_TOPIC: Any = cast(Any, kafka_admin).ResourceType.TOPIC
_LATEST: Any = cast(Any, kafka_admin).OffsetSpec.latest()
_LEADERS_WITHIN, _LOOK_AGAIN = 60.0, 0.05
_DAY_MS = 24 * 3600 * 1000
_AT_ONCE = 500
"""Topics that are created, or with settings that are read, in one request. Kafka refuses a request that
makes more than 10,000 records, and each topic makes one, one for its partition, and one for each setting.
"""
_NOT_FOR_US = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # deleted since it was listed
)

EVENTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "max.message.bytes": str(TOPIC_MESSAGE_BYTES),
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


class SourceTopics:
    """The topics of one source. All methods raise TransientSourceError if no broker answers."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._admin = open_admin(build_capture_admin_settings(kafka))
        self._known: set[str] = set()

    def ensure_topics(self, names: Iterable[str], settings: dict[str, str]) -> set[str]:
        """Create those of rowlock's own topics that are missing. Return the names that were created.

        Raises KafkaRefusedError if one has several partitions or another clean-up policy, or cannot be
        created.
        """
        requested = sorted(set(names) - self._known)
        if not requested:
            return set()
        existing = self.count_partitions()
        there = [name for name in requested if name in existing]
        refuse_own({name: existing[name] for name in there}, self.read_cleanup_policies(there), settings)
        missing = [name for name in requested if name not in existing]
        created = set()
        for name, error in self._create_topics(missing, settings).items():
            if error is None:
                created.add(name)
            elif not _is_existing(error):
                raise KafkaRefusedError.from_problem(self._explain_creation_failure(name, error))
        self._known.update(requested)
        return created

    def open_topics(self, names: Iterable[str]) -> TopicOpenings:
        """Create the topics of tables that are missing, and check those that exist."""
        requested, existing = sorted(set(names)), self.count_partitions()
        there = [name for name in requested if name in existing]
        made = self._create_topics([name for name in requested if name not in existing], EVENTS)
        created = {name for name, error in made.items() if error is None}
        refused = find_unfit_topics(
            {name: existing[name] for name in there}, self.read_cleanup_policies(there)
        )
        taken = set()
        for name, error in made.items():
            if error is not None and error.code() == KafkaError.TOPIC_EXCEPTION:
                taken.add(name)
            if error is not None and not _is_existing(error):
                refused[name] = self._explain_creation_failure(name, error)
        return TopicOpenings(created, refused, taken)

    def read_cleanup_policies(self, names: Iterable[str]) -> dict[str, str]:
        """Return the clean-up policy of each topic, without topics with settings that the user may not
        read.
        """
        return self._read_setting(names, "cleanup.policy")

    def read_message_limits(self, names: Iterable[str]) -> dict[str, int]:
        """Return the `max.message.bytes` of each topic, without topics with settings that the user may not
        read.
        """
        return {name: int(value) for name, value in self._read_setting(names, "max.message.bytes").items()}

    def read_source_limits(self, source: str, names: Iterable[str] | None) -> dict[str, int]:
        """Return the limits of `names`, or of all topics of a source's tables; see `read_message_limits`."""
        if names is None:
            head = format_source_topic(self._kafka.prefix, source) + "."
            names = [name for name in self.count_partitions() if name.startswith(head)]
        return self.read_message_limits(names)

    def _read_setting(self, names: Iterable[str], setting: str) -> dict[str, str]:
        requested, found, hidden = sorted(names), dict[str, str](), list[str]()
        for first in range(0, len(requested), _AT_ONCE):
            asked = [_RESOURCE(_TOPIC, name) for name in requested[first : first + _AT_ONCE]]
            for resource, future in self._admin.describe_configs(asked, request_timeout=30).items():
                try:
                    found[resource.name] = str(future.result()[setting].value)
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_FOR_US:
                        raise TransientSourceError(
                            "Kafka does not show the settings of topic "
                            f"{resource.name}: {error.args[0].str()}"
                        ) from error
                    hidden.append(resource.name)
        if hidden:
            _log.warning(
                "topic settings not readable",
                setting=setting,
                topics=hidden[:5],
                count=len(hidden),
                remedy=MAY_DESCRIBE,
            )
        return found

    def _await_leaders(self, names: list[str]) -> None:
        """Return when the leader of each new topic answers for it.

        A topic is created before its leader knows it. Until then messages are refused
        (UNKNOWN_TOPIC_OR_PART) permanently, which would end the run of all tables of the source.
        """
        left, deadline = dict.fromkeys(names, ""), time.monotonic() + _LEADERS_WITHIN
        pause = threading.Event()
        while left := self._find_leaderless_topics(left):
            if time.monotonic() > deadline:
                raise TransientSourceError(
                    f"the new topics {', '.join(sorted(left)[:3])} have no leader that "
                    f"answers: {min(left.values())}"
                )
            pause.wait(_LOOK_AGAIN)
            for name in left:  # the client caches that a topic is unknown, and would not look for its leader
                self._list_topics(topic=name)

    def _find_leaderless_topics(self, names: Iterable[str]) -> dict[str, str]:
        """Return the topics with leaders that do not answer for them, and the error of each."""
        asked = {TopicPartition(name, 0): _LATEST for name in sorted(names)}
        left = {}
        for partition, future in self._admin.list_offsets(asked, request_timeout=15).items() if asked else ():
            try:
                future.result()
            except KafkaException as error:
                left[str(partition.topic)] = str(error)
        return left

    def count_partitions(self) -> dict[str, int]:
        """Return the partition count of every topic of the cluster."""
        return {
            name: len(topic.partitions) for name, topic in self._list_topics().items() if topic.partitions
        }

    def fetch_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic that exists and that the user may see. A topic that is deleted and
        created again has another one.
        """
        requested, found = sorted(names), dict[str, str]()
        for first in range(0, len(requested), _AT_ONCE):
            asked = TopicCollection(requested[first : first + _AT_ONCE])
            for name, future in self._admin.describe_topics(asked, request_timeout=30).items():
                try:
                    found[name] = str(future.result().topic_id)
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_FOR_US:
                        raise TransientSourceError(
                            f"Kafka does not describe topic {name}: {error.args[0].str()}"
                        ) from error
        return found

    def _list_topics(self, **which: str) -> dict[str, Any]:
        try:
            return dict(self._admin.list_topics(timeout=15, **which).topics)
        except KafkaException as error:
            raise TransientSourceError(
                f"no Kafka broker answers at {self._kafka.bootstrap}: {error}"
            ) from error

    def _create_topics(self, names: list[str], settings: dict[str, str]) -> dict[str, KafkaError | None]:
        """Return topic → why Kafka does not create it; None: it did, and its leader answers."""
        made: dict[str, KafkaError | None] = {}
        for first in range(0, len(names), _AT_ONCE):
            part = self._request_topics(names[first : first + _AT_ONCE], settings)
            there = [name for name, error in part.items() if error is None or _is_existing(error)]
            self._await_leaders(there)
            made |= part
        return made

    def _request_topics(self, names: list[str], settings: dict[str, str]) -> dict[str, KafkaError | None]:
        replication = self._kafka.replication
        config = {**settings, "min.insync.replicas": "2"} if replication >= 2 else dict(settings)
        new = [
            NewTopic(name, num_partitions=1, replication_factor=replication, config=config) for name in names
        ]
        futures = self._admin.create_topics(new, operation_timeout=20, request_timeout=30)
        return {name: self._await_creation(name, future) for name, future in futures.items()}

    def _await_creation(self, name: str, future: Any) -> KafkaError | None:
        try:
            future.result()
        except KafkaException as error:
            kafka_error: KafkaError = error.args[0]
            if kafka_error.retriable() or kafka_error.code() in (
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
            ):
                raise TransientSourceError(
                    f"topic {name} cannot be created at the moment: {kafka_error.str()}"
                ) from error
            return kafka_error
        return None

    def _explain_creation_failure(self, name: str, error: KafkaError) -> Problem:
        """Return the reason that Kafka gives for not creating a topic, and the remedy."""
        if error.code() == KafkaError.TOPIC_EXCEPTION:
            return Problem(
                f"Kafka refuses to create topic {name}: {error.str()}",
                "delete the other topic if it is not needed, or choose another kafka.prefix",
            )
        return Problem(
            f"Kafka refuses to create topic {name} with {self._kafka.replication} replicas: {error.str()}",
            "set kafka.replication to what the cluster can do, or allow the user to create topics",
        )


def _is_existing(error: KafkaError) -> bool:
    """Return whether a topic is not created because another process has created it."""
    return error.code() == KafkaError.TOPIC_ALREADY_EXISTS


MAY_DESCRIBE = (
    "allow the user DescribeConfigs on the topics, or check them yourself: a table's "
    "topic needs cleanup.policy=delete"
)


def find_unfit_topics(partitions: Mapping[str, int], policies: Mapping[str, str]) -> dict[str, Problem]:
    """Return topic → why it is not suitable for a table's events."""
    found = {}
    for name, count in partitions.items():
        if count != 1:
            found[name] = explain_partition_count(name, count)
        elif (why := explain_compaction_refusal(name, policies.get(name, ""))) is not None:
            found[name] = why
    return found


def explain_partition_count(topic: str, count: int) -> Problem:
    """Return why a topic with several partitions cannot be used for a table."""
    return Problem(
        f"topic {topic} has {count} partitions, and only one keeps events in order",
        "delete it if it is empty (capture makes it again at its next start); if it has events, "
        f"{START_OVER}",
    )


def refuse_own(
    partitions: Mapping[str, int], policies: Mapping[str, str], settings: Mapping[str, str]
) -> None:
    """Raise KafkaRefusedError if one of rowlock's own topics has several partitions, or a clean-up
    policy that differs from `settings`.
    """
    wrong = {name: count for name, count in partitions.items() if count != 1}
    if wrong:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(wrong.items()))
        raise KafkaRefusedError(
            f"topics with another number of partitions than one: {listed}: records would lose their order",
            "delete them, or choose another kafka.prefix",
        )
    for name, policy in sorted(policies.items()):
        if (why := own_policy_refusal(name, policy, settings["cleanup.policy"])) is not None:
            raise KafkaRefusedError.from_problem(why)
