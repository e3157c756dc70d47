"""From changes of one table to records with their places: shaped as its route says, in its format, by its partitioner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from consumer.errors import TargetConfigError
from consumer.ordering.model import EveryChange, NetChange, Reduced, RowChange, TargetTable, TargetTopic
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.model import Format, Origin, Place, Record, RoutedTable
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.progress import check_size
from consumer.targets.kafka.shaping import Shaping
from consumer.targets.kafka.state import Written
from consumer.targets.kafka.topics import TopicFacts
from consumer.targets.kafka.writer import Outgoing
from schemas.table.model import Key, Row

StateRow = dict[str, object]
"""Column → wire value of a row, as the topic has it."""


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
        self.written = Written(
            topic.name, options.format, tuple(self._key), facts.partitions, options.partitioner
        )
        self._facts, self._origin = facts, (origin.source, origin.db, origin.table)
        self._names, self._primary = shaped.column_names, shaped.key.columns
        self._key_at = table.indexes_of(table.key.columns)
        self._partition = PARTITIONERS[options.partitioner]
        self._filtered = bool(options.where)

    # --- records

    def of(self, changes: Reduced, place: Place, rows: Iterable[StateRow]) -> Iterator[Outgoing]:
        """Yield the records of a gather. `place`: of what has none itself; `rows`: those of the topic, read where keys alone are known."""
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

    def _net(self, net: NetChange, place: Place, rows: Iterable[StateRow]) -> Iterator[Outgoing]:
        """Yield what makes the rows of the topic those of `net`. What it has under other routing keys, or what the filter leaves out by now, goes."""
        wanted: dict[Key, Row | None] = dict.fromkeys(net.deletes)
        wanted |= {tuple(whole[i] for i in self._key_at): whole for whole in net.rows}
        if not wanted:
            return
        there: dict[Key, list[Row]] = {}
        for row in rows:
            if (key := self.primary(row)) in wanted:
                there.setdefault(key, []).append(self._row(row))
        for key, whole in wanted.items():
            shaped = None if whole is None else self._shaping.row(whole)
            had = there.get(key, [])
            for other in had[:-1]:
                yield from self._placed(self.format.change(other, None, place))
            old = had[-1] if had else None
            if old is not None or shaped is not None:
                yield from self._placed(self.format.change(old, shaped, place))

    def cleared(
        self, where: dict[str, str] | None, place: Place, rows: Iterable[StateRow]
    ) -> Iterator[Outgoing]:
        """Yield the records by which the rows of this origin are gone: one that says so, or a delete of each."""
        records = [] if self._facts.compacted else self.format.cleared(where, place)
        if records:
            yield from self._placed(records)
            return
        for row in rows:
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

    def primary(self, row: StateRow) -> Key:
        """Return the primary key of a row that the topic has."""
        key: Key = tuple(row[name] for name in self._primary)  # type: ignore[misc]
        return key

    def _row(self, row: StateRow) -> Row:
        values: Row = tuple(row.get(name) for name in self._names)  # type: ignore[misc]
        return values

    def fold(
        self,
        messages: Iterable[tuple[int, bytes | None, bytes | None]],
        where: dict[str, str] | None,
    ) -> dict[tuple[int, bytes | None], StateRow]:
        """Return (partition, key) → the row there, of the rows of this origin that have the values of `where`.

        `messages`: (partition, key, value), those of a partition in their order.
        """
        rows: dict[tuple[int, bytes | None], tuple[StateRow, tuple[str, str, str] | None]] = {}
        for partition, key, value in messages:
            state = self.format.state(key, value)
            if state is None:
                continue
            if state.cleared:
                rows = {
                    at: row
                    for at, row in rows.items()
                    if at[0] != partition or not _alike(row[1], state.origin)
                }
            elif state.values is None:
                rows.pop((partition, key), None)
            else:
                rows[partition, key] = (state.values, state.origin)
        wanted = (where or {}).items()
        return {
            at: row
            for at, (row, origin) in rows.items()
            if _alike(origin, self._origin) and all(row.get(name) == value for name, value in wanted)
        }


def _alike(one: tuple[str, str, str] | None, other: tuple[str, str, str] | None) -> bool:
    """Tell whether two origins are the same one, as far as both are known."""
    return one is None or other is None or one == other


def topic_of(target: TargetTable) -> TargetTopic:
    """Return the topic that a table of events is written to."""
    if target.topic is None:
        raise ValueError(f"{target.schema}.{target.name} is written to no topic")
    return target.topic
