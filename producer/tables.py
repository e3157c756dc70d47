"""The state of capture for each captured table, and for each topic, while it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from producer.decoders.row_codec import SourceContext, TableCodec, TableMap, TopicTail
from producer.stops import StoppedTable
from schemas.table.model import Table
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyMark
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Anchor, TableStop
from schemas.wire.topic_names import TopicNames

TableName = tuple[str, str]


def format_table_name(name: TableName) -> str:
    """Return "db.table", as records and messages write it (`format_table_text`)."""
    return format_table_text(*name)


@dataclass(slots=True)
class TopicState:
    """The state of a topic.

    `tail.last`: the `prev` of the next event. `ceiling`: the highest position that the topic ever had.
    `end`: the offset after what the start has read of it. `settled`: see Anchor.
    """

    name: str
    tail: TopicTail
    ceiling: Position | None = None
    end: int = 0
    settled: tuple[int, int] = (-1, 0)
    _defining: tuple[int, int, int] | None = None
    _defined: int = 0

    def restore_settled(self, settled: tuple[int, int]) -> None:
        """Continue with what a position record knows of the topic."""
        self.settled = settled

    def settle(self, end: int, gen: int) -> None:
        """Note that everything up to offset `end` is before the position of the next record, of `gen`."""
        self.settled = max(self.settled, (end, gen))

    def compute_definition_row(self, at: tuple[int, int, int]) -> int:
        """Return the row of a first definition at `at` (epoch, file, pos); each call at the same place
        returns another one.
        """
        if at != self._defining:
            self._defining, self._defined = at, 0
        self._defined += 1
        return DEFINITION_ROW + self._defined - 1

    def continue_after(self, highest: Position | None, end: int) -> None:
        """Let the next event follow `highest`, the last position in the topic.

        `end`: the offset up to which the start has recovered tables; later events are only in `highest`.
        """
        self.tail.last, self.end = highest, end
        self.raise_ceiling()

    def raise_ceiling_to_tail(self) -> None:
        """Raise the ceiling to `tail.last`."""
        last = self.tail.last
        if last is not None and (self.ceiling is None or last > self.ceiling):
            self.ceiling = last

    def raise_ceiling(self) -> None:
        """Raise the ceiling to `tail.last`, and set `tail.last` to the ceiling, which is higher after an
        event with a lower position.
        """
        self.raise_ceiling_to_tail()
        self.tail.last = self.ceiling


class BegunCopy(NamedTuple):
    """The last copy that began in a table's topic, with the place of its event.

    `ended`: the cause of the stop that it ended, "": none.
    """

    mark: CopyMark
    position: Position
    offset: int
    ended: str = ""


@dataclass(slots=True)
class TableState:
    """A captured table: its active definition, and the places in the topic of that, the last copy and
    the last chunk marker.
    """

    name: TableName
    topic: TopicState
    table: Table
    defined_at: Position
    ignored: str | None = None  # why its rows are not captured now
    definition_offset: int | None = None
    marker_offset: int | None = None
    begun: BegunCopy | None = None
    ahead: dict[Position, Table] = field(
        default_factory=dict
    )  # definitions that the topic already has after the resume position
    codecs: dict[bytes, TableCodec] = field(default_factory=dict)

    @property
    def reads_keys(self) -> bool:
        """True if the last copy that began is a key sweep."""
        return self.begun is not None and self.begun.mark.keys

    def set_definition(self, table: Table, position: Position) -> None:
        """Make `table` the active definition from `position` on."""
        self.table = table
        self.defined_at = position
        self.codecs.clear()

    def record_definition(self, position: Position, offset: int, copy: CopyMark | None) -> None:
        """Record that the topic has a definition, and with it the begin of `copy`."""
        self.definition_offset = offset
        if copy is not None:
            self.begun = BegunCopy(copy, position, offset)

    def record_marker(self, offset: int) -> None:
        """Record that the topic has a chunk marker."""
        self.marker_offset = offset

    def begin_copy(self, table: Table, begun: BegunCopy) -> None:
        """Make `table` the active definition, with which a copy has begun in the topic."""
        self.set_definition(table, begun.position)
        self.definition_offset, self.marker_offset, self.begun = begun.offset, None, begun

    def restore_tail(
        self, definitions: dict[Position, Table], marker_offset: int | None, begun: BegunCopy | None
    ) -> None:
        """Take over what an earlier process has written to the topic."""
        self.ahead = {at: table for at, table in definitions.items() if at > self.defined_at}
        self.marker_offset, self.begun = marker_offset, begun

    def ignore_rows(self, reason: str) -> None:
        """Capture no rows of the table from now on."""
        self.ignored = reason

    def capture_rows(self) -> None:
        """Capture the rows of the table again."""
        self.ignored = None

    def get_codec(self, table_map: TableMap, source: SourceContext) -> TableCodec:
        """Return the codec for the layout of `table_map`. Raises DefinitionMismatch."""
        found = self.codecs.get(table_map.layout)
        if found is None:
            found = self.codecs[table_map.layout] = TableCodec(self.table, table_map, source, self.topic.tail)
        return found

    def build_anchor(self, end: int, stop: int | None, topic_id: str) -> Anchor:
        return Anchor(
            definition=self.definition_offset, marker=self.marker_offset, end=end, highest=self.topic.ceiling,
            stop=stop, begin=self.begun.offset if self.begun is not None else None, topic_id=topic_id,
            settled=self.topic.settled,
        )  # fmt: skip


@dataclass(slots=True)
class CapturedTables:
    """All captured tables of a source and their topics.

    `stopped`: tables without further events. `unsaid`: those of them with topics that do not have the
    stop yet. `known`: tables that a topic or the position record contains; others were never captured.
    `usable`: topics that exist and have the settings of a table's topic, as far as this process has
    checked. `names`: the topic of each table. `topic_ids`: of the topics when this process first saw
    them.
    """

    prefix: str
    source: str
    tables: dict[TableName, TableState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    stopped: dict[TableName, StoppedTable] = field(default_factory=dict)
    unsaid: set[TableName] = field(default_factory=set)
    known: set[TableName] = field(default_factory=set)
    usable: set[str] = field(default_factory=set)
    topic_ids: dict[str, str] = field(default_factory=dict)
    names: TopicNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = TopicNames(self.prefix, self.source)

    def assign_topic_name(self, name: TableName) -> str:
        """Return the name of a table's topic.

        A new name must be stored before anything is sent there (TableTopics.open_topic).
        """
        return self.names.assign_name(name)

    def get_topic(self, name: TableName) -> TopicState:
        """Return the topic of a table, and add it if it is new."""
        return self.get_named_topic(self.assign_topic_name(name))

    def get_named_topic(self, topic: str) -> TopicState:
        """Return a topic by its name, and add it if it is new."""
        return self.topics.setdefault(topic, TopicState(topic, TopicTail()))

    def build_anchors(
        self,
        ends: dict[str, int],
        here: tuple[int, int, int],
        gen: int = 0,
        covered: Collection[TableName] = (),
    ) -> dict[str, Anchor]:
        """Return the anchors of all tables, given the acknowledged end of each topic.

        `here`, `gen`: the position (era, file, pos) and the gen of their record. `covered`: tables with rows
        in their topics that the log has yet to bring (docs/adr/0047).

        Everything encoded must have been sent. The anchors describe this moment, and are valid once what
        was sent until now is acknowledged. Later events may never arrive: a highest position that the
        topic does not have would be a gap to its readers. And a definition after `end` would not show a
        start that the events between were written by a superseded process, because they are read before
        it.
        """
        found = {}
        for topic in self.topics.values():
            topic.raise_ceiling_to_tail()
        for name in {*self.tables, *self.stopped}:
            state, stopped, topic = self.tables.get(name), self.stopped.get(name), self.get_topic(name)
            stop = stopped.offset if stopped else None
            if topic.name not in ends or (
                stop is None and (state is None or state.definition_offset is None)
            ):
                continue
            end, highest = ends[topic.name], topic.ceiling
            if name not in covered and (highest is None or highest < (*here, 0)):
                topic.settle(end, gen)
            topic_id = self.topic_ids.get(topic.name, "")
            found[format_table_name(name)] = (
                state.build_anchor(end, stop, topic_id)
                if state
                else Anchor(end=end, highest=highest, stop=stop, topic_id=topic_id, settled=topic.settled)
            )
        return found

    def list_stops(self) -> dict[str, TableStop]:
        """Return every stop, in the form of the position record."""
        return {format_table_name(name): stopped.stop for name, stopped in sorted(self.stopped.items())}

    def stop_table(self, name: TableName, stopped: StoppedTable) -> None:
        """Publish no more rows of the table."""
        self.stopped[name] = stopped
        if stopped.position is None:
            self.unsaid.add(name)
        if (state := self.tables.get(name)) is not None:
            state.ignore_rows(stopped.stop.reason)

    def go_on(self, name: TableName) -> None:
        """Publish the table again: a copy of it has begun in its topic."""
        self.stopped.pop(name, None)
        self.unsaid.discard(name)
        if (state := self.tables.get(name)) is not None:
            state.capture_rows()

    def list_tables_in_schema(self, db: str) -> list[TableName]:
        return [name for name in self.tables if name[0] == db]
