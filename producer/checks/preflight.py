"""Is a source as capture needs it, and are its topics? Run by `check`, at each start and at each reconnect."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from producer.errors import CaptureError, ConfigError
from producer.kafka.settings import check_options
from producer.kafka.topic_reader import TopicReader
from producer.kafka.topics import MAY_DESCRIBE, POSITIONS, WATERMARKS, Topics, refuse_own, unfit
from producer.known_sources import source_of
from producer.resume.positions import PositionStore
from producer.resume.table_topics import owners_of
from producer.resume.topic_recovery import peek
from producer.source import SourceDatabase
from producer.tables import TableName
from schemas.config.model import Config
from schemas.errors import EnvelopeError
from schemas.findings import Finding, seen_and_remedy
from schemas.table.names import table_text
from schemas.wire.copies import copy_topic
from schemas.wire.records import StoredPosition, position_topic, watermark_topic
from schemas.wire.topic_names import TopicNames, stored_names


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
        topics, store = Topics(kafka), PositionStore(position_topic(kafka.prefix, name))
        partitions = topics.partitions()
        _judge_own(topics, partitions, kafka.prefix, name)
        stored = _stored_position(config, store) if store.topic in partitions else None
        if stored is not None:
            source.resumed(stored)
        names = names_now(config, name, partitions, stored)
        return _judge_topics(name, {names.of(table): table for table in tables}, topics, partitions)
    except (CaptureError, EnvelopeError) as error:
        return [Finding("error", f"source {name}", *seen_and_remedy(str(error)))]


def _judge_own(topics: Topics, partitions: Mapping[str, int], prefix: str, name: str) -> None:
    """Raise KafkaRefusedError if a topic of the source itself is not as it has to be."""
    for topic, settings in (
        (position_topic(prefix, name), POSITIONS),
        (watermark_topic(prefix, name), WATERMARKS),
        (copy_topic(prefix, name), POSITIONS),
    ):
        if topic in partitions:
            refuse_own({topic: partitions[topic]}, topics.policies([topic]), settings)


def _judge_topics(
    name: str, wanted: Mapping[str, TableName], topics: Topics, partitions: Mapping[str, int]
) -> list[Finding]:
    """Return what is wrong with the topics that the source's tables have, or would get. `wanted`: topic → table."""
    place = {topic: f"source {name}, table {table_text(*table)}" for topic, table in wanted.items()}
    there = {topic: partitions[topic] for topic in place if topic in partitions}
    policies = topics.policies(there)
    found = [
        Finding("error", place[topic], *seen_and_remedy(why)) for topic, why in unfit(there, policies).items()
    ]
    hidden = sorted(set(there) - set(policies))
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        seen = f"the clean-up policy of topic {hidden[0]}{more} cannot be read"
        found.append(Finding("warning", f"source {name}", seen, MAY_DESCRIBE))
    return found


def names_now(
    config: Config, name: str, topics: Collection[str], stored: StoredPosition | None
) -> TopicNames:
    """Return the names of the topics of a source's tables as a start would have them. `topics`: all of the cluster."""
    names = TopicNames(config.kafka.prefix, name)
    if stored is not None:
        names.assigned, _ = stored_names(stored, config.kafka.prefix)
    names.see(topics)
    with TopicReader(config.kafka) as reader:
        names.owners = owners_of(peek(reader, names.unassigned(), name))
    return names


def _stored_position(config: Config, store: PositionStore) -> StoredPosition | None:
    with TopicReader(config.kafka) as reader:
        return store.load(reader).newest
