"""The topics that a pipeline applies, and whether they are still the ones the target's progress speaks of.

The selection is pure; `Cluster` is the thin shell around Kafka's admin client. Topic names alone decide here (the
table's true name comes with its definition event); topics of no route are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from consumer.errors import TransientError
from consumer.tables.router import TableRoute, resolve
from schemas.findings import START_OVER
from schemas.io.kafka_clients import client_settings, open_admin
from schemas.io.mysql_catalog import is_selected
from schemas.table.names import table_text
from schemas.wire.records import position_topic, source_topic, unescape, watermark_topic

REQUEST_S = 15.0
#: What a client answers by its own memory, and not by asking a broker: see _StaleClientError.
_STALE = ("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_NOENT")


def select_topics(
    names: Iterable[str],
    *,
    prefix: str,
    sources: Sequence[str],
    routes: Sequence[TableRoute],
    tables: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """Return topic → source of what the pipeline applies of the topics `names`: tables of its sources that a route takes.

    `tables`: source → patterns of its tables, of sources that rowlock does not capture: there may be topics of others.
    """
    existing = sorted(names)
    units: dict[str, str] = {}
    for source in sources:
        own = {watermark_topic(prefix, source), position_topic(prefix, source), source_topic(prefix, source)}
        head = source_topic(prefix, source) + "."
        for topic in existing:
            if topic in own or not topic.startswith(head):
                continue
            db, dot, table = topic[len(head) :].partition(".")
            if not dot:
                continue
            foreign = (tables or {}).get(source)
            # only rowlock escapes names, and it makes no topic of a table that is not one of the source's
            place = (unescape(db), unescape(table)) if foreign is None else (db, table)
            unwanted = foreign is not None and not is_selected(foreign, *place)
            if not unwanted and resolve(routes, source, *place) is not None:
                units[topic] = source
    return units


def table_of(prefix: str, source: str, topic: str) -> str:
    """Return "db.table" of a topic, for people. What Debezium has replaced in a name stays replaced."""
    db, _, table = topic.removeprefix(source_topic(prefix, source) + ".").partition(".")
    return table_text(unescape(db), unescape(table))


class Described(NamedTuple):
    """A topic as Kafka describes it."""

    id: str
    partitions: int


def partitions_refusal(topic: str, partitions: int, *, debezium: bool) -> str | None:
    """Return why a topic cannot be applied that has several partitions; None: it has one, or Kafka does not say yet."""
    if partitions <= 1:
        return None
    remedy = (
        "delete it, set topic.creation.default.partitions=1 in Debezium's connector, and let it snapshot the table again"
        if debezium
        else START_OVER
    )
    return f"{topic} has {partitions} partitions, its events have lost their order: {remedy}"


class _StaleClientError(TransientError):
    """The client believes in a leader that is replaced, or that a topic has none, however often it is asked: librdkafka
    keeps the leader's epoch of a topic that was just made, and that a topic was unknown once (_NOENT, "No leaders found",
    when it knows none of the request's). A new client does not."""


class Cluster:
    """Kafka's metadata. Every method raises TransientError when the brokers do not answer."""

    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        self._settings = client_settings(bootstrap, options, {})
        self._admin = open_admin(self._settings)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        try:
            return list(self._admin.list_topics(timeout=REQUEST_S).topics)
        except KafkaException as error:
            raise TransientError(f"Kafka does not list its topics: {error}") from error

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return topic → id; a topic that is deleted and made again has another one. Missing topics are left out."""
        return {topic: found.id for topic, found in self.described(topics).items()}

    def described(self, topics: Sequence[str]) -> dict[str, Described]:
        """Return id and partitions of each topic; missing ones are left out."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_S)
        found: dict[str, Described] = {}
        for topic, future in futures.items():
            description = _result(future, topic)
            if description is not None:
                found[topic] = Described(str(description.topic_id), len(description.partitions))
        return found

    def bounds(self, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return topic → (first offset, next offset to be written); missing topics are left out."""
        try:
            found = self._bounds(topics)
        except _StaleClientError:
            found = {}
        there = list(self.described(topics)) if len(found) < len(topics) else []
        if all(topic in found for topic in there):
            return found
        self._admin = open_admin(self._settings)
        return self._bounds(there)

    def _bounds(self, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
        low = self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {topic: (low[topic], high[topic]) for topic in topics if topic in low and topic in high}

    def _offsets(self, topics: Sequence[str], spec: Any) -> dict[str, int]:
        if not topics:
            return {}
        asked = {TopicPartition(topic, 0): spec for topic in topics}
        futures = self._admin.list_offsets(asked, request_timeout=REQUEST_S)
        results = {part.topic: _result(future, part.topic) for part, future in futures.items()}
        return {topic: result.offset for topic, result in results.items() if result is not None}


def _result(future: Any, topic: str) -> Any:
    """Return a future's result; None when the topic is gone."""
    try:
        return future.result(timeout=REQUEST_S)
    except KafkaException as error:
        if error.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"):
            return None
        kind = _StaleClientError if error.args[0].name() in _STALE else TransientError
        raise kind(f"{topic}: Kafka: {error}") from error
