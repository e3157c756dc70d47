"""The conversion of one table's changes to records with their partitions, by its route, format and
partitioner. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from consumer.errors import TargetConfigError
from consumer.ordering.model import (
    EveryChange,
    NetChange,
    ReducedChanges,
    RowChange,
    TargetTable,
    TargetTopic,
)
from consumer.targets.kafka.compacted.topic_contents import StateRow, TopicContents
from consumer.targets.kafka.compacted.topic_rows import RowIdentity, encode_identity
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.key_forms import build_key_forms, build_value_forms
from consumer.targets.kafka.formats.model import FormattedRecord, Origin, Place, RecordFormat, RoutedTable
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.shaping import RowShaper, digest_shape_options
from consumer.targets.kafka.store.progress_topic import check_size, measure_record
from consumer.targets.kafka.store.state import ClosedEntry, RecordScheme, encode_closed_entry
from consumer.targets.kafka.topics import DELETED_AFTER_S, TargetTopics, TopicFacts, TopicIdentity
from consumer.targets.kafka.writer import Outgoing
from schemas.table.fills import find_fill
from schemas.table.model import Key, Row

CLEARED, CLEARED_BYTES = 5_000, 4 << 20
"""Rows, and bytes of their records, that one transaction deletes while a table is emptied row by row,
so that it ends within its time limit.
"""
OpenContents = Callable[[], TopicContents]
"""Opens the topic's contents of the table, which are read where only keys are known."""


