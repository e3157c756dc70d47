"""A Kafka cluster as a target of whole batches: every commit is one transaction of records and of the progress that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import structlog

from consumer.errors import CommitUnknownError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.batches import (
    BatchCommitted,
    BatchFenced,
    Clearing,
    Defined,
    ProgressChange,
    RowsChange,
)
from consumer.targets.kafka.clients import BATCH
from consumer.targets.kafka.compacted.topic_contents import FollowedTopics, TopicContents
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.records import ClosedHistory, topic_of
from consumer.targets.kafka.routed_topics import RoutedTopics, WithoutDefinitions
from consumer.targets.kafka.store.progress import FENCES, taken_back
from consumer.targets.kafka.store.progress_topic import OVERHEAD
from consumer.targets.kafka.store.state import (
    Known,
    Written,
    closed_entries,
    committed,
    counted,
    guards,
)
from consumer.targets.kafka.ways import accepted, aged, dated, misplaced, one_way
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from schemas.table.model import Key
from schemas.table.names import EXACT

log = structlog.get_logger(__name__)


class _NotOursError(Exception):
    """Somebody else's commit is there. `known`: the unit as it is."""

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self.known = known


class KafkaTarget(WithoutDefinitions, RoutedTopics):
    """See consumer.targets.batches.BatchTarget. `paused` is called before a commit."""

    transactional_ddl = True
    column_names = EXACT

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self._history = ClosedHistory(self._topics, self._config.prefix)
        self._followed = FollowedTopics()
        self.paused: Callable[[], None] = lambda: None

    # --- commits

    def apply(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        ways = self._ways(unit, changes)
        match changes:
            case [Clearing(table=table, where=where)]:
                rows = partial(self._state, unit, table)
                pages = self._tables.of(table)[0].cleared(where, _place(progress), rows)
            case _:
                pages = iter([list(self._records(unit, changes, progress))])
        page = next(pages)
        for following in pages:
            # who begins again, or takes the unit over, finds less to delete: so nothing but rows is written
            rest = ProgressChange(progress.guards, progress.guards)
            part = self._committed(unit, changes, ways, page, rest)
            if isinstance(part, BatchFenced):
                return part
            page = following
        outcome = self._committed(unit, changes, ways, page, progress)
        if isinstance(outcome, BatchCommitted) and not any(isinstance(each, NetChange) for each in changes):
            self._followed.forget()
        return outcome

    def _committed(
        self,
        unit: ApplyUnit,
        changes: Sequence[RowsChange],
        ways: Sequence[Written],
        records: Sequence[Outgoing],
        progress: ProgressChange,
    ) -> BatchCommitted | BatchFenced:
        """Write records of `changes` and progress in one transaction."""
        batch = min((self._tables.of(each.table)[1].limit - OVERHEAD for each in changes), default=BATCH)
        number: int | None = None
        for _ in range(FENCES):
            try:
                begun = False
                writer = self._current(unit, progress, max(1, min(BATCH, batch)))
                begun = True  # whether the last commit happened is known from here on
                if number is not None and writer.known.commits == number:
                    break  # it happened, and its answer alone was lost
                written = self._written(unit, writer.known, ways, changes, progress)
                after = counted(writer.known, committed(writer.known, progress, written))
                left = closed_entries(unit, writer.known, after, progress.why, self._now_ms())
                closed = list(self._history.records(left))
                self.paused()
                number = after.commits
                self._commit(unit, writer, after, [*records, *closed])
            except _NotOursError as found:
                if number is not None and found.known.lanes == tuple(progress.rows):
                    return BatchCommitted()  # it was complete when the id was taken
                return BatchFenced(str(found.known.lanes))
            except WriterFencedError:
                taken_back(self._config, unit)
            except TransientError as error:
                if begun or number is None:
                    raise
                raise CommitUnknownError(f"nobody knows whether the last commit happened: {error}") from error
            else:
                break
        else:
            why = f"{unit.topic} of pipeline {unit.pipeline}: other producers take its transactional id again and again"
            raise TransientError(why) if number is None else CommitUnknownError(why)
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

    def _ways(self, unit: ApplyUnit, changes: Sequence[RowsChange]) -> list[Written]:
        """Return the ways in which changes are written. Raises UnitStoppedError: what was written before is not in the topic as it is now."""
        if not changes:
            return []
        written, anew = self._known(unit).written, _anew(changes)
        for table in dict.fromkeys(each.table for each in changes):
            why = misplaced(written, self._tables.seen(table), topic_of(table), anew=anew)
            if why is not None:
                raise UnitStoppedError(why)
        return [self._tables.of(each.table)[0].written for each in changes]

    def _written(
        self,
        unit: ApplyUnit,
        known: Known,
        ways: Sequence[Written],
        changes: Sequence[RowsChange],
        progress: ProgressChange,
    ) -> Written | None:
        was = accepted(known.written, ways, anew=_anew(changes))
        now = one_way(unit, was, ways)
        if now is None:
            return None
        tell_reshaped(unit, was, now)
        now = aged(was, now, partial(self._topics.ends, now.topic, range(now.partitions)))
        there = None if _emptied(changes, progress) else was
        return dated(there, now, progress.guards[0].offset, copied=progress.copied)

    def _records(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> Iterator[Outgoing]:
        place = _place(progress)
        for change in changes:
            table = self._tables.of(change.table)[0]
            match change:
                case Clearing():
                    for page in table.cleared(change.where, place, partial(self._state, unit, change.table)):
                        yield from page
                case Defined():
                    yield from table.defined(place)
                case _:
                    yield from table.of(change, place, partial(self._state, unit, change.table))

    # --- what topics hold

    def _state(self, unit: ApplyUnit, table: TargetTable) -> TopicContents:
        """Return what the topic of a table holds, followed from now on until a commit needs it no more."""

        def opened() -> TopicContents:
            records, facts = self._tables.of(table)
            reader = CommittedReader(self._config, self._topics, facts.name, facts.partitions)
            ends = partial(self._topics.ends, facts.name, range(facts.partitions))
            values = aged(self._known(unit).written, records.written, ends).values or ()
            return TopicContents(reader, records.format, records.identity, records.apart, values)

        return self._followed.of(topic_of(table), opened)

    def keys(
        self, unit: ApplyUnit, table: TargetTable, where: dict[str, str] | None
    ) -> Iterable[Sequence[Key]]:
        return self._state(unit, table).keys(table.table.key.columns, where or {})

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return keys as they are, and as the topic shows them: what of a routing key is masked is hashed there."""
        records, names = self._tables.of(table)[0], table.table.key.columns
        shown = (records.shown_key(names, key) for key in keys)
        return [*keys, *(other for key, other in zip(keys, shown, strict=True) if other != key)]

    def close(self) -> None:
        self._followed.forget()
        super().close()


def tell_reshaped(unit: ApplyUnit, was: Written | None, now: Written | None) -> None:
    """Say that the rows of a topic are as its route was before. It is said once, for the commit keeps `now`."""
    if was is not None and now is not None and (changed := was.reshaped(now)):
        log.warning(
            "rows of the topic are as its route was before: those that enter are missing, those that leave and what is to be hidden are still there",
            pipeline=unit.pipeline, topic=unit.topic, written=now.topic, changed=changed,
            do="rowlock copy of the table writes all its rows, and deletes those that the filter leaves out",
        )  # fmt: skip


def _anew(changes: Sequence[RowsChange]) -> bool:
    """Tell whether every row comes anew behind these changes."""
    return any(isinstance(each, Defined) and each.anew for each in changes)


def _emptied(changes: Sequence[RowsChange], progress: ProgressChange) -> bool:
    """Tell whether the table's rows are gone behind these changes; a page that deletes some of them moves nothing."""
    moves = list(progress.rows) != list(progress.guards)
    return moves and any(isinstance(each, Clearing) for each in changes)


def _place(progress: ProgressChange) -> Place:
    row = progress.rows[0]
    return Place(row.position, row.gen, row.commit_ts_ms)
