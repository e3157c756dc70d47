"""The transactional producer of a unit: its commits are visible as a whole or not at all, and making
another one fences it.

It is discarded at the first error, so it never begins another transaction while the outcome of one is
unknown: Kafka could end the new transaction with the late answer to the first.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from consumer.errors import CommitUnknownError, TransientError
from consumer.ordering.model import ApplyUnit
from consumer.targets.kafka.clients import ClientTimeouts, make_unit_producer
from consumer.targets.kafka.errors import FENCED, get_kafka_error, translate_kafka_error
from consumer.targets.kafka.store.state import KnownUnit
from schemas.config.model import KafkaTargetConfig

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record with its topic and partition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class UnitWriter:
    """The producer of one unit. Making one fences all earlier ones of the unit and ends their open
    transactions.

    `known`: the unit as read since then, or written. `batch`: bytes that the producer sends together.
    Raises consumer.errors, WriterFencedError among them.
    """

    def __init__(
        self, config: KafkaTargetConfig, unit: ApplyUnit, batch: int, read_unit: Callable[[], KnownUnit]
    ) -> None:
        """`read_unit`: reads the unit's state; called when no other producer can change it any more."""
        self.batch = batch
        self._what = f"a transaction of unit {unit.topic} of pipeline {unit.pipeline}"
        self._limits = ClientTimeouts.from_lease(config.lease_s)
        self._failed: list[KafkaError] = []
        self._producer = make_unit_producer(config, build_transactional_id(config, unit), batch)
        try:
            self._producer.init_transactions(self._limits.call_s)
        except (KafkaException, SystemError) as error:
            self.discard()
            if isinstance(error, KafkaException):
                limit = f"timeout {self._limits.transaction_s:g} s"
                raise translate_kafka_error(error, f"{self._what} ({limit}) cannot be started") from error
            raise TransientError(f"{self._what} cannot be started: {error}") from error
        try:
            self.known = read_unit()
        except BaseException:
            self.discard()
            raise

    def commit_records(self, records: Sequence[Outgoing], after: KnownUnit) -> None:
        """Write all records in one transaction. `after`: the unit's state after it.

        Raises CommitUnknownError if only the progress topic shows whether the transaction was
        committed. After any other of consumer.errors it was not committed, except for
        WriterFencedError, after which it may have been. After any error the writer cannot be used any
        more.
        """
        self._failed.clear()
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce_record(record)
            left = self._producer.flush(self._limits.call_s)
        except (KafkaException, SystemError) as error:
            raise self._translate_failure(error) from error
        if self._failed:
            raise translate_kafka_error(self._find_failure(), self._what)
        if left:
            raise TransientError(
                f"{self._what}: {left} of {len(records)} records were not accepted "
                f"within {self._limits.call_s:g} s"
            )
        try:
            self._producer.commit_transaction(self._limits.call_s)
        except (KafkaException, SystemError) as error:
            raise self._translate_commit_failure(error) from error
        self.known = after

    def _find_failure(self) -> KafkaError:
        """Return why records were not accepted.

        Purged records are only a consequence of the failure; its cause is then found by an attempt to
        begin another transaction.
        """
        for error in self._failed:
            if error.code() not in _PURGED:
                return error
        try:
            self._producer.begin_transaction()
        except KafkaException as begin_error:
            seen = get_kafka_error(begin_error)
            if seen is not None and (seen.txn_requires_abort() or seen.fatal()):
                return seen
        return self._failed[0]

    def _translate_failure(self, error: KafkaException | SystemError) -> Exception:
        """Return the error of a failed call.

        After a fatal error the library's callbacks raise SystemError; the next call then reports what
        happened.
        """
        seen: KafkaException | SystemError = error
        if not isinstance(error, KafkaException):
            try:
                self._producer.abort_transaction(self._limits.abort_s)
            except (KafkaException, SystemError) as abort_error:
                seen = abort_error
        if isinstance(seen, KafkaException):
            return translate_kafka_error(seen, self._what)
        return TransientError(f"{self._what}: {seen}")

    def _translate_commit_failure(self, error: KafkaException | SystemError) -> Exception:
        """Return the error of a failed commit: CommitUnknownError unless Kafka itself refused the
        commit.

        Only such a refusal proves that nothing was committed. UNKNOWN proves nothing: brokers send it
        for their own internal errors, among them the begin of another producer at the same moment.
        """
        seen = get_kafka_error(error) if isinstance(error, KafkaException) else None
        if seen is not None and (
            seen.name() in FENCED or (seen.txn_requires_abort() and seen.name() != "UNKNOWN")
        ):
            return translate_kafka_error(seen, self._what)
        return CommitUnknownError(f"{self._what}: it is unknown whether it was committed: {error}")

    def _produce_record(self, record: Outgoing) -> None:
        until = time.monotonic() + self._limits.call_s
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    headers=list(record.headers) or None,
                    on_delivery=self._on_delivery,
                )
            except BufferError as error:
                self._producer.poll(0.1)  # the records exceed the library's queue
                if time.monotonic() > until:
                    raise TransientError(f"{self._what}: no broker accepts its records") from error
            else:
                return

    def _on_delivery(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def discard(self) -> None:
        """Discard the producer; whatever is uncommitted never will be committed."""
        for step in (
            lambda: self._producer.abort_transaction(self._limits.abort_s),
            self._producer.purge,
            self._producer.close,
        ):
            # a fenced producer reports so once more, and warns that it could not abort a transaction
            # that has ended
            with (
                contextlib.suppress(KafkaException, SystemError, RuntimeError),
                warnings.catch_warnings(action="ignore"),
            ):
                step()


def build_transactional_id(config: KafkaTargetConfig, unit: ApplyUnit) -> str:
    """Return the unit's transactional id: the target's prefix, a dot, and the unit.

    No other prefix, pipeline and topic make the same id, because none of the three contains a slash.
    """
    return f"{config.prefix}./{unit.pipeline}/{unit.topic}"
