"""The rules of tests.sim.rules that are in the product's code, switched off there, for a test only."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
from msgspec import structs

from consumer.attempt import applier as applier_module
from consumer.attempt import attempt as attempt_module
from consumer.attempt import attempt_state, recovery
from consumer.attempt.applier import Applier
from consumer.attempt.attempt import Attempt
from consumer.attempt.copies import begin
from consumer.attempt.copies import copies as copies_module
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.keys import KeyComparison
from consumer.attempt.copies.removal import remove_rows
from consumer.attempt.copies.sweep import Sweep
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.copies.window import KeyWindow
from consumer.attempt.effects import ListKeys, Machine, NextSlice, Transact, ask_driver
from consumer.attempt.evolution import next_definition
from consumer.attempt.operations import Operation, WriteChanges
from consumer.attempt.readers.reader import EnvelopeReader, KeysRead, ReaderItem
from consumer.attempt.recovery import RecoveryOutcome
from consumer.attempt.reports import Report
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import CommitUnknownError, ConsumerError, FencedError, RefusedError
from consumer.ordering import dispatch as dispatch_module
from consumer.ordering.dedup import Deduplicator
from consumer.ordering.dispatch import Dispatcher, TablePlan
from consumer.ordering.lanes import batches, lane
from consumer.ordering.lanes.batches import LaneBatch, PendingBatch, build_mark, moves_key
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, NetChange, QuarantineEntry, RowChange, TargetTable
from consumer.ordering.progress import LaneMark, ResumePlan, plan_resume
from consumer.ordering.reasons import is_queued
from consumer.ordering.recovery import HeldKey
from consumer.ordering.tickets import Ticket, TicketTable
from consumer.tables import definition
from consumer.tables.definition import ActiveDefinition
from producer.binlog_format.log_event import BinlogEvent
from producer.copies import book
from producer.copies.book import CopyBook, CopyEffect, RestoreStop
from producer.definitions import proof
from producer.definitions.requests import Proof, ProvenDefinition, UnprovenDefinition
from producer.errors import SourceRefusedError, TableStoppedError
from producer.kafka.writer import KafkaWriter
from producer.loop import rows as rows_module
from producer.loop.copy_begins import CopyStarter
from producer.loop.loop import CaptureLoop
from producer.loop.position import CapturePosition
from producer.loop.table_stops import TableStops
from producer.loop.ticker import CaptureTicker
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.jobs import SnapshotJob
from producer.snapshot.scheduler import SnapshotScheduler, SnapshotTables
from producer.sources.binlog import assembly, binlog_log, proven_log
from producer.sources.binlog.assembly import RereadRequest, TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.event_groups import EventGroup
from producer.sources.binlog.prepared_rows import select_rows
from producer.sources.binlog.prepared_xa import PreparedXaTransactions, XaCommit
from producer.sources.binlog.transactions import CapturedRows, TransactionAssembler
from producer.sources.catalog import Catalog
from producer.sources.changes import OpenXa, PreparedTransaction, TimedEnd, TransactionHeader
from producer.sources.chunk_data import EmitChunk, LogMark, LowWatermark
from producer.sources.mariadb.flavour import MariaDBVisibility
from producer.sources.mysql.flavour import MySQLVisibility
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.survey import ExaminedTable
from producer.start import restored_stops
from producer.start.positions import PositionRecords
from producer.start.startup import CaptureStarter
from producer.start.topic_recovery import TableTail, TopicFindings
from producer.statements.judgement import StatementVerdict
from producer.stops import StoppedTable
from producer.tables import CapturedTables, TableName, TableState
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table
from schemas.wire.codec import decode_event
from schemas.wire.copies import CopyMark, CopyState
from schemas.wire.event import EventEnvelope
from schemas.wire.position import FIRST_SNAPSHOT_ROW, LogPoint, Position
from schemas.wire.records import LogProof, StoredPosition, TableStop
from tests.kits.log import IDS, OTHER
from tests.sim.binlog import UUID

_add, _emit, _record, _stop = (
    TopicFindings.add_event,
    ChunkSender.send_chunk,
    CaptureStarter._choose_record,
    CapturedTables.stop_table,
)
_copy, _begins, _give_up, _mark = (
    CopyStarter.begin_copy,
    TableTail.begin_copy,
    CopyBook._give_up,
    SnapshotJob.build_copy_mark,
)
_end_copy, _note_taken = book._end_copy, KeyWindow.note_taken
_assembler, _end = TransactionAssembler.__init__, TransactionBuffer._end_group
_commit_xa, _fold_xa_rows = PreparedXaTransactions.commit_prepared, BinlogLog._fold_rows
_log_mark = rows_module._build_log_mark
_reached_end = CaptureTicker._has_reached_log_end
_before, _refused_next = begin.find_mark_before_copy, lane._choose_refused_parts
_final_change, _report = recovery.build_final_change, attempt_module.build_attempt_report
_untried = recovery.find_untried_keys
_judge, _init, _begin, _commit = (
    Deduplicator.judge_record, Deduplicator.__init__, EnvelopeReader.begin_reading, Applier._commit_batch,
)  # fmt: skip


def _judge_without_prev(
    self: Deduplicator, offset: int, position: Position | None, prev: Position | None, gen: int
) -> int:
    return _judge(self, offset, position, None, gen)


def _judge_without_gen(
    self: Deduplicator, offset: int, position: Position | None, prev: Position | None, gen: int
) -> int:
    return _judge(self, offset, position, prev, 0)


def _from_highest_lane(self: Deduplicator, lanes: Sequence[LaneProgress]) -> None:
    _init(self, [max(lanes, key=lambda row: row.offset)])


def _hasty_plan(rows: Sequence[LaneProgress], expected: Layout) -> ResumePlan:
    """Another layout at once, though the lanes stand apart."""
    found = plan_resume(rows, expected)
    return found if found.finish is None else ResumePlan(found.start, expected, switch_now=True)


def _hasty_rows(rows: Sequence[LaneProgress], expected: Layout) -> list[LaneProgress]:
    text = expected.encode()
    return [structs.replace(rows[lane % len(rows)], lane=lane, layout=text) for lane in range(expected.lanes)]


def _moves_whole(self: Dispatcher, of: TablePlan, change: RowChange, old: bytes) -> None:
    """A key-moving update goes whole to the new key's lane."""
    after = change.after
    if after is not None:
        key = of.fold_key(after)
        lane = of.lane_of(key)
        if change.id[0] > self._passed[lane]:
            waits = self._register_tickets(of, (change.id, lane), change.before, after)
            self._queues[lane].append((change, of, key, waits))


