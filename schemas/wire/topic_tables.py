"""The table of each topic, read from capture's position records: the only source of it for readers
(docs/adr/0034).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.backoff import Backoff
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import (
    ClientLog,
    build_client_settings,
    ignore_client_error,
    open_consumer,
    reads_by_offset,
)
from schemas.table.names import TableName
from schemas.wire.codec import decode_stored_position
from schemas.wire.records import format_position_topic, format_source_topic
from schemas.wire.topic_names import parse_stored_names

POSITION_READ_TIMEOUT_S = 10.0
"""Seconds without any record after which the read of a position topic fails."""
REREAD_BACKOFF = Backoff(first=0.2, longest=10.0)
"""The delays before records are read again for topics that they did not name. Capture's first start creates
topics a moment before it stores their names; other topics are not rowlock's, or capture was upgraded since.
"""


@dataclass(slots=True)
class _PositionTopic:
    """A source's position topic, as far as it was read."""

    next: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    """The last record of each key, which is a generation of capture: the highest one counts."""
    tables: dict[str, TableName] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    """Topics that the records did not name when they were last read."""
    reread: Backoff = REREAD_BACKOFF


def make_topic_tables(kafka: KafkaConfig) -> TopicTables:
    """Return the reader of the tables of the configuration's topics."""
    own = {
        **reads_by_offset("rowlock-topics"),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        "allow.auto.create.topics": False,
    }
    settings = build_client_settings(kafka.bootstrap, kafka.options, own)
    return TopicTables(
        kafka.prefix, lambda: open_consumer(settings, log=ClientLog.SILENT, on_error=ignore_client_error)
    )


class TopicTables:
    """The mapping of topics to tables of sources that rowlock captures. Thread-safe.

    Records are read if a topic exists that the previous ones did not name. Raises KafkaException if Kafka
    does not answer, EnvelopeError for a record that cannot be decoded.
    """

    def __init__(
        self, prefix: str, open_consumer: Callable[[], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create the mapping.

        `open_consumer`: opens a consumer that never commits; it is closed after each use.
        """
        self._prefix, self._open, self._clock = prefix, open_consumer, clock
        self._sources: dict[str, _PositionTopic] = {}
        self._mutex = threading.Lock()

    def find_tables(self, sources: Iterable[str], topics: Collection[str]) -> dict[str, TableName]:
        """Return topic → table for those of `topics` that belong to tables of `sources`.

        `topics`: all of the cluster, or some.
        """
        found: dict[str, TableName] = {}
        with self._mutex:
            for source in sources:
                known = self._sources.setdefault(source, _PositionTopic())
                head = format_source_topic(self._prefix, source) + "."
                mine = [topic for topic in topics if topic.startswith(head)]
                unknown = frozenset(
                    topic for topic in mine if topic not in known.tables and topic.count(".", len(head)) == 1
                )
                is_new = bool(unknown - known.unknown)
                if unknown and (is_new or self._clock() >= known.reread.next_at):
                    self._read_positions(source, known)
                    known.unknown = (known.unknown | unknown).difference(known.tables)
                    known.reread = (REREAD_BACKOFF if is_new else known.reread).with_failure(self._clock())
                found |= {topic: known.tables[topic] for topic in mine if topic in known.tables}
        return found

    def _read_positions(self, source: str, known: _PositionTopic) -> None:
        consumer = self._open()
        try:
            topic = format_position_topic(self._prefix, source)
            if (
                found := consumer.list_topics(topic, timeout=POSITION_READ_TIMEOUT_S).topics.get(topic)
            ) is None or found.error:
                return  # capture has not begun
            at = TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(at, timeout=POSITION_READ_TIMEOUT_S)
            if high < known.next:  # the topic was deleted and created again
                known.next, known.values = 0, {}
            if max(low, known.next) < high:
                at.offset = max(low, known.next)
                consumer.assign([at])
                self._consume_positions(consumer, known, high)
        finally:
            consumer.close()
        newest = max(known.values, key=int, default=None)
        if newest is not None:
            names, shared = parse_stored_names(decode_stored_position(known.values[newest]), self._prefix)
            known.tables = {name: tables[0] for name, tables in shared.items()}
            known.tables |= {topic: table for table, topic in names.items()}

    def _consume_positions(self, consumer: Any, known: _PositionTopic, high: int) -> None:
        until = self._clock() + POSITION_READ_TIMEOUT_S
        while known.next < high:
            messages = consumer.consume(500, timeout=0.2)
            if messages:
                until = self._clock() + POSITION_READ_TIMEOUT_S
            elif self._clock() > until:
                raise KafkaException(
                    KafkaError(
                        KafkaError._TIMED_OUT, f"{format_position_topic(self._prefix, '…')} gives nothing"
                    )
                )
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    known.next = max(known.next, message.offset())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    known.next = message.offset() + 1
                    self._take_record(known, message)

    @staticmethod
    def _take_record(known: _PositionTopic, message: Any) -> None:
        if message.value() is None:
            known.values.pop(message.key(), None)
        else:
            known.values[message.key()] = message.value()
