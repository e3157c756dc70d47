"""Kafka as the command line reads it: the topics of a source, their ends, its last watermark.

It is read-only and uses no consumer group. Each view has one client, used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, TopicPartition

from rowlock.errors import CommandError, KafkaUnreachableError
from schemas.config.model import KafkaConfig
from schemas.errors import EnvelopeError
from schemas.io.kafka_clients import (
    ClientLog,
    Settings,
    build_client_settings,
    ignore_client_error,
    open_consumer,
    reads_by_offset,
)
from schemas.io.kafka_probe import find_kafka_problem
from schemas.patience import scale_timeout
from schemas.table.names import TableName
from schemas.wire.codec import decode_event, decode_watermark
from schemas.wire.debezium import read_debezium_commit_ms
from schemas.wire.event import EventEnvelope
from schemas.wire.records import Watermark, format_watermark_topic
from schemas.wire.topic_tables import make_topic_tables

KAFKA_VIEW_TIMEOUT_S = 6.0
"""On an idle machine."""
METADATA_RETRY_S = 0.1
"""Between two requests for a topic that is being created, or that has a new leader."""
MAX_CLAIMS = 20
"""Records at the end of a watermark topic among which the last watermark is looked for."""
_NOT_KNOWN_YET = (KafkaError._UNKNOWN_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class KafkaContents:
    """A Kafka cluster, and what it has of a system."""

    cluster_id: str
    brokers: int
    topics: tuple[str, ...]
    """The topics with the system's prefix, sorted."""
    sources: tuple[str, ...]
    """The sources that were captured into topics with this prefix, sorted."""


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The offsets of a topic: [low, high)."""

    low: int
    high: int


class KafkaView:
    """Reads the topics of one prefix. Raises KafkaUnreachableError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._prefix = config.prefix
        self._bootstrap = config.bootstrap
        self._config = config
        self._tables = make_topic_tables(config)

    @cached_property
    def _client(self) -> Any:
        """Kafka's client, opened when it is first needed. Raises KafkaUnreachableError if no broker
        answers.
        """
        if problem := find_kafka_problem(self._bootstrap, self._config.options):
            raise KafkaUnreachableError.from_reason(self._bootstrap, problem)
        # librdkafka reports an unreachable broker on stderr for ever; the exception reports it once.
        settings = _build_consumer_settings(self._config)
        return open_consumer(settings, log=ClientLog.SILENT, on_error=ignore_client_error)

    def close(self) -> None:
        if "_client" in vars(self):
            self._client.close()

    def read_topic_tables(self, sources: Iterable[str], topics: Collection[str]) -> dict[str, TableName]:
        """Return topic → table for the topics that capture writes for `sources`. Raises CommandError if
        a record cannot be read.
        """
        try:
            with self._translate_errors():
                return self._tables.find_tables(sources, topics)
        except EnvelopeError as error:
            raise CommandError(f"the tables of topics cannot be read: {error}") from error

    def list_topics(self) -> list[str]:
        with self._translate_errors():
            return list(self._client.list_topics(timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S)).topics)

    def read_contents(self) -> KafkaContents:
        """Return which cluster it is, and what it already has of this prefix."""
        with self._translate_errors():
            found = self._client.list_topics(timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S))
        begin = f"{self._prefix}."
        topics = sorted(name for name in found.topics if name.startswith(begin))
        captured = {name.removeprefix(begin).partition(".")[0]: name for name in topics}
        sources = (name for name in captured if format_watermark_topic(self._prefix, name) in topics)
        return KafkaContents(str(found.cluster_id), len(found.brokers), tuple(topics), tuple(sorted(sources)))

    def list_brokers(self) -> list[tuple[str, int]]:
        """Return host and port of each broker, as clients connect to it."""
        with self._translate_errors():
            brokers = self._client.list_topics(timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S)).brokers
        return sorted((str(each.host), int(each.port)) for each in brokers.values())

    def read_span(self, topic: str) -> OffsetSpan:
        """Return the offsets of a topic. While the topic is being created its partition is not known
        yet, nor are the offsets to a new leader: the request is repeated.
        """
        until = time.monotonic() + scale_timeout(KAFKA_VIEW_TIMEOUT_S)
        with self._translate_errors():
            while True:
                try:
                    at = TopicPartition(topic, 0)
                    low, high = self._client.get_watermark_offsets(
                        at, timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S)
                    )
                    if low < 0 or high < 0:
                        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
                    return OffsetSpan(low, high)
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_KNOWN_YET or time.monotonic() >= until:
                        raise
                time.sleep(METADATA_RETRY_S)

    def read_spans(self, topics: Iterable[str]) -> dict[str, OffsetSpan]:
        return {topic: self.read_span(topic) for topic in topics}

    def read_watermark_end(self, source: str) -> int:
        """Return the offset of the next watermark of `source` (0 if there was none yet)."""
        topic = format_watermark_topic(self._prefix, source)
        return self.read_span(topic).high if topic in self.list_topics() else 0

    def read_watermark(self, source: str) -> tuple[int, Watermark] | None:
        """Return the last watermark of `source` with its offset; None if there is none, or if it cannot
        be read (`has_unreadable_watermark`).
        """
        offset, value = self._find_last_watermark(source)
        with contextlib.suppress(EnvelopeError):  # the next one, in a second, may be readable
            return None if value is None else (offset, decode_watermark(value))
        return None

    def has_unreadable_watermark(self, source: str) -> bool:
        return self._find_last_watermark(source)[1] is not None and self.read_watermark(source) is None

    def _find_last_watermark(self, source: str) -> tuple[int, bytes | None]:
        """Return the offset and the value of the last watermark; None: there is none among the last records.

        Records without a value are claims of capture processes that have sent no watermark yet.
        """
        topic, end = format_watermark_topic(self._prefix, source), self.read_watermark_end(source)
        for offset in range(end - 1, max(end - 1 - MAX_CLAIMS, -1), -1):
            if (value := self._read_value(topic, offset)) is not None:
                return offset, value
        return -1, None

    def read_event(self, topic: str, offset: int) -> EventEnvelope | None:
        """Return the event at `offset`; None if it is not available, or is no event. Its unit reports
        the error itself.
        """
        value = self._read_value(topic, offset)
        with contextlib.suppress(EnvelopeError):
            return None if value is None else decode_event(value)
        return None

    def read_produced_ms(self, topic: str, offset: int) -> int | None:
        """Return the time of the record at `offset`, by which Kafka deletes; None if it is not available."""
        message = self._read_message(topic, offset)
        kind, time_ms = (TIMESTAMP_NOT_AVAILABLE, 0) if message is None else message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)

    def read_debezium_commit_ms(self, topic: str, offset: int) -> int | None:
        """Return the commit time of Debezium's event at `offset`; None if it has none or is not available."""
        value = self._read_value(topic, offset)
        return None if value is None else read_debezium_commit_ms(value)

    def count_partitions(self) -> dict[str, int]:
        """Return topic → number of partitions."""
        with self._translate_errors():
            found = self._client.list_topics(timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S)).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def _read_value(self, topic: str, offset: int) -> bytes | None:
        message = self._read_message(topic, offset)
        value: bytes | None = None if message is None else message.value()
        return value

    def _read_message(self, topic: str, offset: int) -> Any:
        """Return the record at `offset`; None if it is not available."""
        with self._translate_errors():
            self._client.assign([TopicPartition(topic, 0, offset)])
            message = self._client.poll(scale_timeout(KAFKA_VIEW_TIMEOUT_S))
            self._client.unassign()
        return None if message is None or message.error() else message

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_kafka_errors(self._bootstrap)


@contextlib.contextmanager
def translate_kafka_errors(bootstrap: str) -> Iterator[None]:
    """Translate the errors of Kafka's client in the block to KafkaUnreachableError."""
    try:
        yield
    except KafkaException as error:
        raise KafkaUnreachableError.from_reason(bootstrap, error.args[0].str()) from error


def _build_consumer_settings(kafka: KafkaConfig) -> Settings:
    own = {
        **reads_by_offset("rowlock-view"),
        "fetch.wait.max.ms": 20,
        "allow.auto.create.topics": False,
        "socket.connection.setup.timeout.ms": round(1000 * scale_timeout(5)),
    }
    return build_client_settings(kafka.bootstrap, kafka.options, own)
