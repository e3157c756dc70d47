"""A Kafka cluster as a target of whole batches: every commit is one transaction of records and of the progress that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import structlog
from msgspec.structs import replace

from consumer.errors import TargetConfigError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable, TargetTopic
from consumer.targets.batches import (
    BatchCommitted,
    BatchFenced,
    Clearing,
    Defined,
    ProgressChange,
    RowsChange,
)
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.kafka.clients import BATCH
from consumer.targets.kafka.compacted.topic_contents import TopicContents
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.progress import FENCES, OVERHEAD, KafkaProgress, size_of, taken_back
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.records import TableRecords, topic_of
from consumer.targets.kafka.state import (
    Known,
    Written,
    closed_entries,
    closed_pair,
    committed,
    counted,
    guards,
)
from consumer.targets.kafka.topics import TopicFacts
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from schemas.findings import START_OVER
from schemas.table.model import Key, Table

log = structlog.get_logger(__name__)


class _NotOursError(Exception):
    """Somebody else's commit is there. `known`: the unit as it is."""

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self.known = known


class WithoutDefinitions:
    """The part of a target of events that is about definitions: a topic has none, and nothing but its key is unique there."""

    def read_table(self, schema: str, name: str) -> Table | None:
        return None

    def facts(self, schema: str, name: str) -> TableFacts:
        return TableFacts()

    def create_table(self, table: Table) -> None:
        """Do nothing: `open_topic` makes topics."""

    def displaced(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        return {}


class KafkaTarget(WithoutDefinitions, KafkaProgress):
    """See consumer.targets.batches.BatchTarget. `paused` is called before a commit."""

    transactional_ddl = True

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._tables: dict[TargetTopic, tuple[TableRecords, TopicFacts]] = {}
        self._history: TopicFacts | None = None
        self._states: dict[TargetTopic, TopicContents] = {}
        self.paused: Callable[[], None] = lambda: None

    # --- commits

    def apply(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        records = list(self._records(changes, progress))
        written = _one_way(unit, [self._of(each.table)[0].written for each in changes])
        batch = min((self._of(each.table)[1].limit - OVERHEAD for each in changes), default=BATCH)
        number: int | None = None
        for _ in range(FENCES):
            try:
                writer = self._current(unit, progress, max(1, min(BATCH, batch)))
                if number is not None and writer.known.commits == number:
                    break  # it happened, and its answer alone was lost
                after = counted(writer.known, committed(writer.known, progress, written))
                _check_known(unit, writer.known, written)
                closed = self._closed(unit, writer.known, after, progress.why)
                self.paused()
                number = after.commits
                self._commit(unit, writer, after, [*records, *closed])
            except _NotOursError as found:
                if number is not None and found.known.lanes == tuple(progress.rows):
                    return BatchCommitted()  # it was complete when the id was taken
                return BatchFenced(str(found.known.lanes))
            except WriterFencedError:
                taken_back(self._config, unit)
            else:
                break
        else:
            raise TransientError(
                f"{unit.topic} of pipeline {unit.pipeline}: other producers take its transactional id again and again"
            )
        if not any(isinstance(each, NetChange) for each in changes):
            self._forget()
        return BatchCommitted()

    def _current(self, unit: ApplyUnit, progress: ProgressChange, batch: int) -> UnitWriter:
        """Return the unit's writer where the guards hold by what it last read or wrote. Raises _NotOursError: they do not, and it has just
        read that."""
        had = self._writers.get(unit)
        if had is not None and had.batch <= batch and guards(had.known.lanes) == guards(progress.guards):
            return had
        self._discard(unit)

        def judged(known: Known) -> Known:
            if guards(known.lanes) != guards(progress.guards):
                raise _NotOursError(known)
            return Known(known.record, known.held)

        writer = self._opened(unit, judged, progress.guards[0].epoch, batch)
        if writer is None:
            raise TransientError(f"{unit.topic}: no producer")
        try:
            judged(writer.known)
        except _NotOursError:
            self._discard(unit)
            raise
        return writer

    def _records(self, changes: Sequence[RowsChange], progress: ProgressChange) -> Iterator[Outgoing]:
        row = progress.rows[0]
        place = Place(row.position, row.gen, row.commit_ts_ms)
        for change in changes:
            table = self._of(change.table)[0]
            match change:
                case Clearing():
                    yield from table.cleared(change.where, place, partial(self._state, change.table))
                case Defined():
                    yield from table.defined(place)
                case _:
                    yield from table.of(change, place, partial(self._state, change.table))

    def _closed(self, unit: ApplyUnit, before: Known, after: Known, why: str) -> Iterator[Outgoing]:
        """Yield the records of what leaves the quarantine, for its history: a topic that nothing reads, and that a cluster forgets as it likes.

        One that is too large for it goes there without its event, for it keeps nothing from going on.
        """
        entries = closed_entries(unit, before, after, why, self._now_ms())
        if not entries:
            return
        if self._history is None:
            name = f"{self._config.prefix}.rowlock_quarantine_closed"
            self._history = self._topics.facts(name) or self._topics.made(name, 1, {})
        for entry in entries:
            record = Outgoing(self._history.name, 0, *closed_pair(entry))
            if size_of(record) > self._history.limit:
                record = Outgoing(self._history.name, 0, *closed_pair(replace(entry, event="")))
            yield record

    # --- topics

    def open_topic(self, table: TargetTable, *, create: bool) -> None:
        """See consumer.targets.base.EventTables."""
        topic = topic_of(table)
        facts = self._topics.facts(topic.name)
        if facts is None:
            self._records_in(table, None, create=create)  # what cannot be written needs no topic
            facts = self._topics.made(topic.name, topic.options.partitions or 1, {})
        self._tables[topic] = self._records_in(table, facts, create=create), facts

    def judge_topic(self, table: TargetTable, *, create: bool) -> None:
        self._records_in(table, self._topics.facts(topic_of(table).name), create=create)

    def surroundings(self, schema: str, name: str) -> object:
        return self._topics.facts(f"{schema}.{name}")

    def _records_in(self, table: TargetTable, facts: TopicFacts | None, *, create: bool) -> TableRecords:
        """Return what writes a table to its topic as that is, or as it would be made. Raises TargetConfigError."""
        topic = topic_of(table)
        if facts is None and not create:
            raise TargetConfigError(
                f"the target has no topic {topic.name}: make it, or set `create_tables: true`"
            )
        return TableRecords(table, facts or _wanted(topic), self._config.mask_salt.get_secret_value())

    def _of(self, table: TargetTable) -> tuple[TableRecords, TopicFacts]:
        topic = topic_of(table)
        if topic not in self._tables:
            self.open_topic(table, create=False)
        return self._tables[topic]

    # --- what topics hold

    def _state(self, table: TargetTable) -> TopicContents:
        """Return what the topic of a table holds, followed from now on until a commit needs it no more."""
        topic = topic_of(table)
        if topic in self._states and self._states[topic].broken:
            self._states.pop(topic).close()
        if topic not in self._states:
            records, facts = self._of(table)
            reader = CommittedReader(self._config, self._topics, facts.name, facts.partitions)
            self._states[topic] = TopicContents(reader, records.format, records.identity, records.apart)
        return self._states[topic]

    def _forget(self) -> None:
        while self._states:
            self._states.popitem()[1].close()

    def keys(
        self, unit: ApplyUnit, table: TargetTable, where: dict[str, str] | None
    ) -> Iterable[Sequence[Key]]:
        return self._state(table).keys(table.table.key.columns, where or {})

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return keys as they are, and as the topic shows them: what of a routing key is masked is hashed there."""
        records, names = self._of(table)[0], table.table.key.columns
        shown = (records.shown_key(names, key) for key in keys)
        return [*keys, *(other for key, other in zip(keys, shown, strict=True) if other != key)]

    def close(self) -> None:
        self._forget()
        super().close()


def _wanted(topic: TargetTopic) -> TopicFacts:
    return TopicFacts(topic.name, topic.options.partitions or 1, 1 << 30, compacted=False)


def _one_way(unit: ApplyUnit, ways: Sequence[Written]) -> Written | None:
    """Return the way in which the records of a commit are written. Raises UnitStoppedError: a definition among them changes it."""
    for was, now in pairwise(ways):
        _check_written(unit, was, now)
    return ways[-1] if ways else None


def _check_known(unit: ApplyUnit, known: Known, wanted: Written | None) -> None:
    was = None if known.record is None else known.record.written
    if was is not None and wanted is not None:
        _check_written(unit, was, wanted)
        if reshaped := was.reshaped(wanted):
            log.warning(
                "rows of the topic are as its route was before: those that enter are missing, those that leave and what is to be hidden are still there",
                pipeline=unit.pipeline, topic=unit.topic, written=wanted.topic, changed=reshaped,
                do="rowlock copy of the table writes all its rows, and deletes those that the filter leaves out",
            )  # fmt: skip


def _check_written(unit: ApplyUnit, was: Written, wanted: Written) -> None:
    """Raise UnitStoppedError where records would be written in another way than those that are there."""
    if not (changes := was.changes(wanted)):
        return
    raise UnitStoppedError(
        f"{unit.topic}: records in the topic {was.topic} are there already, and rows would stand under two keys: {'; '.join(changes)}. If that "
        f"comes from the configuration, set the route back, or `mask_salt`; if it is wanted, or the source's definition has changed, {START_OVER} with another topic"
    )
