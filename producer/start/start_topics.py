"""Topics of tables at a start: names that are stored or found, topics that are created, and tables
without a usable one (docs/adr/0034).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import structlog

from producer.errors import TableStoppedError
from producer.start.table_topics import TableTopics
from producer.start.topic_recovery import TopicFindings
from producer.stops import StopCause
from producer.tables import TableName, format_table_name
from schemas.clock import read_clock_ms
from schemas.findings import format_copy_remedy
from schemas.table.names import find_meant_tables
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import StoredPosition
from schemas.wire.topic_names import parse_stored_names

_log = structlog.get_logger("capture")


class StartTopics:
    """The topics of a source's tables at a start. Creating it chooses all names and creates all topics.

    `selected`: the tables to capture. `record`: the newest one, with the stops that follow from its
    topics.
    """

    def __init__(self, topics: TableTopics, record: StoredPosition | None, selected: list[TableName]) -> None:
        self._captured = topics.captured
        self.record = record
        abandoned: Collection[str] = ()
        stored, shared = ({}, {}) if record is None else parse_stored_names(record, self._captured.prefix)
        names = self._captured.names
        names.assigned = stored
        self._strays = topics.find_unowned_topics()
        if record is not None and record.topics is None:
            names.keep_existing()
            shared = {topic: tables for topic, tables in shared.items() if names.is_existing(topic)}
            abandoned = shared.keys()
            names.owners = {topic: owner for topic, owner in names.owners.items() if topic not in abandoned}
            self.record = _stop_topic_sharers(record, shared)
        self._strays |= topics.peek_topics(self._list_unknown_topics(selected))
        # A topic belongs from now on to the table of its events, unless that table has another topic.
        self._strays = {
            topic: found
            for topic, found in self._strays.items()
            if topic not in abandoned and all(names.assign_name(name) == topic for name in found.tables)
        }
        self.created, self.unusable = topics.make_topics(selected)
        """The created topics, and the selected tables with topics that must not be written, with the
        reason.
        """
        self.names = [name for name in selected if names.has_topic(name)]
        """The selected tables that have a topic."""

    def _list_unknown_topics(self, selected: list[TableName]) -> list[str]:
        """Return the topics of tables that are neither selected nor elsewhere in the record: a process
        assigned them just before it ended.
        """
        names, record = self._captured.names, self.record
        known = {*selected} if record is None else {*selected, *_collect_tables(record)}
        return [
            topic
            for table, topic in names.assigned.items()
            if table not in known and names.is_existing(topic)
        ]

    def add_forgotten_tables(
        self, known: list[TableName], found: dict[str, TopicFindings]
    ) -> list[TableName]:
        """Add to `found` the topics that hold events of unknown tables, and return those tables."""
        left = {
            topic: each
            for topic, each in self._strays.items()
            if topic not in found and not set(each.tables).issubset(known)
        }
        found.update(left)
        return sorted(name for each in left.values() for name in each.tables)


def _collect_tables(record: StoredPosition) -> set[TableName]:
    return {name for text in (*record.anchors, *record.stops) for name in find_meant_tables(text)}


def _stop_topic_sharers(record: StoredPosition, shared: dict[str, list[TableName]]) -> StoredPosition:
    """Return the record with a stop of each table that shared its topic with another one.

    Each of them has a topic of its own from now on, which the record does not contain.
    """
    stops, stopped = dict(record.stops), set[str]()
    cause = StopCause(
        record.epoch, record.file, parse_binlog_file_number(record.file), record.pos, read_clock_ms()
    )
    for topic, tables in shared.items():
        both = " and ".join(map(format_table_name, tables))
        for name in tables:
            error = TableStoppedError(
                frozenset([name]), "topic",
                f"{both} were captured into one topic, {topic}, by an earlier version, and their rows cannot "
                "be distinguished there; each table now has its own topic", format_copy_remedy(*name),
            )  # fmt: skip
            stops[format_table_name(name)] = cause.build_table_stop(name, error)
            stopped.add(format_table_name(name))
            _log.error(
                "table stopped",
                source=record.source,
                table=format_table_name(name),
                cause="topic",
                reason=error.reason,
            )
    return msgspec.structs.replace(
        record,
        stops=stops,
        anchors={text: anchor for text, anchor in record.anchors.items() if text not in stopped},
        snapshot_done=tuple(text for text in record.snapshot_done if text not in stopped),
    )