def _exact_key(table: Table) -> Callable[[Row], bytes]:
    at = table.find_ordinals(table.key.columns)
    return lambda row: repr([row[i] for i in at]).encode()


def _take_the_batch(self: Attempt) -> Machine[None]:
    """The batch's own range is believed."""
    while (records := (yield from ask_driver(NextSlice()))) is not None:
        yield from self._take_slice(records)


def _begin_anywhere(
    self: EnvelopeReader, rows: Sequence[LaneProgress], in_force: ActiveDefinition | None
) -> None:
    _begin(self, rows, in_force)
    self._dedup.offset = -1


def _net_halves(self: Applier, lane: int, batch: LaneBatch) -> Machine[None]:
    """After an error half of the net (its deletes) in a transaction of its own, before the rest is tried
    again."""
    try:
        yield from _commit(self, lane, batch)
    except (FencedError, CommitUnknownError):
        raise
    except ConsumerError:
        for net in batch.nets:
            keys = [tuple(row[i] for i in net.table.key_at) for row in net.replaces]
            half = NetChange(net.table, net.deletes + keys, [], [])
            with suppress(ConsumerError):
                yield Transact(lane, [self._progress.rows[lane]], [WriteChanges(half)])
        raise


def _low_of_the_log(self: MariaDBVisibility, cursor: Any) -> LowWatermark:
    """LOW is the log's end, also of what no SELECT sees yet."""
    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return LowWatermark(self.log_end(cursor), None)


def _gtids_of_the_log(_self: MySQLVisibility, cursor: Any) -> LowWatermark:
    cursor.execute("START TRANSACTION READ ONLY")
    return LowWatermark(None, GtidSet.parse(cursor.source.executed(len(cursor.source.log))))


def _from_the_first_row(self: ChunkSender, job: SnapshotJob, chunk: EmitChunk, file: str) -> None:
    """Every chunk counts its rows from the same one on."""
    self._next_row[job.table.topic.name] = FIRST_SNAPSHOT_ROW
    _emit(self, job, chunk, file)


def _abandon_without_purge(self: KafkaWriter) -> None:
    """What is in flight behind the message that failed is still delivered."""
    self._producer = None


def _of_any_gen(self: TopicFindings, offset: int, value: bytes, *, always: bool = False) -> None:
    highest, self.gen = self.gen, 0
    _add(self, offset, value, always=always)
    self.gen = max(highest, self.gen)