class TableRecords:
    """Converts the changes of one table to records.

    `written`: what must not change while its topic contains rows.
    """

    def __init__(self, target: TargetTable, facts: TopicFacts, salt: str = "") -> None:
        """Raise TargetConfigError if the route cannot shape the table, its format cannot carry it, or
        the topic does not match the route.
        """
        topic = get_target_topic(target)
        options, table = topic.options, topic.whole
        masked = sorted({name for name, _ in options.masks}.intersection(table.key.columns))
        if masked:
            raise TargetConfigError(
                f"topic {topic.name}: {', '.join(masked)} belongs to the primary "
                "key, which identifies the rows",
                "take it out of the route's `masks`",
            )
        if options.partitions not in (None, facts.partitions):
            raise TargetConfigError(
                f"topic {topic.name} has {facts.partitions} partitions, but its route sets "
                f"{options.partitions}: keys would move to other partitions",
                f"set `partitions: {facts.partitions}`, or route to another topic",
            )
        self._shaping = RowShaper(table, options, salt)
        shaped = self._shaping.table
        self._key = options.key or table.key.columns
        origin = Origin(topic.source, topic.connector, topic.db, topic.table)
        primary = shaped.find_ordinals(shaped.key.columns)
        routed = RoutedTable(
            shaped,
            shaped.find_ordinals(self._key),
            primary,
            topic.name,
            origin,
            options.tombstones,
            topic.added,
        )
        self.format: RecordFormat = FORMATS[options.format](routed)
        hidden = {name: table.get_column(name) for name, _ in options.masks}
        self.written = RecordScheme(
            topic.name,
            options.format,
            tuple(self._key),
            facts.partitions,
            options.partitioner,
            build_key_forms(options.format, shaped, self._key, hidden, salt),
            topic.added,
            facts.id,
            build_value_forms(options.format, shaped, dict(options.masks), salt),
            digest_shape_options(options, salt),
        )
        self._facts, self._origin = facts, (origin.source, origin.db, origin.table)
        fills = [find_fill(column) for column in table.columns]
        given = self._shaping.mask_row(tuple(None if each is None else each.value for each in fills))
        self._given = list(zip(shaped.column_names, given, strict=True))
        self._primary = shaped.key.columns
        self._key_at = table.find_ordinals(table.key.columns)
        self._partition = PARTITIONERS[options.partitioner]

    # --- records

    def yield_records(self, changes: ReducedChanges, place: Place, rows: OpenContents) -> Iterator[Outgoing]:
        """Yield the records of a batch. `place`: for changes that have no place of their own."""
        if isinstance(changes, EveryChange):
            for change in changes.changes:
                yield from self._yield_change_records(change)
            return
        yield from self._yield_net_records(changes, place, rows)

    def _yield_change_records(self, change: RowChange) -> Iterator[Outgoing]:
        place = Place(change.position, change.gen, change.ts_ms, change.snapshot)
        images = self._shaping.reshape_change(change.before, change.after)
        # a row outside the filter gets no record: its key may belong to other rows, too
        if images is not None:
            yield from self._yield_placed_records(self.format.build_change_records(*images, place))

    def _yield_net_records(self, net: NetChange, place: Place, rows: OpenContents) -> Iterator[Outgoing]:
        """Yield the records that make the topic's rows those of `net`.

        Rows under other routing keys, and rows that the filter excludes by now, are deleted.
        """
        keys: list[Key] = [tuple(whole[i] for i in self._key_at) for whole in net.rows]
        written = dict(zip(map(_encode_identity, keys), net.rows, strict=True))
        if deleted := [key for key in net.deletes if _encode_identity(key) not in written]:
            for row in rows().yield_rows(deleted):
                yield from self._yield_placed_records(
                    self.format.build_change_records(self._restore_deleted_row(row), None, place)
                )
        there: dict[bytes, list[Row]] = {}
        for row in rows().yield_rows(keys) if keys else ():
            there.setdefault(_encode_identity([row[name] for name in self._primary]), []).append(
                self._restore_deleted_row(row)
            )
        for identity, whole in written.items():
            shaped, had = self._shaping.reshape_row(whole), there.get(identity, [])
            for other in had[:-1]:
                yield from self._yield_placed_records(self.format.build_change_records(other, None, place))
            old = had[-1] if had else None
            if old is not None or shaped is not None:
                yield from self._yield_placed_records(self.format.build_change_records(old, shaped, place))

    def yield_clear_records(
        self, where: dict[str, str] | None, place: Place, rows: OpenContents
    ) -> Iterator[Sequence[Outgoing]]:
        """Yield the records that delete the rows of this origin: one clear record, or a delete of each
        row.

        Pages of deletes are as large as a transaction allows; the last one may be empty. After a
        restart, the deletes that were committed do not come again.
        """
        if records := [] if self._facts.compacted else self.format.build_clear_records(where, place):
            yield list(self._yield_placed_records(records))
            return
        page, count, size = list[Outgoing](), 0, 0
        for row in rows().yield_all_rows(where or {}):
            deleted = list(
                self._yield_placed_records(
                    self.format.build_change_records(self._restore_deleted_row(row), None, place)
                )
            )
            page += deleted
            count, size = count + 1, size + sum(map(measure_record, deleted))
            if count >= CLEARED or size >= CLEARED_BYTES:
                yield page
                page, count, size = [], 0, 0
        yield page

    def yield_definition_records(self, place: Place) -> Iterator[Outgoing]:
        """Yield the records of a definition event; none if the topic accepts no record without a key."""
        if not self._facts.compacted:
            yield from self._yield_placed_records(
                self.format.build_definition_records(self._shaping.table, place)
            )

    def _yield_placed_records(self, records: Iterable[FormattedRecord]) -> Iterator[Outgoing]:
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
        """Return the columns by which rows are distinguished: those of the primary key, then the others
        of the routing key.
        """
        return (*self._primary, *(name for name in self._key if name not in self._primary))

    @property
    def identity(self) -> RowIdentity:
        many = not set(self._primary) <= set(self._key)
        return RowIdentity(self._origin, (), self._primary, many, self.written.format != "plain")

    def build_shown_key(self, names: Sequence[str], key: Key) -> Key:
        """Return the values of `names` of a row as the topic shows them: masked columns of the routing
        key are hashed there.
        """
        return tuple(self._shaping.mask_value(name, value) for name, value in zip(names, key, strict=True))

    def _restore_deleted_row(self, row: StateRow) -> Row:
        """Return a row to delete.

        A column that its record is too old to contain has the value that the source gave it then.
        """
        values: Row = tuple(row.get(name, given) for name, given in self._given)  # type: ignore[misc]
        return values


