"""From changes of one table to records with their places: shaped as its route says, in its format, by its partitioner. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from consumer.errors import TargetConfigError
from consumer.ordering.model import EveryChange, NetChange, Reduced, RowChange, TargetTable, TargetTopic
from consumer.targets.kafka.compacted.topic_contents import StateRow, TopicContents
from consumer.targets.kafka.compacted.topic_rows import RowIdentity
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.key_forms import key_forms
from consumer.targets.kafka.formats.model import Format, Origin, Place, Record, RoutedTable
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.progress import check_size
from consumer.targets.kafka.shaping import Shaping, shape_of
from consumer.targets.kafka.state import Written
from consumer.targets.kafka.topics import TopicFacts
from consumer.targets.kafka.writer import Outgoing
from schemas.table.model import Key, Row

Rows = Callable[[], TopicContents]
"""Opens what the topic holds of the table: it is read where keys alone are known."""


class TableRecords:
    """The records of one table that is written as events. `written`: what must not change while its topic holds rows."""

    def __init__(self, target: TargetTable, facts: TopicFacts, salt: str = "") -> None:
        """Raises TargetConfigError: the route cannot shape the table, its format cannot carry it, or the topic is not as it says."""
        topic = topic_of(target)
        options, table = topic.options, topic.whole
        masked = sorted({name for name, _ in options.masks}.intersection(table.key.columns))
        if masked:
            raise TargetConfigError(
                f"topic {topic.name}: {', '.join(masked)} is of the primary key, by which rows are told apart: take it out of the route's `masks`"
            )
        if options.partitions not in (None, facts.partitions):
            raise TargetConfigError(
                f"topic {topic.name} has {facts.partitions} partitions, and its route says {options.partitions}: keys would change their partitions: "
                f"write partitions: {facts.partitions}, or another topic"
            )
        self._shaping = Shaping(table, options, salt)
        shaped = self._shaping.table
        self._key = options.key or table.key.columns
        origin = Origin(topic.source, topic.connector, topic.db, topic.table)
        primary = shaped.indexes_of(shaped.key.columns)
        routed = RoutedTable(
            shaped, shaped.indexes_of(self._key), primary, topic.name, origin, options.tombstones
        )
        self.format: Format = FORMATS[options.format](routed)
        hidden = {name: table.column(name) for name, _ in options.masks}
        self.written = Written(
            topic.name,
            options.format,
            tuple(self._key),
            facts.partitions,
            options.partitioner,
            key_forms(options.format, shaped, self._key, hidden, salt),
            topic.added,
            shape_of(options, salt),
        )
        self._facts, self._origin = facts, (origin.source, origin.db, origin.table)
        self._names, self._primary = shaped.column_names, shaped.key.columns
        self._key_at = table.indexes_of(table.key.columns)
        self._partition = PARTITIONERS[options.partitioner]

    # --- records

    def of(self, changes: Reduced, place: Place, rows: Rows) -> Iterator[Outgoing]:
        """Yield the records of a gather. `place`: of what has none itself."""
        if isinstance(changes, EveryChange):
            for change in changes.changes:
                yield from self._change(change)
            return
        yield from self._net(changes, place, rows)

    def _change(self, change: RowChange) -> Iterator[Outgoing]:
        place = Place(change.position, change.gen, change.ts_ms, change.snapshot)
        images = self._shaping.change(change.before, change.after)
        if images is None and change.snapshot and change.after is not None:
            # it was read in a place that the filter leaves out: what the topic may have of it is of before
            images = self._shaping.shown(change.after), None
        if images is not None:
            yield from self._placed(self.format.change(*images, place))

    def _net(self, net: NetChange, place: Place, rows: Rows) -> Iterator[Outgoing]:
        """Yield what makes the rows of the topic those of `net`. What it has under other routing keys, or what the filter leaves out by now, goes."""
        written = {tuple(whole[i] for i in self._key_at): whole for whole in net.rows}
        if gone := [key for key in net.deletes if key not in written]:
            for row in rows().rows(gone):
                yield from self._placed(self.format.change(self._row(row), None, place))
        there: dict[Key, list[Row]] = {}
        for row in rows().rows(list(written)) if written else ():
            key: Key = tuple(row[name] for name in self._primary)  # type: ignore[misc]
            there.setdefault(key, []).append(self._row(row))
        for key, whole in written.items():
            shaped, had = self._shaping.row(whole), there.get(key, [])
            for other in had[:-1]:
                yield from self._placed(self.format.change(other, None, place))
            old = had[-1] if had else None
            if old is not None or shaped is not None:
                yield from self._placed(self.format.change(old, shaped, place))

    def cleared(self, where: dict[str, str] | None, place: Place, rows: Rows) -> Iterator[Outgoing]:
        """Yield the records by which the rows of this origin are gone: one that says so, or a delete of each."""
        records = [] if self._facts.compacted else self.format.cleared(where, place)
        if records:
            yield from self._placed(records)
            return
        for row in rows().all(where or {}):
            yield from self._placed(self.format.change(self._row(row), None, place))

    def defined(self, place: Place) -> Iterator[Outgoing]:
        """Yield the records of a definition event; none where the topic takes no record without a key."""
        if not self._facts.compacted:
            yield from self._placed(self.format.defined(self._shaping.table, place))

    def _placed(self, records: Iterable[Record]) -> Iterator[Outgoing]:
        count = self._facts.partitions
        for record in records:
            if count == 1 or record.key is None:
                at: Iterable[int] = range(count)
            else:
                at = (self._partition(record.key, count),)
            for partition in at:
                outgoing = Outgoing(self._facts.name, partition, record.key, record.value, record.headers)
                check_size(outgoing, self._facts)
                yield outgoing

    # --- what a topic holds

    @property
    def apart(self) -> tuple[str, ...]:
        """Return the columns by which rows are told apart: the primary key's, and what else the routing key has."""
        return (*self._primary, *(name for name in self._key if name not in self._primary))

    @property
    def identity(self) -> RowIdentity:
        many = not set(self._primary) <= set(self._key)
        return RowIdentity(self._origin, (), self._primary, many, self.written.format != "plain")

    def shown_key(self, names: Sequence[str], key: Key) -> Key:
        """Return the values of `names` of a row as the topic shows them: a masked column of the routing key is hashed there."""
        return tuple(self._shaping.shown_value(name, value) for name, value in zip(names, key, strict=True))

    def _row(self, row: StateRow) -> Row:
        values: Row = tuple(row.get(name) for name in self._names)  # type: ignore[misc]
        return values


def topic_of(target: TargetTable) -> TargetTopic:
    """Return the topic that a table of events is written to."""
    if target.topic is None:
        raise ValueError(f"{target.schema}.{target.name} is written to no topic")
    return target.topic