def _on_at_the_end(
    self: CaptureStarter, records: PositionRecords, found: dict[str, TopicFindings], *, new_snapshot: bool
) -> StoredPosition:
    """A log that is not there any more is followed from its end on."""
    try:
        return _record(self, records, found, new_snapshot=new_snapshot)
    except SourceRefusedError:
        stored, here = records.newest, self.source.find_log_end()
        assert stored is not None
        return msgspec.structs.replace(
            stored, gen=stored.gen + 1, file=here.file, pos=here.pos, proof=here.proof
        )


def _stops_nothing(_self: StatementVerdict, *, same_definition: bool) -> bool:
    del same_definition
    return False


def _no_stops(_self: CapturedTables) -> dict[str, TableStop]:
    return {}


def _says_nothing(self: TableStops, _file: str, _pos: int) -> bool:
    self._captured.unsaid.clear()
    return False


def _forgets(_record: object, _topic: object) -> dict[str, TableStop]:
    return {}


def _goes_on_encoding(self: CapturedTables, name: TableName, stopped: StoppedTable) -> None:
    _stop(self, name, stopped)
    if (state := self.tables.get(name)) is not None:
        state.ignored = None


def _keeps(_self: SnapshotTables, _name: TableName) -> None: ...


def _nothing_refuted(*_: object) -> list[tuple[TableName, UnprovenDefinition]]:
    return []


def _all_proven(
    _index: object, _at: object, _end: object, found: dict[TableName, ExaminedTable]
) -> dict[TableName, Proof]:
    return {name: ProvenDefinition(*surveyed) for name, surveyed in found.items()}


def _unknown_xa_stops_nothing(
    self: PreparedXaTransactions, xid: str, captured: Callable[[str, str], bool]
) -> XaCommit:
    return _commit_xa(self, xid, captured) if xid in self.open else XaCommit(xid, None)


def _forgets_rows(
    self: TransactionAssembler, captured: Callable[[str, str], bool], prepared: OpenXa | None = None
) -> None:
    """A start knows that transactions are prepared, and not their rows."""
    _assembler(self, captured, {xid: PreparedTransaction((), None) for xid in prepared or {}})


def _prepared_is_committed(
    self: TransactionBuffer, group: EventGroup, event: BinlogEvent, *, is_prepared: bool
) -> Iterable[BinlogEvent] | RereadRequest:
    del is_prepared
    return _end(self, group, event)


def _without_other_tables(events: Iterable[BinlogEvent]) -> Iterator[BinlogEvent]:
    """Rows from memory are counted without those of tables that are not captured."""
    others = struct.pack("<Q", IDS[OTHER])[:6]
    return (event for event in select_rows(events) if event.body[:6] != others)


_SEEN = -77


def _rows_of_an_early_transaction(
    self: BinlogLog, events: Iterable[BinlogEvent]
) -> Iterator[CapturedRows | TableStoppedError | None]:
    """The rows of an XA transaction are marked: any chunk takes them for older than its SELECT."""
    header = None
    for each in _fold_xa_rows(self, events):
        if isinstance(each, CapturedRows):
            header = header or each.header._replace(server_id=_SEEN)
            yield each._replace(header=header)
        else:
            yield each


def _mark_of_an_early_transaction(header: TransactionHeader) -> LogMark:
    return LogMark((0, 0), f"{UUID}:1") if header.server_id == _SEEN else _log_mark(header)


def _all_ends_commit(
    self: TransactionBuffer, group: EventGroup, event: BinlogEvent, *, nothing: bool = False
) -> Iterable[BinlogEvent] | RereadRequest:
    del nothing
    return _end(self, group, event)


def _takes_nothing_back(*_: object) -> None: ...


def _knows_nothing(_self: object, _at: int) -> bool:
    return False


def _pays_all(state: CopyState, now: int) -> CopyState:
    return msgspec.structs.replace(_end_copy(state, now), removed=None)


def _keys_alone(self: KeyWindow, taken: ReaderItem) -> None:
    """What the source's events leave is not looked at."""
    if isinstance(taken, KeysRead):
        _note_taken(self, taken)


def _no_rows(*_: object) -> None:
    """As `_keys_alone`, for ranges that the unit has passed."""


def _reads_nothing(_topic: str, _active: ActiveDefinition, _since: int, upto: int) -> Machine[KeySweep]:
    yield from ()
    return KeySweep(upto)


