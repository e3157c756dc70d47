"""The thread that follows the control topic: folds what is committed, and checks regularly that the
topic is available, and after each outage that it is still the same topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.control.codec import NewerVersionError, UndecodableError, decode_message
from coordinator.control.election import Observed, Reachable, TopicLost, Unreachable
from coordinator.control.fold import ControlFold
from coordinator.control.topic import (
    LOG,
    ControlTopic,
    build_control_reader_settings,
    build_control_topic_name,
    build_lost_topic_problem,
)
from coordinator.control.topic_identity import ControlTopicIdentity
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_consumer

log = structlog.get_logger("control")

_PROBE_TIMEOUT = 1.0

TopicObservation = Observed | Reachable | Unreachable | TopicLost


class ControlReader:
    """Follows the control topic in a thread.

    `fold` is changed only under `lock`, and `report` is called with `lock` held, so that it sees the
    fold that it is about.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        probe: float,
        lock: threading.RLock,
        report: Callable[[TopicObservation], None],
    ) -> None:
        self.fold = ControlFold()
        self.complete = False
        """Whether the topic has been read to its end once."""
        self._kafka, self._probe, self._lock, self._report = kafka, probe, lock, report
        self._is_ensured = False
        """Whether the topic exists."""
        self._topic: ControlTopic | None = None
        self._identity = ControlTopicIdentity()
        self._is_identified = False
        """Whether the topic was found to be the same one since it was last unavailable."""
        self._next_probe = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="control-reader", daemon=True)

    def start(self) -> None:
        """Follow the topic. Raises ControlTopicError. If Kafka does not answer, the thread awaits it."""
        try:
            self._ensure_topic()
        except KafkaException as error:
            log.warning("control topic not ready yet", bootstrap=self._kafka.bootstrap, error=str(error))
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._stop.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout)

    def _run_thread(self) -> None:
        while not self._stop.is_set():
            try:
                self._ensure_topic()
                self._follow_topic()
            except Exception as error:
                quiet = isinstance(error, KafkaException)
                log.warning("control topic not readable", error=str(error), exc_info=not quiet)
                self._report_observation(Unreachable())
                self._stop.wait(1.0)

    def _ensure_topic(self) -> None:
        if not self._is_ensured:
            self._open_topic().ensure_topic()
            self._is_ensured = True

    def _open_topic(self) -> ControlTopic:
        if self._topic is None:
            self._topic = ControlTopic(self._kafka)
        return self._topic

    def _follow_topic(self) -> None:
        consumer = open_consumer(build_control_reader_settings(self._kafka), log=LOG)
        try:
            where = TopicPartition(build_control_topic_name(self._kafka), 0, self.fold.end)
            consumer.assign([where])
            while not self._stop.is_set():
                first = consumer.poll(0.1)  # consume() would wait for its whole time or number
                if first is not None:
                    self._take_messages([first, *consumer.consume(1000, 0)])
                if self.complete and time.monotonic() >= self._next_probe:
                    self._probe_topic(consumer, where)
        finally:
            consumer.close()

    def _probe_topic(self, consumer: Consumer, where: TopicPartition) -> None:
        began, answers = time.monotonic(), True
        try:
            _, end = consumer.get_watermark_offsets(where, timeout=_PROBE_TIMEOUT, cached=False)
        except KafkaException:
            answers, end = False, 0
        slow = time.monotonic() - began > _PROBE_TIMEOUT / 2  # it was away, and is back
        if not answers or slow or end < self.fold.end:
            self._report_observation(Unreachable())
            self._is_identified = False
        is_first = not self._identity.id  # then there is no earlier topic from which this one may differ
        if answers and is_first:
            self._report_observation(Reachable())
        self._is_identified = self._is_identified or self._identify_topic()
        if answers and self._is_identified and not is_first:
            self._report_observation(Reachable())
        self._next_probe = time.monotonic() + self._probe

    def _identify_topic(self) -> bool:
        """Return whether Kafka describes the topic that was read. If that is lost, report it, and end."""
        try:
            found = self._open_topic().read_id(_PROBE_TIMEOUT)
        except KafkaException:
            return False
        now = time.monotonic()
        self._identity = self._identity.record_answer(found, now)
        what = self._identity.explain_loss(now)
        if what is not None:
            self._stop.set()
            self._report_observation(TopicLost(build_lost_topic_problem(self._kafka, what)))
        return found is not None and what is None

    def _take_messages(self, messages: list[Any]) -> None:
        with self._lock:
            if messages[0].error() is None and messages[0].offset() < self.fold.end:
                self._is_identified = False  # the topic began anew, or has lost its last records
            fresh = self.complete
            counted = [self._fold_one(message) for message in messages if not self._is_trouble(message)]
            if counted:
                fold = self.fold
                vacant = fold.rev == 0 or fold.resigned
                self._report(Observed(fold.rev, vacant, not fold.unreadable, any(counted), fresh))

    def _is_trouble(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self.complete = True
        else:
            log.info("error of the control topic", error=error.str())
            self._report(Unreachable())
        return True

    def _fold_one(self, message: Any) -> bool:
        value = message.value()
        try:
            return self.fold.fold_message(message.offset(), decode_message(value), len(value or b""))
        except (UndecodableError, NewerVersionError) as error:
            self.fold.record_foreign_message(message.offset(), newer=isinstance(error, NewerVersionError))
            log.error("record of the control topic not readable", offset=message.offset(), reason=str(error))
            return False

    def _report_observation(self, what: TopicObservation) -> None:
        with self._lock:
            self._report(what)
