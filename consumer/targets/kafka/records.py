"""From changes of one table to records with their places: shaped as its route says, in its format, by its partitioner. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from consumer.errors import TargetConfigError
from consumer.ordering.model import EveryChange, NetChange, Reduced, RowChange, TargetTable, TargetTopic
from consumer.targets.kafka.compacted.topic_contents import StateRow, TopicContents
from consumer.targets.kafka.compacted.topic_rows import RowIdentity, encode_identity
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.key_forms import key_forms, value_forms
from consumer.targets.kafka.formats.model import Format, Origin, Place, Record, RoutedTable
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.shaping import Shaping, shape_of
from consumer.targets.kafka.store.progress_topic import check_size, size_of
from consumer.targets.kafka.store.state import ClosedEntry, Written, closed_pair
from consumer.targets.kafka.topics import GONE_S, TargetTopics, TopicFacts, TopicSeen
from consumer.targets.kafka.writer import Outgoing
from schemas.table.fills import fill_of
from schemas.table.model import Key, Row

CLEARED, CLEARED_BYTES = 5_000, 4 << 20
"""Rows, and bytes of their records, that are deleted in one transaction where a table is emptied row by row: it must end in its time."""
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
            shaped, shaped.indexes_of(self._key), primary, topic.name, origin, options.tombstones, topic.added
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
            facts.id,
            value_forms(options.format, shaped, dict(options.masks), salt),
            shape_of(options, salt),
        )
        self._facts, self._origin = facts, (origin.source, origin.db, origin.table)
        fills = [fill_of(column) for column in table.columns]
        given = self._shaping.shown(tuple(None if each is None else each.value for each in fills))
        self._given = list(zip(shaped.column_names, given, strict=True))
        self._primary = shaped.key.columns
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
        if images is not None:  # of a row outside the filter nothing is told: its key may be others', too
            yield from self._placed(self.format.change(*images, place))

    def _net(self, net: NetChange, place: Place, rows: Rows) -> Iterator[Outgoing]:
        """Yield what makes the rows of the topic those of `net`. What it has under other routing keys, or what the filter leaves out by now, goes."""
        keys: list[Key] = [tuple(whole[i] for i in self._key_at) for whole in net.rows]
        written = dict(zip(map(_identity, keys), net.rows, strict=True))
        if gone := [key for key in net.deletes if _identity(key) not in written]:
            for row in rows().rows(gone):
                yield from self._placed(self.format.change(self._row(row), None, place))
        there: dict[bytes, list[Row]] = {}
        for row in rows().rows(keys) if keys else ():
            there.setdefault(_identity([row[name] for name in self._primary]), []).append(self._row(row))
        for identity, whole in written.items():
            shaped, had = self._shaping.row(whole), there.get(identity, [])
            for other in had[:-1]:
                yield from self._placed(self.format.change(other, None, place))
            old = had[-1] if had else None
            if old is not None or shaped is not None:
                yield from self._placed(self.format.change(old, shaped, place))

    def cleared(self, where: dict[str, str] | None, place: Place, rows: Rows) -> Iterator[Sequence[Outgoing]]:
        """Yield the records by which the rows of this origin are gone: one that says so, or a delete of each, as many at a time as a transaction
        takes, the last of them maybe none. What a page deletes is not there for who begins again."""
        if records := [] if self._facts.compacted else self.format.cleared(where, place):
            yield list(self._placed(records))
            return
        page, count, size = list[Outgoing](), 0, 0
        for row in rows().all(where or {}):
            gone = list(self._placed(self.format.change(self._row(row), None, place)))
            page += gone
            count, size = count + 1, size + sum(map(size_of, gone))
            if count >= CLEARED or size >= CLEARED_BYTES:
                yield page
                page, count, size = [], 0, 0
        yield page

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
        """Return a row as it is to be deleted: a column that its record is older than has what the source gave it then."""
        values: Row = tuple(row.get(name, given) for name, given in self._given)  # type: ignore[misc]
        return values


def _identity(key: Sequence[object]) -> bytes:
    """Return what two keys share that are one in a topic: there -0.0 and 0.0 are two, as their bytes are."""
    return encode_identity(list(key))


class ClosedHistory:
    """The topic of what has left the quarantine: nothing reads it, and a cluster forgets of it as it likes."""

    def __init__(self, topics: TargetTopics, prefix: str) -> None:
        self._topics, self._name = topics, f"{prefix}.rowlock_quarantine_closed"
        self._facts: TopicFacts | None = None

    def records(self, entries: Iterable[ClosedEntry]) -> Iterator[Outgoing]:
        """Yield the records of entries. One that is too large goes there without its event, for it keeps nothing from going on."""
        for entry in entries:
            if self._facts is None:
                self._facts = self._topics.facts(self._name) or self._topics.made(self._name, 1, {})
            record = Outgoing(self._name, 0, *closed_pair(entry))
            if size_of(record) > self._facts.limit:
                record = Outgoing(self._name, 0, *closed_pair(replace(entry, event="")))
            yield record


class OpenedTopics:
    """The topics that tables are written to, as they were when they were opened."""

    def __init__(self, topics: TargetTopics, salt: str) -> None:
        self._topics, self._salt = topics, salt
        self._tables: dict[TargetTopic, tuple[TableRecords, TopicFacts]] = {}

    def open(self, table: TargetTable, *, create: bool, gone: bool = False) -> None:
        """See consumer.targets.base.EventTables.open_topic."""
        topic = topic_of(table)
        facts = self._topics.facts(topic.name)
        if facts is None and not gone:
            self._records(table, None, create=create)  # what cannot be written needs no topic
            facts = self._topics.made(topic.name, topic.options.partitions or 1, {})
        if facts is not None:
            self._tables[topic] = self._records(table, facts, create=create), facts

    def judge(self, table: TargetTable, *, create: bool) -> Written:
        """Return how a table would be written to its topic. Raises TargetConfigError: it cannot be."""
        return self._records(table, self._topics.facts(topic_of(table).name), create=create).written

    def of(self, table: TargetTable) -> tuple[TableRecords, TopicFacts]:
        topic = topic_of(table)
        if topic not in self._tables:
            self.open(table, create=False)
        return self._tables[topic]

    def seen(self, table: TargetTable) -> TopicSeen | None:
        """Return which topic there is now. One that is not as it was when it was opened is opened anew when it is needed."""
        topic = topic_of(table)
        seen = self._topics.seen(topic.name, GONE_S)
        if topic in self._tables:
            facts = self._tables[topic][1]
            if seen is None or (facts.id, facts.partitions) != (seen.id, seen.partitions):
                del self._tables[topic]
        return seen

    def _records(self, table: TargetTable, facts: TopicFacts | None, *, create: bool) -> TableRecords:
        """Return what writes a table to its topic as that is, or as it would be made. Raises TargetConfigError."""
        topic = topic_of(table)
        if facts is None and not create:
            raise TargetConfigError(
                f"the target has no topic {topic.name}: make it, or set `create_tables: true`"
            )
        wanted = TopicFacts(topic.name, topic.options.partitions or 1, 1 << 30, compacted=False)
        return TableRecords(table, facts or wanted, self._salt)


def topic_of(target: TargetTable) -> TargetTopic:
    """Return the topic that a table of events is written to."""
    if target.topic is None:
        raise ValueError(f"{target.schema}.{target.name} is written to no topic")
    return target.topic
