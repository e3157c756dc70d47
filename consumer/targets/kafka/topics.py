"""The topics of a Kafka target in the cluster: their creation, partitions, limits and end offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from consumer.errors import TransientError
from consumer.targets.kafka.clients import ADMIN_CALL_TIMEOUT_S
from consumer.targets.kafka.errors import get_kafka_error, translate_kafka_error
from schemas.io.kafka_clients import OnError

NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
DELETED_AFTER_S = 2.0
"""Seconds after which a topic that existed and is no longer listed counts as deleted."""
SHOWN_EVERY_S = 0.1
"""Seconds between looks for a topic that was just created."""


NO_ID = "A" * 22
"""The topic id that is reported by a broker that does not assign ids."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The identity of a topic, which distinguishes it from another one of the same name.

    `id`: Kafka's own; "" if the broker does not assign ids.
    """

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The properties of a topic. `limit`: bytes of the largest batch of records that it accepts.

    `compacted`: it accepts no record without a key. `id`: see TopicIdentity.
    """

    name: str
    partitions: int
    limit: int
    compacted: bool
    id: str = ""


class _LastError:
    """Keeps the error that explains why a broker cannot be reached, until the broker answers.

    It does not know the client, so that a client that is dropped closes its connections at once, not when the
    cycle collector runs.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def record_error(self, error: KafkaError) -> None:
        """Keep the most specific error: that all brokers are down follows from the others."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.error = error

    def forget_error(self) -> None:
        """Record that the cluster has answered a call."""
        self.error = None


class _AdminConnection:
    """An admin client with the last error that it reported."""

    def __init__(self, open_: Callable[[OnError], AdminClient]) -> None:
        self._last = _LastError()
        self.client = open_(self._last.record_error)

    def record_answer(self) -> None:
        """Record that the cluster has answered a call."""
        self.client.poll(0)
        self._last.forget_error()

    def raise_cause(self, error: KafkaException) -> None:
        """Raise why a call got no answer. Returns if it got one, or if `error` is all that is known."""
        self.client.poll(0)  # serves the error callback
        last, seen = self._last.error, get_kafka_error(error)
        if last is not None and seen is not None and seen.code() in NO_ANSWER:
            raise KafkaException(last) from error


class _AdminCall:
    """A call to the cluster. If the answer is an error, it calls `drop`: the client is not used again.

    This is no generator: since Python 3.12 the frames of a generator that raises another error form a cycle,
    and the client would only be closed when the cycle collector runs.
    """

    def __init__(self, connection: _AdminConnection, drop: Callable[[], None]) -> None:
        self._connection, self._drop = connection, drop

    def __enter__(self) -> AdminClient:
        return self._connection.client

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self._connection.record_answer()
        elif isinstance(error, KafkaException):
            self._drop()
            self._connection.raise_cause(error)


class TargetTopics:
    """The topics of a cluster.

    All methods raise consumer.errors: TransientError (no answer), TargetConfigError (not allowed).

    `open_`: makes a client that reports to the given callback why a broker cannot be reached. A client
    that answered with an error is not used again: after a change of leaders it would return their old
    epoch for ever.
    """

    def __init__(self, open_: Callable[[OnError], AdminClient], replication: int) -> None:
        self._open, self._replication = open_, replication
        self._connection: _AdminConnection | None = None

    def _open_admin_call(self) -> _AdminCall:
        if self._connection is None:
            self._connection = _AdminConnection(self._open)
        return _AdminCall(self._connection, self._drop_connection)

    def _drop_connection(self) -> None:
        self._connection = None

    def ping(self) -> None:
        """Raise a translated error unless the cluster answers."""
        try:
            with self._open_admin_call() as admin:
                admin.list_topics(timeout=ADMIN_CALL_TIMEOUT_S)
        except KafkaException as error:
            raise translate_kafka_error(error, "the Kafka cluster of the target does not answer") from error

    def find_topic_identity(self, name: str, patience_s: float = 0.0) -> TopicIdentity | None:
        """Return the identity of the topic of this name; None if it does not exist within `patience_s`
        seconds.

        A broker may not know a new topic yet.
        """
        until = time.monotonic() + patience_s
        while (found := self._find_topic_identity(name)) is None and time.monotonic() < until:
            time.sleep(SHOWN_EVERY_S)
        return found

    def _find_topic_identity(self, name: str) -> TopicIdentity | None:
        try:
            with self._open_admin_call() as admin:
                found = admin.describe_topics(TopicCollection([name]), request_timeout=ADMIN_CALL_TIMEOUT_S)[
                    name
                ].result()
        except KafkaException as error:
            kafka_error = get_kafka_error(error)
            if kafka_error is not None and kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise translate_kafka_error(error, f"topic {name} of the target cannot be read") from error
        id_ = str(found.topic_id)
        return TopicIdentity("" if id_ == NO_ID else id_, len(found.partitions))

    def read_topic_facts(self, name: str) -> TopicFacts | None:
        """Return the properties of a topic; None: it does not exist."""
        try:
            with self._open_admin_call() as admin:
                found = admin.list_topics(timeout=ADMIN_CALL_TIMEOUT_S).topics.get(
                    name
                )  # a request for one topic may make the broker create it
                if found is None or not found.partitions:
                    return None
                resource = ConfigResource(ResourceType.TOPIC, name)
                described = admin.describe_configs([resource], request_timeout=ADMIN_CALL_TIMEOUT_S)[resource]
                settings = described.result()
        except KafkaException as error:
            seen = get_kafka_error(error)
            if seen is not None and seen.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise translate_kafka_error(error, f"topic {name} of the target cannot be read") from error
        now = self.find_topic_identity(name)
        if now is None:
            return None
        return TopicFacts(
            name,
            now.partitions,
            int(settings["max.message.bytes"].value),
            "compact" in settings["cleanup.policy"].value,
            now.id,
        )

    def ensure_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> TopicFacts:
        """Create a topic, unless it was just created by another process, and wait until a broker lists it."""
        requested = NewTopic(name, partitions, self._replication, config=dict(settings))
        try:
            with self._open_admin_call() as admin:
                made = admin.create_topics(
                    [requested], operation_timeout=ADMIN_CALL_TIMEOUT_S, request_timeout=ADMIN_CALL_TIMEOUT_S
                )
                made[name].result()
        except KafkaException as error:
            seen = get_kafka_error(error)
            if seen is None or seen.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate_kafka_error(error, f"topic {name} of the target cannot be created") from error
        until = time.monotonic() + ADMIN_CALL_TIMEOUT_S
        while (found := self.read_topic_facts(name)) is None:
            if time.monotonic() > until:
                raise TransientError(f"topic {name} of the target was created, but no broker shows it yet")
            time.sleep(SHOWN_EVERY_S)
        return found

    def read_end_offsets(
        self, name: str, partitions: Sequence[int], *, stable: bool = False
    ) -> dict[int, int]:
        """Return partition → the offset after its last record, committed or not.

        `stable`: the offset below which no transaction is open.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(name, each): latest for each in partitions}
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        try:
            with self._open_admin_call() as admin:
                found = admin.list_offsets(asked, request_timeout=ADMIN_CALL_TIMEOUT_S, isolation_level=level)
                return {place.partition: future.result().offset for place, future in found.items()}
        except KafkaException as error:
            raise translate_kafka_error(error, f"the end of topic {name} cannot be read") from error
