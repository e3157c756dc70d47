"""The thread that follows the control topic: folds what is committed, and asks the topic regularly whether it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.control import fold as folds
from coordinator.control.codec import NewerVersionError, UndecodableError, decode
from coordinator.control.election import Observed, Reachable, Unreachable
from coordinator.control.fold import Fold
from coordinator.control.topic import LOG, ControlTopic, consumer_settings, topic_name
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_consumer

log = structlog.get_logger("control")

_PROBE_TIMEOUT = 1.0

Seen = Observed | Reachable | Unreachable


class ControlReader:
    """`fold` is changed under `lock` only. `complete`: the topic was read to its end once; `ensured`: it exists. `report` is called with `lock` held, so that it sees the fold it is about."""

    def __init__(
        self, kafka: KafkaConfig, probe: float, lock: threading.RLock, report: Callable[[Seen], None]
    ) -> None:
        self.fold = Fold()
        self.complete = False
        self.ensured = False
        self._kafka, self._probe, self._lock, self._report = kafka, probe, lock, report
        self._next_probe = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._stop.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self.ensured:
                    ControlTopic(self._kafka).ensure()
                    self.ensured = True
                self._follow()
            except Exception as error:
                quiet = isinstance(error, KafkaException)
                log.warning("control topic not readable", error=str(error), exc_info=not quiet)
                self._say(Unreachable())
                self._stop.wait(1.0)

    def _follow(self) -> None:
        consumer = open_consumer(consumer_settings(self._kafka), log=LOG)
        try:
            where = TopicPartition(topic_name(self._kafka), 0, self.fold.end)
            consumer.assign([where])
            while not self._stop.is_set():
                first = consumer.poll(0.1)  # consume() would wait for its whole time or number
                if first is not None:
                    self._take([first, *consumer.consume(1000, 0)])
                if self.complete and time.monotonic() >= self._next_probe:
                    self._ask(consumer, where)
        finally:
            consumer.close()

    def _ask(self, consumer: Consumer, where: TopicPartition) -> None:
        began = time.monotonic()
        try:
            consumer.get_watermark_offsets(where, timeout=_PROBE_TIMEOUT, cached=False)
        except KafkaException:
            self._say(Unreachable())
        else:
            if time.monotonic() - began > _PROBE_TIMEOUT / 2:
                self._say(Unreachable())  # it was away, and is back
            self._say(Reachable())
        self._next_probe = time.monotonic() + self._probe

    def _take(self, messages: list[Any]) -> None:
        with self._lock:
            fresh = self.complete
            counted = [self._one(message) for message in messages if not self._trouble(message)]
            if counted:
                fold = self.fold
                vacant = fold.rev == 0 or fold.resigned
                self._report(Observed(fold.rev, vacant, not fold.unreadable, any(counted), fresh))

    def _trouble(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self.complete = True
        else:
            log.info("control topic", error=error.str())
            self._report(Unreachable())
        return True

    def _one(self, message: Any) -> bool:
        value = message.value()
        try:
            return folds.apply(self.fold, message.offset(), decode(value), len(value or b""))
        except (UndecodableError, NewerVersionError) as error:
            folds.foreign(self.fold, message.offset(), newer=isinstance(error, NewerVersionError))
            log.error(
                "control topic has a record that cannot be read", offset=message.offset(), why=str(error)
            )
            return False

    def _say(self, what: Seen) -> None:
        with self._lock:
            self._report(what)
