"""Names of tables' topics: assigned once, stored in the position record, and never parsed
(docs/adr/0034). Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from schemas.table.names import TableName, find_meant_tables, format_table_text
from schemas.wire.records import (
    StoredPosition,
    escape_former_part,
    format_former_table_topic,
    format_source_topic,
)

TOPIC_LENGTH = 249
"""The most characters that Kafka accepts in a topic's name."""
OWN_TOPICS = frozenset({"watermark", "position", "copy", "control", "audit"})
"""The last parts of the names of rowlock's own topics."""

_DIGEST = 8  # bytes of the hash in a suffix
_LOOKS_ESCAPED = re.compile(r"_(?=x(?:[0-9a-f]{2})+(?:_|[^A-Za-z0-9_-]))")


def normalize_topic(topic: str) -> str:
    """Return the form by which Kafka compares names of topics when it creates one: `.` and `_` are equal."""
    return topic.replace(".", "_")


def yield_topic_candidates(prefix: str, source: str, table: TableName) -> Iterator[str]:
    """Yield the names that the topic of `table` may have, in the order in which they are tried; Kafka
    may refuse the first.
    """
    head = format_source_topic(prefix, source)
    parts = ["_x5f_".join(map(escape_former_part, _LOOKS_ESCAPED.split(name))) for name in table]
    if parts[1] not in OWN_TOPICS and len(usual := ".".join((head, *parts))) <= TOPIC_LENGTH:
        yield usual
    for number in count():
        suffix = f"-{_compute_digest(source, *table, *([str(number)] if number else []))}"
        room = TOPIC_LENGTH - len(head) - len(suffix) - 2
        last = parts[1][: max(room - len(parts[0]), room // 2)]
        yield f"{head}.{parts[0][: room - len(last)]}.{last}{suffix}"


def _compute_digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST).hexdigest()


def is_former(source: str, table: TableName, topic: str) -> bool:
    """Return whether `topic` is the name that versions without the map compute for `table`."""
    return topic.endswith(f".{source}.{escape_former_part(table[0])}.{escape_former_part(table[1])}")


@dataclass(slots=True)
class TopicNames:
    """The names of the topics of one source's tables.

    `update_existing` must be called with the topics of the cluster before names are chosen.
    """

    prefix: str
    source: str
    assigned: dict[TableName, str] = field(default_factory=dict)
    """Every assigned name. The tables and the normalised names are distinct."""
    owners: dict[str, TableName | None] = field(default_factory=dict)
    """Existing topics without a table → the table of the source that their events belong to; None: they
    are empty.

    An existing topic that is missing here contains something else.
    """
    _existing: frozenset[str] = frozenset()
    _refused: set[str] = field(default_factory=set)
    """Normalised names that Kafka has refused to create, even if `update_existing` did not list them:
    the user may not see every topic.
    """
    _holders: dict[str, TableName] = field(default_factory=dict)
    """Assigned topic → its table."""
    _taken: dict[str, set[str]] = field(default_factory=dict)
    """Normalised name → topics that have it, existing or assigned."""

    def update_existing(self, existing: Collection[str]) -> None:
        """Set the topics that the cluster has now."""
        self._existing = frozenset(existing)
        self._holders = {topic: table for table, topic in self.assigned.items()}
        self._taken = {}
        for topic in (*existing, *self._holders):
            self._taken.setdefault(normalize_topic(topic), set()).add(topic)

    def is_existing(self, topic: str) -> bool:
        return topic in self._existing

    def keep_existing(self) -> None:
        """Release the names of topics that do not exist."""
        self.assigned = {table: topic for table, topic in self.assigned.items() if topic in self._existing}
        self.update_existing(self._existing)

    def note_created(self, topics: Collection[str]) -> None:
        """Record that `topics`, which have assigned names, exist now."""
        self._existing |= frozenset(topics)

    def has_topic(self, table: TableName) -> bool:
        """Return whether a table has a name and a topic of this name exists."""
        return self.assigned.get(table) in self._existing

    def list_unassigned(self) -> list[str]:
        """Return the existing topics without a table that have the form of a table's topic of this
        source.

        Their events show which table they belong to.
        """
        head = format_source_topic(self.prefix, self.source) + "."
        return sorted(
            topic
            for topic in self._existing.difference(self._holders)
            if topic.startswith(head) and topic.count(".", len(head)) == 1
        )

    def assign_name(self, table: TableName) -> str:
        """Return the name of the topic of `table`.

        It is assigned if the table has none, or one that Kafka would refuse.
        """
        topic = self.assigned.get(table)
        if topic is None or not (topic in self._existing or self._is_free(topic, table)):
            self.release_name(table)
            topic = self._choose_name(table)
            self.assigned[table], self._holders[topic] = topic, table
            self._taken.setdefault(normalize_topic(topic), set()).add(topic)
        return topic

    def mark_refused(self, topic: str) -> None:
        """Record that Kafka does not create `topic`, because it considers it equal to an existing name."""
        self._refused.add(normalize_topic(topic))

    def release_name(self, table: TableName) -> None:
        """Release the name of a table, if it has one."""
        topic = self.assigned.pop(table, None)
        if topic is not None:
            del self._holders[topic]
            if topic not in self._existing:
                self._taken[normalize_topic(topic)].discard(topic)

    def _choose_name(self, table: TableName) -> str:
        own = [topic for topic, owner in self.owners.items() if owner == table and topic not in self._holders]
        if own:
            return min(own)
        names = yield_topic_candidates(self.prefix, self.source, table)
        return next(topic for topic in names if self._is_free(topic, table))

    def _is_free(self, topic: str, table: TableName) -> bool:
        """Return whether no other table or topic has this name, or one that Kafka considers equal."""
        if self._holders.get(topic, table) != table or self._taken.get(normalize_topic(topic), set()) - {
            topic
        }:
            return False
        if topic not in self._existing:
            return normalize_topic(topic) not in self._refused
        return self.owners.get(topic, _SOMETHING_ELSE) in (None, table)


_SOMETHING_ELSE = ("", "")


def parse_stored_names(
    record: StoredPosition, prefix: str
) -> tuple[dict[TableName, str], dict[str, list[TableName]]]:
    """Return the names in a record, and each topic that several tables share (only of an older version)
    with these tables.

    A record without names was written by a version that computed them for the tables that it knows.
    """
    if record.topics is not None:
        return {find_meant_tables(text)[0]: topic for text, topic in record.topics.items()}, {}
    known = {name for text in _list_known_topics(record) for name in find_meant_tables(text)}
    by_topic: dict[str, list[TableName]] = {}
    for name in sorted(known):
        by_topic.setdefault(format_former_table_topic(prefix, record.source, *name), []).append(name)
    names = {tables[0]: topic for topic, tables in by_topic.items() if len(tables) == 1}
    return names, {topic: tables for topic, tables in by_topic.items() if len(tables) > 1}


def _list_known_topics(record: StoredPosition) -> Iterable[str]:
    copied = (
        format_table_text(each.db, each.table) for each in record.copies.values() if each.offset is not None
    )
    return {*record.anchors, *record.stops, *record.snapshot_done, *copied}


def as_stored(assigned: Mapping[TableName, str]) -> dict[str, str]:
    """Return names in the form of `StoredPosition.topics`."""
    return {format_table_text(*table): topic for table, topic in sorted(assigned.items())}
