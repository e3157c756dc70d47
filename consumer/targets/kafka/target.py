"""A Kafka cluster as a target of whole batches: every commit is one transaction of records and their
progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import structlog

from consumer.errors import CommitUnknownError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.batches import (
    BatchCommitted,
    BatchFenced,
    ProgressChange,
    RowsChange,
    TableCleared,
    TableDefined,
)
from consumer.targets.kafka.clients import PRODUCER_BATCH_BYTES
from consumer.targets.kafka.compacted.topic_contents import FollowedTopics, TopicContents
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.records import ClosedHistory, get_target_topic
from consumer.targets.kafka.routed_topics import DefinitionlessTables, RoutedTopics
from consumer.targets.kafka.scheme_checks import (
    add_form_ages,
    add_reshape_offsets,
    choose_compared_scheme,
    explain_misplaced_records,
    require_one_scheme,
)
from consumer.targets.kafka.store.progress import FENCES, log_lost_writer
from consumer.targets.kafka.store.progress_topic import OVERHEAD
from consumer.targets.kafka.store.state import (
    KnownUnit,
    RecordScheme,
    apply_progress_change,
    count_commit,
    list_closed_entries,
    list_guards,
)
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from schemas.table.model import Key
from schemas.table.names import EXACT

log = structlog.get_logger(__name__)


class _ForeignCommitError(Exception):
    """A commit of another worker was found. `known`: the present state of the unit."""

    def __init__(self, known: KnownUnit) -> None:
        super().__init__(known)
        self.known = known


class KafkaTarget(DefinitionlessTables, RoutedTopics):
    """A Kafka cluster as a BatchTarget (consumer.targets.batches). `paused` is called before a commit."""

    transactional_ddl = True
    column_names = EXACT
    table_names = EXACT

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self._history = ClosedHistory(self._topics, self._config.prefix)
        self._followed = FollowedTopics()
        self.paused: Callable[[], None] = lambda: None

    # --- commits

    def apply_changes(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        ways = self._list_schemes(unit, changes)
        match changes:
            case [TableCleared(table=table, where=where)]:
                rows = partial(self._follow_contents, unit, table)
                pages = self._tables.get_opened_topic(table)[0].yield_clear_records(
                    where, _build_place(progress), rows
                )
            case _:
                pages = iter([list(self._yield_change_records(unit, changes, progress))])
        page = next(pages)
        for following in pages:
            # A restart or takeover finds fewer rows to delete, so these pages need not write progress.
            rest = ProgressChange(progress.guards, progress.guards)
            part = self._commit_changes(unit, changes, ways, page, rest)
            if isinstance(part, BatchFenced):
                return part
            page = following
        outcome = self._commit_changes(unit, changes, ways, page, progress)
        if isinstance(outcome, BatchCommitted) and not any(isinstance(each, NetChange) for each in changes):
            self._followed.forget_contents()
        return outcome

    def _commit_changes(
        self,
        unit: ApplyUnit,
        changes: Sequence[RowsChange],
        ways: Sequence[RecordScheme],
        records: Sequence[Outgoing],
        progress: ProgressChange,
    ) -> BatchCommitted | BatchFenced:
        """Write records of `changes` and progress in one transaction."""
        batch = min(
            (self._tables.get_opened_topic(each.table)[1].limit - OVERHEAD for each in changes),
            default=PRODUCER_BATCH_BYTES,
        )
        number: int | None = None
        for _ in range(FENCES):
            try:
                begun = False
                writer = self._require_current_writer(
                    unit, progress, max(1, min(PRODUCER_BATCH_BYTES, batch))
                )
                begun = True  # from here on the outcome of the last commit is known
                if number is not None and writer.known.commits == number:
                    break  # it was committed, and only its answer was lost
                written = self._choose_scheme(unit, writer.known, ways, changes, progress)
                after = count_commit(writer.known, apply_progress_change(writer.known, progress, written))
                left = list_closed_entries(unit, writer.known, after, progress.why, self._now_ms())
                closed = list(self._history.yield_records(left))
                self.paused()
                number = after.commits
                self._commit_records(unit, writer, after, [*records, *closed])
            except _ForeignCommitError as found:
                if number is not None and found.known.lanes == tuple(progress.rows):
                    return BatchCommitted()  # it was complete when the id was taken
                return BatchFenced(str(found.known.lanes))
            except WriterFencedError:
                log_lost_writer(self._config, unit)
            except TransientError as error:
                if begun or number is None:
                    raise
                raise CommitUnknownError(f"the outcome of the last commit is unknown: {error}") from error
            else:
                break
        else:
            why = (
                f"{unit.topic} of pipeline {unit.pipeline}: another producer keeps taking the "
                "transactional id of this table away"
            )
            raise TransientError(why) if number is None else CommitUnknownError(why)
        return BatchCommitted()

    def _require_current_writer(self, unit: ApplyUnit, progress: ProgressChange, batch: int) -> UnitWriter:
        """Return the unit's writer if the guards match what it last read or wrote.

        Raises _ForeignCommitError if they do not match what it has just read.
        """
        had = self._writers.get(unit)
        if (
            had is not None
            and had.batch <= batch
            and list_guards(had.known.lanes) == list_guards(progress.guards)
        ):
            return had
        self._discard_writer(unit)

        def check_guards(known: KnownUnit) -> KnownUnit:
            if list_guards(known.lanes) != list_guards(progress.guards):
                raise _ForeignCommitError(known)
            return KnownUnit(known.record, known.held)

        writer = self._open_writer(unit, check_guards, progress.guards[0].epoch, batch)
        if writer is None:
            raise TransientError(f"{unit.topic}: no producer")
        try:
            check_guards(writer.known)
        except _ForeignCommitError:
            self._discard_writer(unit)
            raise
        return writer

    def _list_schemes(self, unit: ApplyUnit, changes: Sequence[RowsChange]) -> list[RecordScheme]:
        """Return the record schemes of changes.

        Raises UnitStoppedError if the records that were written before are not in the present topic.
        """
        if not changes:
            return []
        written, anew = self._get_known_unit(unit).written, _is_full_rewrite(changes)
        for table in dict.fromkeys(each.table for each in changes):
            why = explain_misplaced_records(
                written, self._tables.read_topic_identity(table), get_target_topic(table), anew=anew
            )
            if why is not None:
                raise UnitStoppedError.from_problem(why)
        return [self._tables.get_opened_topic(each.table)[0].written for each in changes]

    def _choose_scheme(
        self,
        unit: ApplyUnit,
        known: KnownUnit,
        ways: Sequence[RecordScheme],
        changes: Sequence[RowsChange],
        progress: ProgressChange,
    ) -> RecordScheme | None:
        was = choose_compared_scheme(known.written, ways, anew=_is_full_rewrite(changes))
        now = require_one_scheme(unit, was, ways)
        if now is None:
            return None
        log_reshaped_topic(unit, was, now)
        now = add_form_ages(
            was, now, partial(self._topics.read_end_offsets, now.topic, range(now.partitions))
        )
        there = None if _was_emptied(changes, progress) else was
        return add_reshape_offsets(there, now, progress.guards[0].offset, copied=progress.copied)

    def _yield_change_records(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> Iterator[Outgoing]:
        place = _build_place(progress)
        for change in changes:
            table = self._tables.get_opened_topic(change.table)[0]
            match change:
                case TableCleared():
                    for page in table.yield_clear_records(
                        change.where, place, partial(self._follow_contents, unit, change.table)
                    ):
                        yield from page
                case TableDefined():
                    yield from table.yield_definition_records(place)
                case _:
                    yield from table.yield_records(
                        change, place, partial(self._follow_contents, unit, change.table)
                    )

    # --- what topics hold

    def _follow_contents(self, unit: ApplyUnit, table: TargetTable) -> TopicContents:
        """Return what the topic of a table contains; it is followed until a commit makes that unnecessary."""

        def open_contents() -> TopicContents:
            records, facts = self._tables.get_opened_topic(table)
            reader = CommittedReader(self._config, self._topics, facts.name, facts.partitions)
            ends = partial(self._topics.read_end_offsets, facts.name, range(facts.partitions))
            values = add_form_ages(self._get_known_unit(unit).written, records.written, ends).values or ()
            return TopicContents(reader, records.format, records.identity, records.apart, values)

        return self._followed.get_contents(get_target_topic(table), open_contents)

    def yield_keys(
        self, unit: ApplyUnit, table: TargetTable, where: dict[str, str] | None
    ) -> Iterable[Sequence[Key]]:
        return self._follow_contents(unit, table).yield_keys(table.table.key.columns, where or {})

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return the keys as they are, and as the topic shows them: masked columns of a routing key are
        hashed there.
        """
        records, names = self._tables.get_opened_topic(table)[0], table.table.key.columns
        shown = (records.build_shown_key(names, key) for key in keys)
        return [*keys, *(other for key, other in zip(keys, shown, strict=True) if other != key)]

    def close(self) -> None:
        self._followed.forget_contents()
        super().close()


