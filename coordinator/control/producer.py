"""The transactional producer of one claim: used for at most one term, and discarded at the first error.

After a commit with an unknown outcome the same producer must not begin another transaction: Kafka could
end that one with the late answer to the first. In a delivery callback after a fatal error, even reading
the error raises, so only the result of the commit counts.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from coordinator.control.topic import LOG, build_control_topic_name, build_term_producer_settings
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_producer

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})


class WriteFailedError(Exception):
    """The transaction failed, or its outcome is not known. `fenced`: a later claim has begun."""

    def __init__(self, what: str, error: KafkaException | SystemError) -> None:
        seen = error.args[0]
        known = isinstance(seen, KafkaError)
        self.fenced = known and seen.name() in _FENCED
        why = "another coordinator has begun a claim" if self.fenced else f"outcome unknown: {seen}"
        super().__init__(f"{what}: {why}")


class TermProducer:
    """A transactional producer. Its creation fences every earlier one.

    Raises WriteFailedError. `timeout`: seconds for each step.
    """

    def __init__(self, kafka: KafkaConfig, timeout: float) -> None:
        self._topic = build_control_topic_name(kafka)
        self._timeout = timeout
        self._offsets: list[int] = []
        self._producer = open_producer(build_term_producer_settings(kafka), log=LOG)
        try:
            self._producer.init_transactions(timeout)
        except KafkaException as error:
            self.discard()
            raise WriteFailedError("claim not begun", error) from error

    def commit_payloads(self, payloads: Iterable[bytes], what: str, timeout: float | None = None) -> int:
        """Write all payloads in one transaction, and return the offset of the first. Raises
        WriteFailedError.
        """
        self._offsets.clear()
        try:
            self._producer.begin_transaction()
            for payload in payloads:
                self._produce_payload(payload)
            self._producer.commit_transaction(self._timeout if timeout is None else timeout)
        except (KafkaException, SystemError) as error:
            raise WriteFailedError(what, error) from error
        return self._offsets[0]

    def _produce_payload(self, payload: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, payload, partition=0, on_delivery=self._on_delivered)
            except BufferError:
                self._producer.poll(0.1)  # a snapshot larger than librdkafka's queue
            else:
                return

    def _on_delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._offsets.append(message.offset())

    def discard(self) -> None:
        """Discard the producer. Uncommitted records are never committed."""
        for step in (self._producer.purge, self._producer.close):
            # a fenced producer reports that once more, and warns that it could not abort a transaction
            # that has ended
            with contextlib.suppress(KafkaException, SystemError), warnings.catch_warnings(action="ignore"):
                step()