def _any_row(self: KeySweep) -> list[Key]:
    return [key for key in self.ranges[0].take_doubted_keys(99) if key not in self._rows]


def _any_begin(raw: bytes) -> EventEnvelope | None:
    event = decode_event(raw)
    return event if event.copy is not None and event.definition is not None else None


def _without_the_list(
    progress: AttemptProgress, active: ActiveDefinition, table: TargetTable, keys: Sequence[Key]
) -> Machine[int]:
    if active.stored.removed is None:
        active = replace(active, routed=replace(active.routed, keeps_removed_rows=False))
    return (yield from remove_rows(progress, active, table, keys))


def _despite_the_debt(
    progress: AttemptProgress, active: ActiveDefinition, table: TargetTable, keys: Sequence[Key]
) -> Machine[int]:
    paid = replace(active, stored=replace(active.stored, removed=None))
    return (yield from remove_rows(progress, paid, table, keys))


def _finds_nothing(*_: object) -> Machine[None]:
    return None
    yield


def _any_proof(proofs: Sequence[LogProof], _oldest: str) -> list[LogProof]:
    return list(proofs)


def _anywhere(self: CaptureLoop) -> None:
    """Where the log was read up to, capture resumes."""
    self._position.record_log_position(*self._log.point)


def _at_once(_self: KafkaWriter, action: Callable[[], None]) -> None:
    action()


def _not_under_way(_self: SnapshotTables, _name: TableName) -> bool:
    return False


def _reaches_anything(_self: LowWatermark, _at: LogPoint, _delivered: GtidSet | None) -> bool:
    return True


def _unchanged(_self: SnapshotScheduler, _state: TableState, _mark: LogMark) -> None: ...


def _goes_on_first(
    self: CopyStarter, name: TableName, table: Table, mark: CopyMark, file: str, pos: int
) -> None:
    self._captured.go_on(name)
    self._position.store_position()
    _copy(self, name, table, mark, file, pos)


def _keeps_markers(self: TableTail, mark: CopyMark, position: Position, offset: int) -> None:
    markers = list(self.markers)
    _begins(self, mark, position, offset)
    self.markers = markers


def _stops_nothing_again(
    self: CopyBook, state: CopyState, phase: Any, problem: Problem, now: int
) -> list[CopyEffect]:
    effects = _give_up(self, state, phase, problem, now)
    return [effect for effect in effects if not isinstance(effect, RestoreStop)]


def _too_late(self: SnapshotJob) -> CopyMark | None:
    mark = _mark(self)
    return None if mark is None else msgspec.structs.replace(mark, since=(mark.since or 0) + 2)


def _no_wait(_self: TicketTable, _holders: Any, _value: bytes, _ticket: Any) -> Ticket | None:
    return None


def _ranges_everywhere(*_: object) -> bool:
    return True


def _by_their_looks(self: Sweep, keys: KeyComparison, after: Key | None, upto: Key | None) -> Machine[int]:
    """What the target shows is what counts."""
    while page := (yield from ask_driver(ListKeys(self._table, after, upto, self._active.routed.where))):
        keys.compare_keys(page)
        after = page[-1]
    return (yield from self._delete_doubted_rows(keys))


def _each_alone(_progress: AttemptProgress, _mark: LaneMark, _operations: object) -> Machine[None]:
    """Lanes pass a marker with whatever they apply next."""
    yield from ()


def _unguarded(_self: AttemptProgress, operations: Sequence[Operation]) -> Machine[None]:
    yield Transact(0, (), operations)


def _both_halves(pending: PendingBatch, error: RefusedError) -> dict[int, str]:
    """Of a key move in one lane that the target refuses, neither half is applied."""
    change, plan, _key, _waits = pending.items[0]
    return {0: str(error), 1: str(error)} if moves_key(change, plan) else _refused_next(pending, error)


def _queues(_part: RowChange, _plan: TablePlan) -> bool:
    """A delete of a held key waits like any other change of it."""
    return False


def _recovers_nothing(*_: object, **_options: object) -> Machine[RecoveryOutcome]:
    """A held key waits for a person."""
    yield from ()
    return RecoveryOutcome()


def _first_image(active: ActiveDefinition, entries: Sequence[QuarantineEntry]) -> NetChange:
    """A key recovers too early: with an older row of it, while newer ones are there."""
    return _final_change(active, entries[:1])


def _always_due(_self: HeldKey, _interval_s: float, _elapsed_s: float = 0.0) -> bool:
    """A held key is tried as often as it changes."""
    return True


