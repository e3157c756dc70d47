"""The topics that a pipeline applies, and their ids and offsets in Kafka.

The selection needs no I/O; `KafkaCluster` wraps Kafka's admin client. The tables of topics that rowlock
writes are read from the position records (schemas/wire/topic_tables.py). Topics without a route are left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from consumer.errors import TransientError
from consumer.tables.router import TableRoute, resolve_route
from schemas.io.kafka_clients import build_client_settings, open_admin
from schemas.io.mysql_catalog import is_selected
from schemas.table.names import TableName, format_table_text
from schemas.wire.records import format_source_topic, unescape_topic_part

REQUEST_S = 15.0
_NOT_SHOWN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART")
#: Errors that a client raises from its own cache, without asking a broker: see _StaleClientError.
_STALE = ("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_NOENT")


def select_topics(
    names: Iterable[str],
    *,
    prefix: str,
    sources: Sequence[str],
    routes: Sequence[TableRoute],
    assigned: Mapping[str, TableName],
    debezium: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """Return topic → source for those of `names` that the pipeline applies: tables of its sources that a
    route matches.

    `assigned`: topic → table, of the topics that rowlock writes. `debezium`: source → patterns of its
    tables, of the sources that Debezium captures; there the topic's name determines the table.
    """
    existing = sorted(names)
    units: dict[str, str] = {}
    for source in sources:
        head, patterns = format_source_topic(prefix, source) + ".", (debezium or {}).get(source)
        for topic in existing:
            if not topic.startswith(head):
                continue
            table = (
                assigned.get(topic) if patterns is None else find_debezium_table(topic[len(head) :], patterns)
            )
            if table is not None and resolve_route(routes, source, *table) is not None:
                units[topic] = source
    return units


def find_debezium_table(name: str, patterns: Sequence[str]) -> TableName | None:
    """Return the table of a topic that Debezium writes; None if it is not selected.

    `name`: the topic's name without the source's prefix.
    """
    db, dot, table = name.partition(".")
    return (db, table) if dot and is_selected(patterns, db, table) else None


def format_topic_table(prefix: str, source: str, topic: str) -> str:
    """Return "db.table" as a topic's name suggests it, for log lines.

    The real table may have another name.
    """
    db, _, table = topic.removeprefix(format_source_topic(prefix, source) + ".").partition(".")
    return format_table_text(unescape_topic_part(db), unescape_topic_part(table))


class TopicDescription(NamedTuple):
    """A topic as Kafka describes it."""

    id: str
    partitions: int


class _StaleClientError(TransientError):
    """The client's cached metadata is wrong, and the client does not refresh it.

    librdkafka keeps the leader epoch of a topic that was just created, and the fact that a topic was
    unknown once (_NOENT, "No leaders found", if it knows none of the request's topics). A new client has
    no such cache.
    """


class KafkaCluster:
    """Kafka's metadata. Every method raises TransientError if the brokers do not answer."""

    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        self._settings = build_client_settings(bootstrap, options, {})
        self._admin = open_admin(self._settings)

    def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        try:
            return list(self._admin.list_topics(timeout=REQUEST_S).topics)
        except KafkaException as error:
            raise TransientError(f"Kafka does not list its topics: {error}") from error

    def fetch_topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return topic → id; a topic that is deleted and created again has another id.

        Missing topics are left out.
        """
        return {topic: found.id for topic, found in self.describe_topics(topics).items()}

    def describe_topics(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return id and partitions of each topic; missing topics are left out."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_S)
        found: dict[str, TopicDescription] = {}
        for topic, future in futures.items():
            description = _get_result(future, topic)
            if description is not None:
                found[topic] = TopicDescription(str(description.topic_id), len(description.partitions))
        return found

    def fetch_cleanup_policy(self, topic: str) -> str | None:
        """Return the clean-up policy of a topic; None if it is deleted or the user may not see it
        (`check` reports that).
        """
        asked = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._admin.describe_configs([asked], request_timeout=REQUEST_S).values()
        try:
            return str(future.result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].name() in _NOT_SHOWN:
                return None
            raise TransientError(f"{topic}: Kafka does not show its settings: {error}") from error

    def fetch_bounds(self, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return topic → (first offset, next offset to be written); missing topics are left out.

        Raises TransientError, also for a topic whose new leader does not know its end yet.
        """
        try:
            found = self._fetch_bounds_once(topics)
        except _StaleClientError:
            found = {}
        there = list(self.describe_topics(topics)) if len(found) < len(topics) else []
        if all(topic in found for topic in there):
            return found
        self._admin = open_admin(self._settings)
        return self._fetch_bounds_once(there)

    def _fetch_bounds_once(self, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        low = self._fetch_offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._fetch_offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {topic: (low[topic], high[topic]) for topic in topics if topic in low and topic in high}

    def _fetch_offsets(self, topics: Sequence[str], spec: Any) -> dict[str, int]:
        if not topics:
            return {}
        asked = {TopicPartition(topic, 0): spec for topic in topics}
        futures = self._admin.list_offsets(asked, request_timeout=REQUEST_S)
        results = {part.topic: _get_result(future, part.topic) for part, future in futures.items()}
        found = {topic: result.offset for topic, result in results.items() if result is not None}
        if unknown := [topic for topic, offset in found.items() if offset < 0]:
            raise TransientError(f"{unknown[0]}: Kafka does not know the bounds of the topic at the moment")
        return found


def _get_result(future: Any, topic: str) -> Any:
    """Return a future's result; None if the topic is deleted."""
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"):
            return None
        kind = _StaleClientError if error.args[0].name() in _STALE else TransientError
        raise kind(f"{topic}: Kafka: {error}") from error