def _encode_identity(key: Sequence[object]) -> bytes:
    """Return an encoding that is equal for two keys exactly if a topic treats them as one: -0.0 and 0.0
    differ there.
    """
    return encode_identity(list(key))


class ClosedHistory:
    """The topic of closed quarantine entries. Nothing reads it, and the cluster's retention may delete it."""

    def __init__(self, topics: TargetTopics, prefix: str) -> None:
        self._topics, self._name = topics, f"{prefix}.rowlock_quarantine_closed"
        self._facts: TopicFacts | None = None

    def yield_records(self, entries: Iterable[ClosedEntry]) -> Iterator[Outgoing]:
        """Yield the records of entries.

        An entry that is too large is written without its event, so that it does not stop the unit.
        """
        for entry in entries:
            if self._facts is None:
                self._facts = self._topics.read_topic_facts(self._name) or self._topics.ensure_topic(
                    self._name, 1, {}
                )
            record = Outgoing(self._name, 0, *encode_closed_entry(entry))
            if measure_record(record) > self._facts.limit:
                record = Outgoing(self._name, 0, *encode_closed_entry(replace(entry, event="")))
            yield record


class OpenedTopics:
    """The topics that tables are written to, with their properties at the time they were opened."""

    def __init__(self, topics: TargetTopics, salt: str) -> None:
        self._topics, self._salt = topics, salt
        self._tables: dict[TargetTopic, tuple[TableRecords, TopicFacts]] = {}

    def open_topic(self, table: TargetTable, *, create: bool, existed: bool = False) -> None:
        """See consumer.targets.base.EventTables.open_topic."""
        topic = get_target_topic(table)
        facts = self._topics.read_topic_facts(topic.name)
        if facts is None and not existed:
            # raises before a topic is created for a table that cannot be written
            self._build_table_records(table, None, create=create)
            facts = self._topics.ensure_topic(topic.name, topic.options.partitions or 1, {})
        if facts is not None:
            self._tables[topic] = self._build_table_records(table, facts, create=create), facts

    def judge_table(self, table: TargetTable, *, create: bool) -> RecordScheme:
        """Return how a table would be written to its topic.

        Raises TargetConfigError if that is impossible.
        """
        return self._build_table_records(
            table, self._topics.read_topic_facts(get_target_topic(table).name), create=create
        ).written

    def get_opened_topic(self, table: TargetTable) -> tuple[TableRecords, TopicFacts]:
        topic = get_target_topic(table)
        if topic not in self._tables:
            self.open_topic(table, create=False)
        return self._tables[topic]

    def read_topic_identity(self, table: TargetTable) -> TopicIdentity | None:
        """Return the identity of the present topic.

        If the topic is not the one that was opened, it is opened again when it is needed.
        """
        topic = get_target_topic(table)
        seen = self._topics.find_topic_identity(topic.name, DELETED_AFTER_S)
        if topic in self._tables:
            facts = self._tables[topic][1]
            if seen is None or (facts.id, facts.partitions) != (seen.id, seen.partitions):
                del self._tables[topic]
        return seen

    def _build_table_records(
        self, table: TargetTable, facts: TopicFacts | None, *, create: bool
    ) -> TableRecords:
        """Return the converter for a table's topic as it is, or as it would be created.

        Raises TargetConfigError.
        """
        topic = get_target_topic(table)
        if facts is None and not create:
            raise TargetConfigError(
                f"the target has no topic {topic.name}", "create it, or set `create_tables: true`"
            )
        planned = TopicFacts(topic.name, topic.options.partitions or 1, 1 << 30, compacted=False)
        return TableRecords(table, facts or planned, self._salt)


def get_target_topic(target: TargetTable) -> TargetTopic:
    """Return the topic that a table is written to as events."""
    if target.topic is None:
        raise ValueError(f"no route sends {target.schema}.{target.name} to a topic")
    return target.topic
