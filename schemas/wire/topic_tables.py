"""The table of each topic, read from capture's position records: the only place where readers learn it (docs/adr/0034)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import ClientLog, client_settings, ignored, open_consumer, reads_by_offset
from schemas.table.names import TableName
from schemas.wire.codec import decode_stored_position
from schemas.wire.records import position_topic, source_topic
from schemas.wire.topic_names import stored_names

READ_S = 10.0
"""How long a position topic may give nothing while it is read."""
LOOK_AGAIN_S = 10.0
"""How often the records are read again for topics that they did not name: capture may have been upgraded since, or they are somebody else's."""


@dataclass(slots=True)
class _Source:
    """A source's position topic, as far as it is read."""

    next: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    """The last record of each key, which is a generation of capture: the highest one counts."""
    tables: dict[str, TableName] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    """Topics that the records did not name when they were read last."""
    read_at: float = float("-inf")


def topic_tables(kafka: KafkaConfig) -> TopicTables:
    """Return what reads the tables of the configuration's topics."""
    own = {
        **reads_by_offset("rowlock-topics"),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        "allow.auto.create.topics": False,
    }
    settings = client_settings(kafka.bootstrap, kafka.options, own)
    return TopicTables(kafka.prefix, lambda: open_consumer(settings, log=ClientLog.SILENT, on_error=ignored))


class TopicTables:
    """Topic → table of sources that rowlock captures. Records are read when there is a topic that those before did not name: capture stores a
    name before it makes the topic. Safe to ask from any thread.

    Raises KafkaException when Kafka does not answer, EnvelopeError for a record that cannot be read.
    """

    def __init__(
        self, prefix: str, open_consumer: Callable[[], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`open_consumer`: opens a consumer that never commits; it is closed after each use."""
        self._prefix, self._open, self._clock = prefix, open_consumer, clock
        self._sources: dict[str, _Source] = {}
        self._mutex = threading.Lock()

    def of(self, sources: Iterable[str], topics: Collection[str]) -> dict[str, TableName]:
        """Return topic → table of those of `topics` that tables of `sources` have. `topics`: all of the cluster, or some."""
        found: dict[str, TableName] = {}
        with self._mutex:
            for source in sources:
                known = self._sources.setdefault(source, _Source())
                head = source_topic(self._prefix, source) + "."
                mine = [topic for topic in topics if topic.startswith(head)]
                unknown = frozenset(
                    topic for topic in mine if topic not in known.tables and topic.count(".", len(head)) == 1
                )
                if unknown and self._is_due(known, unknown):
                    self._read(source, known)
                    known.unknown = (known.unknown | unknown).difference(known.tables)
                    known.read_at = self._clock()
                found |= {topic: known.tables[topic] for topic in mine if topic in known.tables}
        return found

    def _is_due(self, known: _Source, unknown: frozenset[str]) -> bool:
        return bool(unknown - known.unknown) or self._clock() >= known.read_at + LOOK_AGAIN_S

    def _read(self, source: str, known: _Source) -> None:
        consumer = self._open()
        try:
            topic = position_topic(self._prefix, source)
            if (
                found := consumer.list_topics(topic, timeout=READ_S).topics.get(topic)
            ) is None or found.error:
                return  # capture has not begun
            at = TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(at, timeout=READ_S)
            if high < known.next:  # it was deleted and made again
                known.next, known.values = 0, {}
            if max(low, known.next) < high:
                at.offset = max(low, known.next)
                consumer.assign([at])
                self._consume(consumer, known, high)
        finally:
            consumer.close()
        newest = max(known.values, key=int, default=None)
        if newest is not None:
            names, shared = stored_names(decode_stored_position(known.values[newest]), self._prefix)
            known.tables = {name: tables[0] for name, tables in shared.items()}
            known.tables |= {topic: table for table, topic in names.items()}

    def _consume(self, consumer: Any, known: _Source, high: int) -> None:
        until = self._clock() + READ_S
        while known.next < high:
            messages = consumer.consume(500, timeout=0.2)
            if messages:
                until = self._clock() + READ_S
            elif self._clock() > until:
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, f"{position_topic(self._prefix, '…')} gives nothing")
                )
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    known.next = max(known.next, message.offset())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    known.next = message.offset() + 1
                    self._take(known, message)

    @staticmethod
    def _take(known: _Source, message: Any) -> None:
        if message.value() is None:
            known.values.pop(message.key(), None)
        else:
            known.values[message.key()] = message.value()