def _queues_only(self: HeldKey, _level: int) -> bool:
    """A key that was refused for a unique value waits for its next event."""
    return is_queued(self.newest)


def _finds_no_cycle(*_: Any) -> list[HeldKey]:
    """Each key is tried alone."""
    return []


def _exact_key_alone(*arguments: Any) -> list[HeldKey]:
    """A key of which the target was never asked does not recover with the one that it queues after."""
    return [key for key in _untried(*arguments) if not all(map(is_queued, key.entries))]


def _waits_for_records(*arguments: Any, **_left: object) -> Report:
    """What an attempt leaves untried waits for the topic's next records."""
    return _report(*arguments)


def _stays(rows: Sequence[LaneProgress], after: int, offset: int, raw: bytes | None) -> LaneMark | None:
    """A unit that goes on at a begin keeps the position that it had."""
    mark = _before(rows, after, offset, raw)
    if mark is None:
        return None
    return mark[0], max(row.position for row in rows), *mark[2:]


def _by_own_clock(self: CaptureTicker) -> bool:
    """An idle source is captured up to now, by the clock of the machine that captures it."""
    is_idle = _reached_end(self)
    if is_idle:
        self._position.source_ms = max(self._position.source_ms, self._now_ms())
    return is_idle


def _as_nothing_came(self: CapturePosition, end: TimedEnd) -> bool:
    """A log from which nothing arrives is read to its end."""
    self.source_ms = max(self.source_ms, end.ts_ms)
    return True


def _end_first(catalog: Catalog) -> TimedEnd | None:
    end = catalog.server.log_end()
    return None if end is None else TimedEnd(*end, catalog.server.read_time_ms())


_write_batch = Applier._write_batch


def _moves_one_lane(self: Applier, lanes: Sequence[int], batch: LaneBatch) -> Machine[int]:
    return _write_batch(self, lanes[:1], batch)


def _past_the_next(change: RowChange) -> LaneMark:
    mark = build_mark(change)
    return (mark[0] + 1, *mark[1:])


def _announces_nothing(self: CaptureStarter, gen: int) -> None:
    del self, gen


#: A key that recovers hides what a retry, or a delete that queues, does to its entries: they are then as a
#: version left them that recovered none.
_WITHOUT_RECOVERY = (attempt_state, "recover_keys", _recovers_nothing)

