"""A read-only view of the control topic: which coordinator leads, and its REST address (`rowlock run`
may use any port).
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coordinator.control.codec import Candidate, NewerVersionError, UndecodableError, decode_message
from coordinator.control.fold import ControlFold
from coordinator.control.topic import LOG, build_control_reader_settings, build_control_topic_name
from rowlock.errors import KafkaUnreachableError
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import ignore_client_error, open_consumer
from schemas.io.kafka_probe import find_kafka_problem
from schemas.patience import AdaptiveTimeout, scale_timeout

CONTROL_READ_TIMEOUT_S = 6.0
"""Seconds for which `status` reads the topic."""
WATCH_S = 3.0
"""Seconds in which a leader writes to the topic at least once: candidates wait no longer for it."""
WATCH_POLL_S = 0.2
FIND_S = 2.0
"""Seconds for which a command searches the topic for a leader that is not at the configured addresses."""


def find_leader(fold: ControlFold) -> Candidate | None:
    """Return the leader according to the topic; None: there is none, or none with a REST address."""
    candidate = fold.candidate
    return candidate if candidate is not None and candidate.rest and not fold.resigned else None


def find_leader_address(kafka: KafkaConfig, read_s: float = FIND_S) -> str | None:
    """Return the REST address of the last leader of `kafka.prefix`; None: there is none, or the topic cannot
    be read. Raises KafkaUnreachableError if no broker answers.
    """
    view = ControlView(kafka, read_s)
    try:
        leader = find_leader(view.read_topic())
    except KafkaException:
        return None
    finally:
        view.close()
    return leader.rest if leader is not None else None


def find_living_leader(kafka: KafkaConfig, watch_s: float = WATCH_S) -> Candidate | None:
    """Return the leader that writes to the control topic of `kafka.prefix` now; None: none does, or Kafka
    does not answer.

    A leader that has not resigned may be dead: the topic is read for up to `watch_s` seconds until it writes.
    """
    view = ControlView(kafka)
    try:
        fold = view.read_topic()
        read, patience = fold.end, AdaptiveTimeout(watch_s)
        while (leader := find_leader(fold)) is not None and fold.end == read:
            if patience.is_over():
                return None
            time.sleep(WATCH_POLL_S)
            fold = view.read_topic()
    except (KafkaException, KafkaUnreachableError):
        return None
    finally:
        view.close()
    return leader


class ControlView:
    """Folds the control topic up to its end. Read-only; for one thread."""

    def __init__(self, kafka: KafkaConfig, read_s: float = CONTROL_READ_TIMEOUT_S) -> None:
        self._kafka, self._read_s = kafka, read_s
        self._fold = ControlFold()
        self._consumer: Any = None
        self.is_missing = False
        """Whether Kafka had no control topic at the last reading."""

    def read_topic(self) -> ControlFold:
        """Return the topic's state: nothing if there is no topic. Raises KafkaUnreachableError if no
        broker answers, KafkaException if the end of the topic is not reached in time.
        """
        if self._consumer is None:
            if problem := find_kafka_problem(self._kafka.bootstrap, self._kafka.options):
                raise KafkaUnreachableError.from_reason(self._kafka.bootstrap, problem)
            settings = {**build_control_reader_settings(self._kafka), "allow.auto.create.topics": False}
            self._consumer = open_consumer(settings, log=LOG, on_error=ignore_client_error)
        name, timeout = build_control_topic_name(self._kafka), scale_timeout(self._read_s)
        self.is_missing = name not in self._consumer.list_topics(timeout=timeout).topics
        if self.is_missing:
            self._fold = ControlFold()
            return self._fold
        _, end = self._consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=timeout, cached=False)
        if end < self._fold.end:  # the topic was created again, or has lost its last records
            self._fold = ControlFold()
        self._consumer.assign([TopicPartition(name, 0, self._fold.end)])
        patience = AdaptiveTimeout(self._read_s)
        while not patience.is_over():
            for message in self._consumer.consume(1000, 0.2):
                if self._is_at_end(message):
                    return self._fold
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _is_at_end(self, message: Any) -> bool:
        error = message.error()
        if error is not None:
            return bool(error.code() == KafkaError._PARTITION_EOF)
        value = message.value()
        try:
            self._fold.fold_message(message.offset(), decode_message(value), len(value or b""))
        except (UndecodableError, NewerVersionError) as unread:
            self._fold.record_foreign_message(message.offset(), newer=isinstance(unread, NewerVersionError))
        return False

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
