"""Is a source as capture needs it, and are its topics? Run by `check`, at each start and at each reconnect."""

from __future__ import annotations

from producer.errors import CaptureError, ConfigError
from producer.kafka.settings import check_options
from producer.kafka.topic_reader import TopicReader
from producer.kafka.topics import Topics, refuse_partitions
from producer.known_sources import source_of
from producer.resume.positions import PositionStore
from producer.source import SourceDatabase
from producer.tables import TableName
from schemas.config.model import Config
from schemas.findings import Finding, seen_and_remedy
from schemas.wire.records import position_topic, table_topic


def check_source(config: Config, name: str) -> list[Finding]:
    """Return everything that is wrong with source `name`, its topics and its stored position; empty: all is well."""
    try:
        check_options(config.kafka.options)
    except ConfigError as error:
        return [Finding("error", "kafka.options", *seen_and_remedy(str(error)))]
    source = source_of(config, name)
    try:
        findings, tables = source.check()
        return findings if tables is None else [*findings, *_on_kafka(config, name, source, tables)]
    finally:
        source.close()


def require_source(config: Config, source: SourceDatabase) -> None:
    """Raise SourceRefusedError with all errors of the server (TransientSourceError if it cannot be reached just now)."""
    check_options(config.kafka.options)
    source.require()


def _on_kafka(config: Config, name: str, source: SourceDatabase, tables: list[TableName]) -> list[Finding]:
    kafka = config.kafka
    try:
        partitions = Topics(kafka).partitions()
        wanted = [table_topic(kafka.prefix, name, *table) for table in tables]
        store = PositionStore(position_topic(kafka.prefix, name))
        refuse_partitions(
            {topic: partitions[topic] for topic in [*wanted, store.topic] if topic in partitions}
        )
        if store.topic in partitions:
            _stored_position(config, store, source)
    except CaptureError as error:
        return [Finding("error", f"source {name}", *seen_and_remedy(str(error)))]
    return []


def _stored_position(config: Config, store: PositionStore, source: SourceDatabase) -> None:
    with TopicReader(config.kafka) as reader:
        stored = store.load(reader).newest
    if stored is not None:
        source.resumed(stored)