#: Number of the finding → what is changed in the product: (where, name, what replaces it). The other
#: findings' rules are in the model's target (tests.sim.rules).
SWITCHES: dict[str, tuple[tuple[object, str, object], ...]] = {
    "1": (
        (MariaDBVisibility, "begin_snapshot", _low_of_the_log),
        (MySQLVisibility, "begin_snapshot", _gtids_of_the_log),
    ),
    "2": ((ChunkSender, "send_chunk", _from_the_first_row),),
    "3": (
        (KafkaWriter, "abandon_unacknowledged", _abandon_without_purge),
        (Deduplicator, "judge_record", _judge_without_prev),
    ),
    "4": ((Deduplicator, "__init__", _from_highest_lane),),
    "5": (
        (attempt_state, "plan_resume", _hasty_plan),
        (attempt_state, "relay_rows", _hasty_rows),
        (next_definition, "relay_rows", _hasty_rows),
    ),
    "7": ((Dispatcher, "_queue_key_move", _moves_whole),),
    "10": ((dispatch_module, "make_key_fold", _exact_key),),
    "11": (
        (Attempt, "_take_all", _take_the_batch),
        (EnvelopeReader, "begin_reading", _begin_anywhere),
        (Deduplicator, "judge_record", _judge_without_prev),
    ),
    "14": ((TopicFindings, "add_event", _of_any_gen), (Deduplicator, "judge_record", _judge_without_gen)),
    "16": (_WITHOUT_RECOVERY,),
    "17": ((Applier, "_commit_batch", _net_halves),),
    "acknowledged": ((KafkaWriter, "call_when_acknowledged", _at_once),),
    "window": ((SnapshotTables, "is_under_way", _not_under_way),),
    "begin": ((LowWatermark, "has_seen_all_before", _reaches_anything),),
    "emptied": ((SnapshotScheduler, "handle_table_change", _unchanged),),
    "purged": ((CaptureStarter, "_choose_record", _on_at_the_end),),
    "proofs": ((proven_log, "select_remaining_proofs", _any_proof),),
    "between": ((CaptureLoop, "_advance_between_transactions", _anywhere),),
    "judged": ((StatementVerdict, "must_stop", _stops_nothing),),
    "stored": ((CapturedTables, "list_stops", _no_stops),),
    "said": ((TableStops, "send_pending_stops", _says_nothing),),
    "remembered": ((restored_stops, "merge_table_stops", _forgets),),
    "silent": ((CapturedTables, "stop_table", _goes_on_encoding),),
    "snapshot": ((SnapshotTables, "forget_table", _keeps),),
    "proven": ((proof, "yield_refuted_tables", _nothing_refuted), (proof, "judge_definitions", _all_proven)),
    "xa": ((PreparedXaTransactions, "commit_prepared", _unknown_xa_stops_nothing),),
    "prepared": ((TransactionAssembler, "__init__", _forgets_rows),),
    "at commit": ((TransactionBuffer, "_end_xa_group", _prepared_is_committed),),
    "xa twice": ((binlog_log, "select_rows", _without_other_tables),),
    "xa chunk": (
        (BinlogLog, "_fold_rows", _rows_of_an_early_transaction),
        (rows_module, "_build_log_mark", _mark_of_an_early_transaction),
    ),
    "ends": ((TransactionBuffer, "_end_group", _all_ends_commit),),
    "savepoint": ((EventGroup, "roll_back_to", _takes_nothing_back),),
    "again": ((assembly._KnownGroup, "is_undone", _knows_nothing),),
    "copy": ((CopyStarter, "begin_copy", _goes_on_first),),
    "markers": ((TableTail, "begin_copy", _keeps_markers),),
    "given up": ((CopyBook, "_give_up", _stops_nothing_again),),
    "since": ((SnapshotJob, "build_copy_mark", _too_late),),
    "ranges": ((definition, "are_ranges_alike", _ranges_everywhere),),
    "shown": ((Sweep, "_compare_target_keys", _by_their_looks),),
    "together": ((copies_module, "pass_together", _each_alone),),
    "sweeps": ((AttemptProgress, "commit_guarded", _unguarded),),
    "jump": ((begin, "find_mark_before_copy", _stays),),
    "debt": ((book, "_end_copy", _pays_all),),
    "seen": ((LowWatermark, "has_seen_all_before", _reaches_anything),),
    "later rows": (
        (KeyWindow, "note_taken", _keys_alone),
        (KeySweep, "_note_rows", _no_rows),
        (TableSweep, "_note_rows", _no_rows),
    ),
    "passed ranges": ((copies_module, "read_key_sweep", _reads_nothing),),
    "older rows": ((KeySweep, "select_dead_keys", _any_row),),
    "no copy": ((begin, "decode_copy_begin", _any_begin),),
    "kept": ((copies_module, "remove_rows", _without_the_list),),
    "kept debt": ((copies_module, "remove_rows", _despite_the_debt),),
    "kept skip": ((begin, "find_skipped_removal", _finds_nothing),),
    "tickets": ((TicketTable, "register", _no_wait),),
    "refused half": ((lane, "_choose_refused_parts", _both_halves),),
    "settled": ((batches, "_settles_key", _queues), _WITHOUT_RECOVERY),
    "recovers": ((attempt_state, "recover_keys", _recovers_nothing),),
    "newest": ((recovery, "build_final_change", _first_image),),
    "pace": ((HeldKey, "is_due", _always_due),),
    "same fold": (
        (recovery, "find_untried_keys", _exact_key_alone),
        (attempt_state, "find_untried_keys", _exact_key_alone),
    ),
    "value": ((HeldKey, "is_untried", _queues_only),),
    "cycle": ((recovery, "find_waiting_cycle", _finds_no_cycle),),
    "at last": ((attempt_module, "build_attempt_report", _waits_for_records),),
    "clock": ((CaptureTicker, "_has_reached_log_end", _by_own_clock),),
    "quiet": ((CapturePosition, "compare_log_end", _as_nothing_came),),
    "time first": ((proven_log, "read_timed_end", _end_first),),
    "all lanes": ((Applier, "_write_batch", _moves_one_lane),),
    "parts": ((applier_module, "build_mark", _past_the_next),),
    "claim": ((CaptureStarter, "_announce_claim", _announces_nothing),),
}


@contextmanager
def switched_off(finding: str) -> Iterator[None]:
    """Let the product do without the rule of `finding`, where it stands in the product."""
    with ExitStack() as stack:
        for place, name, instead in SWITCHES.get(finding, ()):
            stack.enter_context(mock.patch.object(place, name, instead))
        yield
