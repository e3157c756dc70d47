"""The control topic and the settings of its clients. All settings that the guarantees depend on are made
here.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import ClientLog, build_client_settings, open_admin, reads_by_offset
from schemas.problems import Problem, ProblemError

#: Kafka deletes nothing by itself; only a leader deletes what is before its snapshot. LogAppendTime,
#: because the clocks of candidates differ.
TOPIC_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
}
#: An open transaction of a dead leader hides the topic's end for at most so long; a claim ends it at
#: once.
TRANSACTION_MS = 15_000
_KEPT = ("cleanup.policy", "retention.ms", "retention.bytes")
_PATIENCE = 5.0
#: For the lines of librdkafka itself: being fenced is normal here, and rowlock logs it.
LOG = ClientLog.QUIET

log = structlog.get_logger("control")


class ControlTopicError(ProblemError):
    """The control topic cannot be used."""


def build_control_topic_name(kafka: KafkaConfig) -> str:
    return f"{kafka.prefix}.control"


def build_control_admin_settings(kafka: KafkaConfig) -> dict[str, Any]:
    return build_client_settings(kafka.bootstrap, kafka.options, {"reconnect.backoff.max.ms": 500})


def build_term_producer_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """Return the settings of the transactional producer. All candidates have the same id, so the last to
    begin fences the others.
    """
    return {
        **build_control_admin_settings(kafka),
        "transactional.id": f"{kafka.prefix}.coordinator",
        "enable.idempotence": True,
        "acks": "all",
        "transaction.timeout.ms": TRANSACTION_MS,
        "message.timeout.ms": TRANSACTION_MS - 1000,
        "socket.timeout.ms": TRANSACTION_MS - 1000,
        "linger.ms": 0,
        "compression.type": "lz4",
        "client.id": "rowlock-coordinator",
    }


def build_control_reader_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """Return the settings of a reader of committed messages that begins at a given offset and never
    commits one.
    """
    return {
        **build_control_admin_settings(kafka),
        **reads_by_offset(f"{kafka.prefix}.coordinator-reads-by-offset"),
        "isolation.level": "read_committed",
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        "client.id": "rowlock-coordinator",
    }


def build_lost_topic_problem(kafka: KafkaConfig, what: str) -> Problem:
    """Return the problem of a coordinator whose control topic is lost. `what`: what has happened to it."""
    return Problem(
        f"Kafka at {kafka.bootstrap} has lost its data, or another Kafka has that address: the control topic "
        f"{build_control_topic_name(kafka)} {what} while this coordinator ran",
        "give Kafka its data back, or correct kafka.bootstrap; if it is to begin without them, just start "
        "`rowlock run` (or coordinators and agents) again: all tables are copied again, by themselves within "
        "the limits of `repair`, the others by `rowlock copy`",
    )


class ControlTopic:
    """Administration of the control topic."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self.name = build_control_topic_name(kafka)
        self._admin = open_admin(build_control_admin_settings(kafka), log=LOG)

    def ensure_topic(self) -> None:
        """Create the topic, or check that the existing one can be used.

        Raises ControlTopicError. Raises KafkaException if there is no answer, or the answer of a broker
        that does not know the topic yet; the caller can retry then.
        """
        known = self._admin.list_topics(timeout=_PATIENCE).topics.get(self.name)
        if known is None or not known.partitions:
            return self._create_topic()
        if len(known.partitions) != 1:
            raise ControlTopicError(
                f"topic {self.name} has {len(known.partitions)} partitions and must have one, "
                "because terms are its offsets",
                "delete it while no coordinator runs, or choose another kafka.prefix",
            )
        return self._require_full_retention()

    def _create_topic(self) -> None:
        replication = self._kafka.replication
        config = {**TOPIC_CONFIG, "min.insync.replicas": "2"} if replication >= 2 else dict(TOPIC_CONFIG)
        new = NewTopic(self.name, num_partitions=1, replication_factor=replication, config=config)
        try:
            self._admin.create_topics([new], operation_timeout=_PATIENCE, request_timeout=30)[
                self.name
            ].result()
        except KafkaException as error:
            _pass_on_if_passing(error)
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                why = (
                    f"topic {self.name} exists and is not listed: a broker lags, or "
                    "the user lacks Describe on it"
                )
                raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, why)) from error
            raise ControlTopicError(
                f"Kafka refuses to create topic {self.name} with {replication} "
                f"replicas: {error.args[0].str()}",
                "set kafka.replication to what the cluster can do, or allow the user to create topics",
            ) from error

    def _require_full_retention(self) -> None:
        """Ensure that the topic keeps everything: one that a broker created automatically forgets the
        state after a week.
        """
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        have = self._admin.describe_configs([resource], request_timeout=_PATIENCE)[resource].result()
        wrong = [name for name in _KEPT if have[name].value != TOPIC_CONFIG[name]]
        if not wrong:
            return
        changes = [
            ConfigEntry(name, TOPIC_CONFIG[name], incremental_operation=AlterConfigOpType.SET)
            for name in wrong
        ]
        change = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=changes)
        try:
            self._admin.incremental_alter_configs([change], request_timeout=_PATIENCE)[change].result()
        except KafkaException as error:
            _pass_on_if_passing(error)
            settings = ", ".join(f"{name}={TOPIC_CONFIG[name]}" for name in wrong)
            raise ControlTopicError(
                f"topic {self.name} would forget the coordinator's state, and its settings cannot be "
                f"changed: {error.args[0].str()}",
                f"set {settings}",
            ) from error

    def read_id(self, timeout: float) -> str | None:
        """Return the topic's id, which a topic that is created again does not have; None: there is no such
        topic. Raises KafkaException if Kafka does not answer within `timeout` seconds.
        """
        asked = self._admin.describe_topics(TopicCollection([self.name]), request_timeout=timeout)
        try:
            return str(asked[self.name].result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def trim_topic(self, before: int) -> None:
        """Begin to delete what is before an offset. Returns at once, because brokers sometimes take
        seconds.

        A refusal is only logged: the topic grows, but remains correct.
        """
        where = TopicPartition(self.name, 0, before)
        done = self._admin.delete_records([where])[where]
        # the callback must not hold the client: librdkafka aborts when a client is destroyed in its own
        # thread
        done.add_done_callback(partial(_on_trimmed, self.name, before))


def _pass_on_if_passing(error: KafkaException) -> None:
    """Raise a temporary error again, so that the caller waits instead of refusing."""
    kafka_error = error.args[0]
    if kafka_error.retriable() or kafka_error.code() in {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
    }:
        raise error


def _on_trimmed(topic: str, before: int, done: Future[Any]) -> None:
    error = done.exception()
    if error is not None:
        log.warning("control topic not trimmed", topic=topic, before=before, error=str(error))
