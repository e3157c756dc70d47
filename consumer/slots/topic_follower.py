"""Reads the new records of all followed topics of a pipeline with one consumer, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.attempt.readers.reader import RecordSlice
from consumer.slots.faults import fault_ends_process
from schemas.io.kafka_clients import (
    build_client_settings,
    build_loss_settings,
    open_consumer,
    reads_by_offset,
    report_unreachable,
)

log = structlog.get_logger(__name__)

FOLLOW_POLL_S = 0.1
"""Longest wait in seconds for a record, after which new commands are carried out."""
MOST_RECORDS = 5_000
"""Records that are taken at once."""

TakeRecords = Callable[[str, int, RecordSlice], None]
"""(topic, number of the follow_topic, records)"""
LoseRecords = Callable[[str, int], None]
"""(topic, number): the topic cannot be followed."""


def build_follower_settings(bootstrap: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a consumer that waits for new records."""
    own = {
        **reads_by_offset("rowlock-apply"),
        # After a full queue librdkafka would not fetch for a second.
        "queued.max.messages.kbytes": 16 << 10,
        "fetch.message.max.bytes": 1 << 20,
        **build_loss_settings(),
    }
    return build_client_settings(bootstrap, options, own)


class TopicFollower:
    """Follows topics from given offsets. Commands come from any thread, and are carried out within
    FOLLOW_POLL_S.

    `take` and `lose` are called in the reader's thread.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        name: str,
        take: TakeRecords,
        lose: LoseRecords,
        on_unreachable: Callable[[str], None],
    ) -> None:
        """`on_unreachable`: receives why no broker can be reached, in the reader's thread."""
        self._on_unreachable = on_unreachable
        self._settings, self._take, self._lose = settings, take, lose
        self._commands: deque[tuple[str, int, int | None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._numbers: dict[str, int] = {}
        self._consumer: Any = None
        self._name = f"reader {name}"
        self._thread: threading.Thread | None = None

    def follow_topic(self, topic: str, offset: int, number: int) -> None:
        """Bring the topic's records from `offset` on, with `number`."""
        self._put(topic, number, offset)

    def leave_topic(self, topic: str) -> None:
        """Bring no more records of the topic."""
        self._put(topic, 0, None)

    def _put(self, topic: str, number: int, offset: int | None) -> None:
        with self._changed:
            self._commands.append((topic, number, offset))
            self._changed.notify()
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread, and close the consumer."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # -- the reader's thread

    def _run(self) -> None:
        with fault_ends_process(self._name):
            self._read_until_end()

    def _read_until_end(self) -> None:
        """Read until the end or an error, after which no topic is followed any more."""
        try:
            self._consumer = open_consumer(self._settings, on_error=report_unreachable(self._on_unreachable))
            while not self._closing:
                self._carry_out_commands()
                self._read()
        except Exception:  # its topics are read by their units, which then follow them again
            log.exception("reader of new records failed")
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        with self._changed:
            lost = self._numbers | {topic: number for topic, number, at in self._commands if at is not None}
            self._numbers, self._thread = {}, None
            self._commands.clear()
        for topic, number in lost.items():
            self._lose(topic, number)

    def _carry_out_commands(self) -> None:
        """Carry out what was asked since the last call, and wait for commands while no topic is followed."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands or self._numbers or self._closing)
            commands, self._commands = list(self._commands), deque()
        begun: dict[str, int] = {}
        left: dict[str, None] = {}
        for topic, number, offset in commands:
            if topic in begun:
                del begun[topic]
            elif self._numbers.pop(topic, None) is not None:
                left[topic] = None
            if offset is not None:
                begun[topic] = offset
                self._numbers[topic] = number
            else:
                self._numbers.pop(topic, None)
        if left:
            self._consumer.incremental_unassign([TopicPartition(topic, 0) for topic in left])
        if begun:
            self._consumer.incremental_assign(
                [TopicPartition(topic, 0, offset) for topic, offset in begun.items()]
            )

    def _read(self) -> None:
        if not self._numbers or (first := self._consumer.poll(FOLLOW_POLL_S)) is None:
            return
        found: dict[str, RecordSlice] = {}
        for message in (first, *self._take_waiting()):
            error = message.error()
            if error is None:
                found.setdefault(message.topic(), []).append((message.offset(), message.value()))
            else:
                self._handle_error(message.topic(), error)
        for topic, records in found.items():
            if (number := self._numbers.get(topic)) is not None:
                self._take(topic, number, records)

    def _take_waiting(self) -> Sequence[Any]:
        messages: Sequence[Any] = self._consumer.consume(MOST_RECORDS, timeout=0)
        return messages

    def _handle_error(self, topic: str | None, error: KafkaError) -> None:
        """An error of one topic is found out by its unit's next attempt; librdkafka goes on after others."""
        number = None if topic is None else self._numbers.get(topic)
        if topic is None or number is None:
            if error.fatal():
                raise KafkaException(error)
            log.info("Kafka client reports an error", error=str(error)[:300])
            return
        self._lose(topic, number)
