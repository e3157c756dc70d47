"""The topics of a source's tables, from the choice of a name to a topic that is there (docs/adr/0034)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from producer.errors import TableStoppedError, TransientSourceError
from producer.ports import TopicMaker, TopicRanges
from producer.resume.topic_recovery import TopicTails, peek
from producer.tables import Captured, TableName, TopicState
from schemas.findings import seen_and_remedy

_TRIES = 4
"""How many names are tried for one table: each is refused only if another process makes a topic of such a name at the same moment."""


def _nothing() -> None: ...


@dataclass(slots=True)
class TableTopics:
    """Assigns names, has them stored, and makes the topics.

    `save` stores the names, acknowledged, before a topic is made; at a start nothing, because the claim stores them before the first event.
    """

    captured: Captured
    maker: TopicMaker
    reader: TopicRanges | None
    save: Callable[[], None] = _nothing

    def look(self) -> dict[str, TopicTails]:
        """See which topics there are. Returns those that no table has and that hold events of the source, with their last event."""
        names = self.captured.names
        names.see(self.maker.partitions())
        tails = {} if self.reader is None else peek(self.reader, names.unassigned(), self.captured.source)
        names.owners = owners_of(tails)
        return {topic: found for topic, found in tails.items() if found.tables}

    def peek(self, topics: Collection[str]) -> dict[str, TopicTails]:
        """Return those of `topics` that hold events of the source, with their last event."""
        tails = {} if self.reader is None else peek(self.reader, topics, self.captured.source)
        return {topic: found for topic, found in tails.items() if found.tables}

    def make(self, tables: Collection[TableName]) -> tuple[set[str], dict[TableName, str]]:
        """Make the topics of `tables` where they are missing. Returns those that were made, and why tables can have none ("…seen…: remedy")."""
        created, refused, left = set[str](), dict[TableName, str](), list(tables)
        for _ in range(_TRIES if left else 0):
            topics = {self.captured.topic_of(name): name for name in left}
            self.save()
            opened = self.maker.open(topics)
            created |= opened.created
            refused |= {topics[topic]: why for topic, why in opened.refused.items()}
            self.captured.usable.update(topic for topic in topics if topic not in opened.refused)
            self.captured.names.note_created(opened.created)
            left = [topics[topic] for topic in sorted(opened.taken)]
            if not left:
                break
            for topic in opened.taken:
                self.captured.names.refuse(topic)
            self.look()
        usable = self.captured.usable
        return created, {
            name: why for name, why in refused.items() if self.captured.topic_of(name) not in usable
        }

    def open(self, name: TableName) -> TopicState:
        """Return the topic of a table: it is there, its name is stored, and all that it holds is known.

        Raises TableStoppedError, and TransientSourceError where a start has to read what the topic holds.
        """
        if self.captured.names.assigned.get(name) not in self.captured.usable:
            self.look()
            created, refused = self.make([name])
            if name in refused:
                raise topic_stop([name], refused[name])
            if (topic := self.captured.topic(name)).name not in created:
                self._require_known(name, topic)
        return self.captured.topic(name)

    def _require_known(self, name: TableName, topic: TopicState) -> None:
        """Raise where an existing topic holds more than the start of this process has read."""
        if self.reader is None or self.reader.bounds(topic.name)[1] <= topic.end:
            return
        self.captured.usable.discard(topic.name)
        if topic.name in self.peek([topic.name]):
            raise TransientSourceError(
                f"an earlier capture process of source {self.captured.source} has written to {topic.name} since this one started: "
                "capture starts again with what it wrote"
            )
        raise topic_stop(
            [name],
            f"topic {topic.name} holds records of something else: delete it if nobody needs it, and restart capture",
        )


def owners_of(tails: Mapping[str, TopicTails]) -> dict[str, TableName | None]:
    """Return `TopicNames.owners`, given the last event of each topic."""
    return {
        topic: next(iter(found.tables), None)
        for topic, found in tails.items()
        if found.tables or found.is_empty
    }


def topic_stop(tables: Iterable[TableName], why: str) -> TableStoppedError:
    """Return the stop of tables whose topic is not as it has to be ("…seen…: remedy")."""
    return TableStoppedError(frozenset(tables), "topic", *seen_and_remedy(why))
