"""The topics of a source's tables, from the choice of a name to an existing topic (docs/adr/0034)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from producer.errors import TableStoppedError, TransientSourceError
from producer.kafka.topics import SourceTopics
from producer.ports import TopicRanges
from producer.start.topic_recovery import TopicFindings, peek_last_events
from producer.tables import CapturedTables, TableName, TopicState
from schemas.problems import Problem

_TRIES = 4
"""Attempts to name one table's topic. A name is refused only if another process creates a topic of such
a name at the same moment.
"""


def _skip_check() -> None: ...


@dataclass(slots=True)
class TableTopics:
    """Assigns and stores names, and creates the topics.

    `save`: stores the names, acknowledged, before a topic is created. At a start it does nothing,
    because the claim stores them before the first event.
    """

    captured: CapturedTables
    maker: SourceTopics
    reader: TopicRanges | None
    save: Callable[[], None] = _skip_check

    def find_unowned_topics(self) -> dict[str, TopicFindings]:
        """Read which topics exist.

        Return those that no table has and that hold events of the source, with their last event.
        """
        names = self.captured.names
        names.update_existing(self.maker.count_partitions())
        tails = (
            {}
            if self.reader is None
            else peek_last_events(self.reader, names.list_unassigned(), self.captured.source)
        )
        names.owners = find_topic_owners(tails)
        return {topic: found for topic, found in tails.items() if found.tables}

    def peek_topics(self, topics: Collection[str]) -> dict[str, TopicFindings]:
        """Return those of `topics` that hold events of the source, with their last event."""
        tails = {} if self.reader is None else peek_last_events(self.reader, topics, self.captured.source)
        return {topic: found for topic, found in tails.items() if found.tables}

    def make_topics(self, tables: Collection[TableName]) -> tuple[set[str], dict[TableName, Problem]]:
        """Create the missing topics of `tables`.

        Return the created ones, and why tables can have none.
        """
        created, refused, left = set[str](), dict[TableName, Problem](), list(tables)
        for _ in range(_TRIES if left else 0):
            topics = {self.captured.assign_topic_name(name): name for name in left}
            self.save()
            opened = self.maker.open_topics(topics)
            created |= opened.created
            refused |= {topics[topic]: why for topic, why in opened.refused.items()}
            self.captured.usable.update(topic for topic in topics if topic not in opened.refused)
            self.captured.names.note_created(opened.created)
            left = [topics[topic] for topic in sorted(opened.taken)]
            if not left:
                break
            for topic in opened.taken:
                self.captured.names.mark_refused(topic)
            self.find_unowned_topics()
        usable = self.captured.usable
        return created, {
            name: why for name, why in refused.items() if self.captured.assign_topic_name(name) not in usable
        }

    def open_topic(self, name: TableName) -> TopicState:
        """Return a table's topic, which exists, has a stored name, and has no unknown content.

        Raises TableStoppedError, and TransientSourceError if a start has to read the topic's content.
        """
        if self.captured.names.assigned.get(name) not in self.captured.usable:
            self.find_unowned_topics()
            created, refused = self.make_topics([name])
            if name in refused:
                raise build_topic_stop([name], refused[name])
            if (topic := self.captured.get_topic(name)).name not in created:
                self._require_known(name, topic)
        return self.captured.get_topic(name)

    def _require_known(self, name: TableName, topic: TopicState) -> None:
        """Raise if an existing topic holds more than the start of this process has read."""
        if self.reader is None or self.reader.get_bounds(topic.name)[1] <= topic.end:
            return
        self.captured.usable.discard(topic.name)
        if topic.name in self.peek_topics([topic.name]):
            raise TransientSourceError(
                f"an earlier capture process of source {self.captured.source} still runs (it has written to "
                f"{topic.name} since this one started): capture restarts, and continues after these events"
            )
        raise build_topic_stop(
            [name],
            Problem(
                f"topic {topic.name} holds records that capture did not write",
                "delete the topic if it is not needed, and restart capture",
            ),
        )


def find_topic_owners(tails: Mapping[str, TopicFindings]) -> dict[str, TableName | None]:
    """Return `TopicNames.owners`, given the last event of each topic."""
    return {
        topic: next(iter(found.tables), None)
        for topic, found in tails.items()
        if found.tables or found.is_empty
    }


def build_topic_stop(tables: Iterable[TableName], problem: Problem) -> TableStoppedError:
    """Return the stop of tables with an unsuitable topic."""
    return TableStoppedError(frozenset(tables), "topic", problem.what, problem.action)
