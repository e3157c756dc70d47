"""What capture keeps for each captured table while it runs, and for each topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from producer.codec import SourceContext, TableCodec, TableMap, TopicTail
from schemas.position import DEFINITION_ROW, Position
from schemas.records import Anchor, source_topic, table_topic
from schemas.table import Table

TableName = tuple[str, str]
_TABLES = 1 << 20  # more than a source has


def dotted(name: TableName) -> str:
    """Return "db.table", as records and configuration write it."""
    return f"{name[0]}.{name[1]}"


@dataclass(slots=True)
class TopicState:
    """`tail.last` is what the next event gets as `prev`; `ceiling`: highest position that the topic ever had."""

    name: str
    tail: TopicTail
    ceiling: Position | None = None
    shared: bool = False
    _defining: tuple[int, int, int] | None = None
    _defined: int = 0

    def definition_row(self, at: tuple[int, int, int]) -> int:
        """Return the row of a first definition at `at` (epoch, file, pos): in a topic of many tables each has its own."""
        if at != self._defining:
            self._defining, self._defined = at, 0
        self._defined += 1
        return DEFINITION_ROW + self._defined - (_TABLES if self.shared else 1)

    def note(self) -> None:
        """Raise the ceiling to `tail.last`."""
        last = self.tail.last
        if last is not None and (self.ceiling is None or last > self.ceiling):
            self.ceiling = last

    def raise_ceiling(self) -> None:
        """Note `tail.last`, and make `prev` the highest position again after an event that stood lower."""
        self.note()
        self.tail.last = self.ceiling


@dataclass(slots=True)
class TableState:
    """A captured table: its definition in force, and where that and the last chunk marker stand in the topic."""

    name: TableName
    topic: TopicState
    table: Table
    defined_at: Position
    ignored: str | None = None  # why its rows are not captured just now
    definition_offset: int | None = None
    marker_offset: int | None = None
    ahead: dict[Position, Table] = field(
        default_factory=dict
    )  # definitions the topic already has behind the resume position
    codecs: dict[bytes, TableCodec] = field(default_factory=dict)

    def define(self, table: Table, position: Position) -> None:
        """Put `table` in force from `position` on."""
        self.table = table
        self.defined_at = position
        self.codecs.clear()

    def codec(self, table_map: TableMap, source: SourceContext) -> TableCodec:
        """Return the codec for the layout of `table_map`. Raises DefinitionMismatch."""
        found = self.codecs.get(table_map.layout)
        if found is None:
            found = self.codecs[table_map.layout] = TableCodec(self.table, table_map, source, self.topic.tail)
        return found

    def anchor(self, end: int) -> Anchor:
        return Anchor(
            definition=self.definition_offset, marker=self.marker_offset, end=end, highest=self.topic.ceiling
        )


@dataclass(slots=True)
class Captured:
    """All captured tables of a source and their topics."""

    prefix: str
    source: str
    one_topic: bool
    tables: dict[TableName, TableState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)

    def topic_of(self, name: TableName) -> str:
        return (
            source_topic(self.prefix, self.source)
            if self.one_topic
            else table_topic(self.prefix, self.source, *name)
        )

    def topic(self, name: TableName) -> TopicState:
        """Return the topic of a table, made known if it is not."""
        topic = self.topic_of(name)
        return self.topics.setdefault(topic, TopicState(topic, TopicTail(), shared=self.one_topic))

    def anchors(self, ends: dict[str, int]) -> dict[str, Anchor]:
        """Return the anchors of all tables, given the acknowledged end of each topic."""
        for topic in self.topics.values():
            topic.note()
        return {
            dotted(name): state.anchor(ends[state.topic.name])
            for name, state in self.tables.items()
            if state.definition_offset is not None and state.topic.name in ends
        }

    def in_schema(self, db: str) -> list[TableName]:
        return [name for name in self.tables if name[0] == db]
