"""Checks of a source and its topics, in `rowlock check`, at each start and at each reconnect."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from producer.errors import CaptureError, ConfigError
from producer.kafka.settings import TOPIC_MESSAGE_BYTES, check_capture_kafka_options
from producer.kafka.topic_reader import TopicReader
from producer.kafka.topics import (
    MAY_DESCRIBE,
    POSITIONS,
    WATERMARKS,
    SourceTopics,
    find_unfit_topics,
    refuse_own,
)
from producer.sources.known import load_source_database
from producer.sources.protocols import SourceDatabase
from producer.start.positions import PositionStore
from producer.start.table_topics import find_topic_owners
from producer.start.topic_recovery import peek_last_events
from producer.tables import TableName
from schemas.config.model import Config
from schemas.errors import EnvelopeError
from schemas.findings import Finding, build_error_finding
from schemas.io.server_errors import is_access_denied
from schemas.table.names import format_table_text
from schemas.wire.copies import copy_topic
from schemas.wire.records import StoredPosition, format_position_topic, format_watermark_topic
from schemas.wire.topic_names import TopicNames, parse_stored_names

MEASURED_TABLES = 2_000
"""The most tables of one source with which a first start was measured (bench/many_databases.py)."""


def check_source(config: Config, name: str, *, asks_kafka: bool = True) -> list[Finding]:
    """Return everything that is wrong with source `name`, its topics and its stored position.

    `asks_kafka`: False: Kafka does not answer; topics and position are left out. The list is empty if nothing
    is wrong.
    """
    wrong_options = _judge_options(config)
    source = load_source_database(config, name)
    try:
        findings, tables = source.check_source()
        found = [*wrong_options, *findings]
        if tables is None:
            return found
        found += _judge_count(name, len(tables))
        if asks_kafka and not wrong_options:
            has_rights = not any(each.level == "error" and each.remedy.startswith("GRANT ") for each in found)
            found += _on_kafka(config, name, source, tables, has_rights=has_rights)
        return found
    finally:
        source.close()


def _judge_options(config: Config) -> list[Finding]:
    try:
        check_capture_kafka_options(config.kafka.options)
    except ConfigError as error:
        return [build_error_finding("kafka.options", error.problem)]
    return []


def require_source(config: Config, source: SourceDatabase) -> None:
    """Raise SourceRefusedError with all errors of the server, or TransientSourceError if it cannot be
    reached now.
    """
    check_capture_kafka_options(config.kafka.options)
    source.require_usable()


def _judge_count(name: str, tables: int) -> list[Finding]:
    """Return a warning for more tables than were measured."""
    if tables <= MEASURED_TABLES:
        return []
    seen = f"{tables:,} tables are selected: rowlock is measured with up to {MEASURED_TABLES:,} in one source"
    remedy = (
        "leave out tables that no target needs (`tables`), and try the first start, which takes about a "
        "second for four tables, before you depend on it (`rowlock docs size-kafka`)"
    )
    return [Finding("warning", f"source {name}", seen, remedy)]


def _on_kafka(
    config: Config, name: str, source: SourceDatabase, tables: list[TableName], *, has_rights: bool
) -> list[Finding]:
    """Return what is wrong with the topics and the stored position.

    `has_rights`: False: findings already name a right that the source's user lacks.
    """
    kafka = config.kafka
    try:
        topics, store = SourceTopics(kafka), PositionStore(format_position_topic(kafka.prefix, name))
        partitions = topics.count_partitions()
        _judge_own(topics, partitions, kafka.prefix, name)
        stored = _load_stored_position(config, store) if store.topic in partitions else None
        found = [] if stored is None else _judge_log(name, source, stored, has_rights=has_rights)
        names = names_now(config, name, partitions, stored)
        expected = {names.assign_name(table): table for table in tables}
        return [*found, *_judge_topics(name, expected, topics, partitions)]
    except (CaptureError, EnvelopeError) as error:
        return [build_error_finding(f"source {name}", error.problem)]


def _judge_log(
    name: str, source: SourceDatabase, stored: StoredPosition, *, has_rights: bool
) -> list[Finding]:
    """Return why capture cannot continue the log at its position.

    That the server does not show its log is no finding of its own if the missing right is one already.
    """
    try:
        source.resume_log(stored)
    except CaptureError as error:
        is_reported = is_access_denied(error.__cause__) and not has_rights
        return [] if is_reported else [build_error_finding(f"source {name}", error.problem)]
    return []


def _judge_own(topics: SourceTopics, partitions: Mapping[str, int], prefix: str, name: str) -> None:
    """Raise KafkaRefusedError if a topic of the source itself is not suitable."""
    for topic, settings in (
        (format_position_topic(prefix, name), POSITIONS),
        (format_watermark_topic(prefix, name), WATERMARKS),
        (copy_topic(prefix, name), POSITIONS),
    ):
        if topic in partitions:
            refuse_own({topic: partitions[topic]}, topics.read_cleanup_policies([topic]), settings)


def _judge_topics(
    name: str, expected: Mapping[str, TableName], topics: SourceTopics, partitions: Mapping[str, int]
) -> list[Finding]:
    """Return what is wrong with the topics that the source's tables have, or would get.

    `expected`: topic → table.
    """
    place = {topic: f"source {name}, table {format_table_text(*table)}" for topic, table in expected.items()}
    there = {topic: partitions[topic] for topic in place if topic in partitions}
    policies = topics.read_cleanup_policies(there)
    found = [
        build_error_finding(place[topic], problem)
        for topic, problem in find_unfit_topics(there, policies).items()
    ]
    found += [
        Finding(
            "warning", place[topic],
            f"topic {topic} takes messages of up to {limit} bytes (max.message.bytes): a row that makes a "
            "larger event stops the table",
            f"set max.message.bytes of the topic to {TOPIC_MESSAGE_BYTES}",
        )
        for topic, limit in topics.read_message_limits(there).items()
        if limit < TOPIC_MESSAGE_BYTES
    ]  # fmt: skip
    hidden = sorted(set(there) - set(policies))
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        seen = f"the clean-up policy of topic {hidden[0]}{more} cannot be read"
        found.append(Finding("warning", f"source {name}", seen, MAY_DESCRIBE))
    return found


def names_now(
    config: Config, name: str, topics: Collection[str], stored: StoredPosition | None
) -> TopicNames:
    """Return the names of the topics of a source's tables as a start would assign them.

    `topics`: all of the cluster.
    """
    names = TopicNames(config.kafka.prefix, name)
    if stored is not None:
        names.assigned, _ = parse_stored_names(stored, config.kafka.prefix)
    names.update_existing(topics)
    with TopicReader(config.kafka) as reader:
        names.owners = find_topic_owners(peek_last_events(reader, names.list_unassigned(), name))
    return names


def _load_stored_position(config: Config, store: PositionStore) -> StoredPosition | None:
    with TopicReader(config.kafka) as reader:
        return store.load_records(reader).newest
