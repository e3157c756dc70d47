"""Writes events to Kafka so that a topic never has a gap, and reports what Kafka has acknowledged.

A failed delivery followed by a later success is a gap that deduplication makes permanent. So the
producer is idempotent with the gapless guarantee, and messages have no time-out. On the first error the
producer is purged and destroyed before anything else is produced; the unit restarts from its stored
position.

Messages are produced in batches, one call per topic, because one call per message takes one and a half
times as long. Only the last message of a batch and topic has a delivery callback: within a partition
acknowledgements come in order. The bytes in flight are limited here, because librdkafka's own limit
could refuse a message in the middle of a batch and accept the next one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, KafkaException

from producer.errors import DeliveryError, KafkaRefusedError, MessageTooLargeError
from producer.kafka.settings import MAX_EVENT_BYTES, MAX_MESSAGE_BYTES, TOPIC_MESSAGE_BYTES
from schemas.findings import add_exclusion
from schemas.io.kafka_clients import OnError, open_producer


class ProducedBatch:
    """Messages that were produced together.

    `waiting`: the number of topics with an unacknowledged last message.
    """

    __slots__ = ("marks", "size", "waiting")

    def __init__(self, size: int, waiting: int) -> None:
        self.size = size
        self.waiting = waiting
        self.marks: list[Callable[[], None]] = []

    def acknowledge_topic(self) -> None:
        """Note that the last message of one of the topics is acknowledged."""
        self.waiting -= 1


class InFlightBatches:
    """The batches that Kafka has not acknowledged yet, in the order in which they were produced. `size`:
    their bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: deque[ProducedBatch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add_batch(self, size: int, topics: int) -> ProducedBatch:
        """Add a batch of `size` bytes for a number of topics."""
        batch = ProducedBatch(size, topics)
        self.size += size
        self._batches.append(batch)
        return batch

    def call_when_acknowledged(self, action: Callable[[], None]) -> None:
        """Call `action` once all batches are acknowledged."""
        if self._batches:
            self._batches[-1].marks.append(action)
        else:
            action()

    def drop_acknowledged(self) -> None:
        """Remove the acknowledged batches and call their actions."""
        while self._batches and not self._batches[0].waiting:
            batch = self._batches.popleft()
            self.size -= batch.size
            for action in batch.marks:
                action()


#: Bytes that may be unacknowledged before `flush` waits.
IN_FLIGHT = 64 << 20
#: Bytes that make a batch.
MAX_BATCH_BYTES = 1 << 19
#: Part of the message of a fatal error that a refused batch causes, which has no code of its own for it.
_TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()
_MESSAGE_COST = 100  # librdkafka's own memory per message

OnOffset = Callable[[int], None]


class InterruptedWriteError(Exception):
    """The unit was asked to stop while Kafka was not accepting messages."""


class KafkaClient(Protocol):
    """The part of confluent_kafka.Producer that the writer needs. `poll` calls the messages' callbacks."""

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int: ...
    def poll(self, timeout: float, /) -> object: ...
    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None: ...


def make_client_factory(settings: dict[str, Any]) -> Callable[[OnError], KafkaClient]:
    """Return a function that creates a client with a callback for errors that concern no single message."""
    return lambda on_error: cast(KafkaClient, open_producer(settings, on_error=on_error))


class KafkaWriter:
    """One producer. `stopping`: called while it waits for Kafka.

    After DeliveryError the writer cannot be used any more.
    """

    def __init__(self, client: Callable[[OnError], KafkaClient], stopping: Callable[[], bool]) -> None:
        self._producer: KafkaClient | None = client(self._on_error)
        self._stopping = stopping
        self._pending: dict[str, list[dict[str, Any]]] = {}
        self._pending_bytes = 0
        self._in_flight = InFlightBatches()
        self._failure: str | None = None
        self.offsets: dict[str, int] = {}

    def limit_waiting(self, deadline: float) -> None:
        """Wait for Kafka up to `deadline`, in monotonic seconds, and no longer for `stopping`."""
        self._stopping = lambda: time.monotonic() > deadline

    def send(self, topic: str, key: bytes, value: bytes | None, on_offset: OnOffset | None = None) -> None:
        """Add a message, which is sent with the next `flush`.

        `on_offset`: called with its offset once acknowledged.
        """
        size = len(key) + (len(value) if value else 0)
        if size > MAX_EVENT_BYTES:
            self.abandon_unacknowledged()
            raise _build_too_large_error(topic, key, size)
        message: dict[str, Any] = {"key": key, "value": value}
        if on_offset is not None:
            message["callback"] = self._make_offset_callback(on_offset)
        self._pending.setdefault(topic, []).append(message)
        self._pending_bytes += size + _MESSAGE_COST

    def send_all(self, topic: str, records: list[tuple[bytes, bytes]], size: int) -> None:
        """Add many records of one topic, or none, with `size` bytes; `count_fitting_records` must accept
        them. The hot path.
        """
        if records:
            messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in records]
            self._pending.setdefault(topic, []).extend(messages)
            self._pending_bytes += size + _MESSAGE_COST * len(records)

    @property
    def full(self) -> bool:
        """True if enough is pending to make a batch."""
        return self._pending_bytes >= MAX_BATCH_BYTES

    def flush(self) -> None:
        """Produce what is pending; waits while too much is unacknowledged.

        Raises DeliveryError, InterruptedWriteError.
        """
        if self._pending:
            self._produce_pending()
        self.poll_acknowledgements(0)
        while self._in_flight.size > IN_FLIGHT:
            self._wait_for_acknowledgements()

    def call_when_acknowledged(self, action: Callable[[], None]) -> None:
        """Call `action` once everything sent until now is acknowledged."""
        if self._pending:
            self._produce_pending()
        self._in_flight.call_when_acknowledged(action)

    def drain(self) -> None:
        """Return when everything sent is acknowledged. Raises DeliveryError, InterruptedWriteError."""
        if self._pending:
            self._produce_pending()
        while self._in_flight:
            self._wait_for_acknowledgements()

    def poll_acknowledgements(self, timeout: float) -> None:
        """Process acknowledgements. Raises DeliveryError."""
        if self._producer is None:
            raise DeliveryError(self._failure or "the producer is closed")
        self._poll_client(self._producer, timeout)
        if self._failure is not None:
            self._destroy_client()
        self._in_flight.drop_acknowledged()  # outside of the client's callbacks, which must not raise

    def abandon_unacknowledged(self) -> None:
        """Discard everything that is not acknowledged, without producing anything more."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=True)
            self._poll_client(self._producer, 0)
            self._producer = None

    # --- internals

    def _poll_client(self, client: KafkaClient, timeout: float) -> None:
        """Process callbacks. The client raises a fatal error here instead of calling back."""
        try:
            client.poll(timeout)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _produce_pending(self) -> None:
        if self._producer is None:
            raise DeliveryError(self._failure or "the producer is closed")
        pending, self._pending = self._pending, {}
        batch = self._in_flight.add_batch(self._pending_bytes, len(pending))
        self._pending_bytes = 0
        for topic, messages in pending.items():
            self._watch_delivery(batch, topic, messages[-1])
            try:
                taken = self._producer.produce_batch(topic, messages, partition=0)
            except (KafkaException, BufferError) as error:
                self._failure = self._failure or f"Kafka no longer accepts records for {topic}: {error}"
                taken = -1
            if taken != len(messages):
                self._failure = self._failure or _explain_refused_messages(topic, messages)
                self._destroy_client()

    def _watch_delivery(self, batch: ProducedBatch, topic: str, message: dict[str, Any]) -> None:
        own = message.get("callback")

        def handle_delivery(error: KafkaError | None, delivered: Any) -> None:
            if own is not None:
                own(error, delivered)
            if error is not None:
                self._on_error(error, topic)
            elif self._failure is None:
                self.offsets[topic] = delivered.offset()
                batch.acknowledge_topic()

        message["callback"] = handle_delivery

    def _make_offset_callback(self, on_offset: OnOffset) -> Callable[[KafkaError | None, Any], None]:
        def handle_delivery(error: KafkaError | None, delivered: Any) -> None:
            if error is not None:
                self._on_error(error, delivered.topic())
            elif self._failure is None:
                on_offset(delivered.offset())

        return handle_delivery

    def _wait_for_acknowledgements(self) -> None:
        self.poll_acknowledgements(0.05)
        if self._stopping():
            raise InterruptedWriteError

    def _on_error(self, error: KafkaError, topic: str = "") -> None:
        """Record a delivery error or a fatal error, which ends the writer. librdkafka handles lost
        brokers itself.
        """
        if topic and error.code() == KafkaError._PURGE_QUEUE:
            return
        if (topic or error.fatal()) and self._failure is None:
            self._failure = _explain_kafka_error(error, topic)

    def _destroy_client(self) -> None:
        self.abandon_unacknowledged()
        seen = self._failure or "Kafka did not accept a message"
        if _TOO_LARGE in seen:
            raise MessageTooLargeError(
                seen, f"set max.message.bytes of the topic to {TOPIC_MESSAGE_BYTES} (kafka-configs --alter)"
            )
        raise DeliveryError(seen)


def _build_too_large_error(topic: str, key: bytes, size: int) -> KafkaRefusedError:
    return KafkaRefusedError(
        f"the row {key[:200].decode('utf-8', 'replace')} makes an event of {size} bytes for {topic}; the "
        f"limit is {MAX_MESSAGE_BYTES} bytes (max.message.bytes)",
        add_exclusion("exclude the table, or make the row smaller", "database", "table"),
    )


def _explain_refused_messages(topic: str, messages: list[dict[str, Any]]) -> str:
    errors = [message["_error"] for message in messages if "_error" in message]
    return f"Kafka's client refused a message for {topic}: {errors[0] if errors else 'no reason given'}"


def _explain_kafka_error(error: KafkaError, topic: str) -> str:
    if not topic:
        return error.str()
    return f"Kafka did not accept a message for {topic}: {error.str()} ({error.name()})"
