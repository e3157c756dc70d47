"""The transactions of a candidate in the control topic: claims, the records of its term, snapshots, and
resignation.

The transactional producer of a claim is used for at most one term, and discarded at the first error. After
a commit with an unknown outcome the same producer must not begin another transaction: Kafka could end that
one with the late answer to the first. In a delivery callback after a fatal error, even reading the error
raises, so only the result of the commit counts.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException

from coordinator.control.codec import (
    Beat,
    Candidate,
    Claim,
    RecordChange,
    Resigned,
    encode_batches,
    encode_control_snapshot,
    encode_message,
)
from coordinator.control.fold import apply_changes, is_snapshot_due
from coordinator.control.topic import (
    LOG,
    ControlTopic,
    build_control_topic_name,
    build_term_producer_settings,
)
from coordinator.core.records import DurableRecord
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import open_producer

log = structlog.get_logger("control")

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


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """The settings of the writer. Times are in seconds."""

    beat: float = 0.8
    """The longest time between two writes of a term."""
    timeout: float = 10.0
    """For a claim or commit. Longer than the leader's own lease, so that a broker's restart ends no term."""
    snapshot_after: int = 5000
    """The number of offsets after which a snapshot is written."""
    snapshot_bytes: int = 16 << 20
    """The number of bytes after which a snapshot is written."""
    batch: int = 20_000
    """Records in one transaction."""


@dataclass(slots=True)
class LedTerm:
    """A term that this candidate leads, and the length of the topic."""

    rev: int
    records: dict[str, DurableRecord]
    base: int
    """The offset of the current snapshot."""
    end: int
    size: int
    begun: float
    """When the last transaction began, in monotonic seconds."""
    cost: int = 0
    """The bytes of the current snapshot."""
    pending: deque[tuple[int, tuple[RecordChange, ...]]] = field(default_factory=deque)
    """Changes that are not written yet, with their tokens."""

    def take_changes(self, most: int) -> tuple[list[int], list[RecordChange]]:
        """Take waiting tokens and changes, until there are `most` changes."""
        tokens: list[int] = []
        changes: list[RecordChange] = []
        while self.pending and len(changes) < most:
            token, some = self.pending.popleft()
            tokens.append(token)
            changes.extend(some)
        return tokens, changes

    def begin_transaction(self) -> None:
        self.begun = time.monotonic()

    def record_changes(self, offset: int, payloads: list[bytes], changes: list[RecordChange]) -> None:
        """Note that a transaction with these changes is in the topic from `offset` on."""
        self.end = offset + len(payloads) + 1
        self.size += sum(map(len, payloads))
        apply_changes(self.records, changes)

    def record_snapshot(self, offset: int, payloads: list[bytes]) -> None:
        """Note that a snapshot is in the topic from `offset` on."""
        self.base, self.end = offset, offset + len(payloads) + 1
        self.size = self.cost = sum(map(len, payloads))


class TermTransactions:
    """The transactions of a candidate, executed one after the other in one thread.

    `claim_term`, `write_changes` and `write_snapshot_if_due` raise WriteFailedError.
    """

    def __init__(self, kafka: KafkaConfig, candidate: Candidate, nonce: str, config: WriterConfig) -> None:
        self._kafka, self._candidate, self._nonce, self._config = kafka, candidate, nonce, config
        self._topic: ControlTopic | None = None
        self._producer: TermProducer | None = None
        self.claimed_at = 0.0
        """When the write of the last claim began, in monotonic seconds."""

    def claim_term(self) -> int:
        """Claim the next term, and return its number. From then on no earlier producer can write."""
        self.discard_producer()
        self._producer = TermProducer(self._kafka, self._config.timeout)
        claim = encode_message(Claim(self._candidate, self._nonce))
        self.claimed_at = time.monotonic()
        # offset 0 is no term (0 means that no leader is known): the first claim of all is written twice
        return self._producer.commit_payloads([claim], "claim") or self._producer.commit_payloads(
            [claim], "claim"
        )

    @property
    def claimed(self) -> bool:
        """True if there is a claim that was not discarded."""
        return self._producer is not None

    def write_changes(self, term: LedTerm, changes: list[RecordChange]) -> None:
        """Write changes, or a beat if there are none. Raises ValueError unless a term is `claimed`."""
        if self._producer is None:
            raise ValueError("nothing is claimed")
        term.begin_transaction()
        payloads = list(encode_batches(term.rev, changes)) or [encode_message(Beat(term.rev))]
        term.record_changes(self._producer.commit_payloads(payloads, "write"), payloads, changes)

    def write_snapshot_if_due(self, term: LedTerm) -> bool:
        """Write a snapshot if the topic has become long, and return whether one was written."""
        config = self._config
        long = is_snapshot_due(
            term.end - term.base,
            term.size,
            term.cost,
            most=config.snapshot_after,
            most_bytes=config.snapshot_bytes,
        )
        if not long or self._producer is None:
            return False
        term.begin_transaction()
        payloads = list(encode_control_snapshot(term.rev, self._candidate, self._nonce, term.records))
        term.record_snapshot(self._producer.commit_payloads(payloads, "snapshot"), payloads)
        return True

    def trim_topic(self, before: int) -> None:
        """Delete what is before a snapshot."""
        self._topic = self._topic or ControlTopic(self._kafka)
        self._topic.trim_topic(before)

    def resign_term(self, rev: int) -> None:
        if self._producer is None:
            return
        try:
            self._producer.commit_payloads([encode_message(Resigned(rev))], "resignation", timeout=2.0)
        except WriteFailedError as error:
            log.info("resignation not written", error=str(error))

    def discard_producer(self) -> None:
        """Discard the producer. Uncommitted records are never committed."""
        if self._producer is not None:
            self._producer.discard()
            self._producer = None