def log_reshaped_topic(unit: ApplyUnit, was: RecordScheme | None, now: RecordScheme | None) -> None:
    """Log that rows of a topic were written under older options of its route; once, because the commit
    keeps `now`.
    """
    if was is not None and now is not None and (changed := was.list_reshaped_options(now)):
        log.warning(
            "topic still has rows that were written under the previous route",
            pipeline=unit.pipeline, topic=unit.topic, written=now.topic, changed=changed,
            reason="rows that the new filter admits are missing; rows that it excludes and values "
            "that it hides are still there",
            remedy="rowlock copy of the table writes all its rows, and deletes those that the filter "
            "excludes",
        )  # fmt: skip


def _is_full_rewrite(changes: Sequence[RowsChange]) -> bool:
    """Return whether every row is written again after these changes."""
    return any(isinstance(each, TableDefined) and each.anew for each in changes)


def _was_emptied(changes: Sequence[RowsChange], progress: ProgressChange) -> bool:
    """Return whether the table has no rows after these changes.

    A page that deletes only some of them does not move the progress.
    """
    moves = list(progress.rows) != list(progress.guards)
    return moves and any(isinstance(each, TableCleared) for each in changes)


def _build_place(progress: ProgressChange) -> Place:
    row = progress.rows[0]
    return Place(row.position, row.gen, row.commit_ts_ms)
