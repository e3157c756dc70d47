"""The snapshot of one table as a pure state machine: chunks in key order, each within a watermark
window.

LOW describes which transactions the SELECT certainly saw; HIGH is any log position read after it. For
every key that a transaction outside LOW touches until the stream reaches HIGH the topic has a newer
image; only the rest of the chunk is emitted. Keys are recorded from the chunk's *begin* on (where the
stream was when it was planned), not from the read on: with semi-synchronous replication the stream
delivers transactions that no SELECT sees yet, so LOW can be before what the stream has delivered. A
chunk with a LOW that does not reach its begin is read again.

Keys are compared exactly, by wire value, which is enough whatever the collation: a row of the chunk has
the state that the last transaction before the SELECT gave it, and the first one after it names it in its
before image. So a transaction that touched the row contains the very bytes of its key, before or after.
Folding would drop rows that were not touched.

Usage (all calls come from the thread that reads the stream; a state must not be used again after a
step):

    machine = SnapshotMachine(chunk_rows=2000)
    state, effects = machine.start_snapshot(table, at, delivered, resume_after(tail, table), now)
    state, effects = machine.apply_event(state, event, now)

Another machine may take the next step; its `chunk_rows` applies to the chunks that are read afterwards.

Events:

    RowsPassed(mark, keys)     a transaction touched these keys of the table (before and after images)
    TableChanged(mark, table)  DDL, TRUNCATE or RENAME of the table passed; `table`: the definition since
    ChunkRead / ChunkFailed    the reader's answer (producer/snapshot/reader.py); only between transactions
    StreamReached(point, delivered)
                               between transactions: everything before `point` was applied. Also if idle, and
                               after events without a transaction (rotation, format); otherwise HIGH may never
                               be reached

Effects:

    ReadChunk     read it on another connection, not before `not_before`; the answer has its `request`.
                  `where`: an SQL condition of the source that the rows meet, added by the shell
    EmitChunk     write its rows and marker now, before anything else of the stream
                  (producer.kafka.control_events.encode_whole_chunk)
    SnapshotDone  the table is complete

`delivered` (MySQL only, otherwise None): the set of all GTIDs that the stream delivered since it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from producer.sources.chunk_data import ChunkFailed, ChunkRead, EmitChunk, LogMark, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.table.model import Key, Row, Table
from schemas.wire.position import LogPoint

_LOW_RETRY = 0.05
_FAILED_RETRY = 1.0


class RowsPassed(NamedTuple):
    mark: LogMark
    keys: Sequence[Key]


class TableChanged(NamedTuple):
    mark: LogMark
    table: Table


class StreamReached(NamedTuple):
    point: LogPoint
    delivered: GtidSet | None = None


class SnapshotDone(NamedTuple):
    table: Table


SnapshotEvent = RowsPassed | TableChanged | StreamReached | ChunkRead | ChunkFailed
SnapshotEffect = ReadChunk | EmitChunk | SnapshotDone


class ResumePoint(NamedTuple):
    """The place where a table's snapshot continues: `done`, or the chunk `number` after key `after`."""

    done: bool
    number: int
    after: Key | None
    repeated: bool


FROM_START = ResumePoint(done=False, number=1, after=None, repeated=False)


class ChunkState(msgspec.Struct, frozen=True, kw_only=True):
    """The state between two events.

    `begin`, `delivered`: where the stream was when the chunk was planned. `limit`: the requested rows.
    While a chunk is being read (`chunk` is None) `seen` has everything that the stream brought since;
    afterwards `touched` has the chunk's keys that must not be emitted. Both only grow, and are shared
    with earlier states.
    """

    table: Table
    number: int
    after: Key | None
    repeated: bool
    request: int
    limit: int
    begin: LogPoint
    delivered: GtidSet | None
    seen: list[tuple[LogMark, Sequence[Key] | None]]
    chunk: ChunkRead | None = None
    keys: frozenset[Key] = frozenset()
    touched: set[Key] = set()
    done: bool


Step = tuple[ChunkState, list[SnapshotEffect]]


class SnapshotMachine:
    """A snapshot in chunks of `chunk_rows` rows. Pure."""

    def __init__(self, chunk_rows: int) -> None:
        self.chunk_rows = chunk_rows

    def start_snapshot(
        self, table: Table, at: LogPoint, delivered: GtidSet | None, resume: ResumePoint, now: float
    ) -> Step:
        """Begin at stream point `at`, between transactions. Everything from there on must be applied."""
        state = ChunkState(
            table=table,
            number=resume.number,
            after=resume.after,
            repeated=resume.repeated,
            request=0,
            limit=self.chunk_rows,
            begin=at,
            delivered=delivered.copy() if delivered is not None else None,
            seen=[],
            done=resume.done,
        )
        return (state, [SnapshotDone(table)]) if resume.done else self._plan_read(state, now)

    def apply_event(self, state: ChunkState, event: SnapshotEvent, now: float) -> Step:
        """Return the state after `event`, and the effects in order."""
        if state.done:
            return state, []
        match event:
            case RowsPassed():
                return _record_rows(state, event), []
            case TableChanged():
                return self._handle_table_change(state, event, now)
            case ChunkRead():
                return self._handle_chunk_read(state, event, now)
            case ChunkFailed():
                can_retry = event.request == state.request and state.chunk is None
                return self._plan_read(state, now + _FAILED_RETRY) if can_retry else (state, [])
            case StreamReached():
                return self._handle_stream_position(state, event, now)

    def _plan_read(self, state: ChunkState, not_before: float) -> Step:
        state = msgspec.structs.replace(
            state,
            request=state.request + 1,
            limit=self.chunk_rows,
            chunk=None,
            keys=frozenset(),
            touched=set(),
        )
        return state, [ReadChunk(state.request, state.table, state.after, state.limit, not_before)]

    def _handle_table_change(self, state: ChunkState, event: TableChanged, now: float) -> Step:
        """Read the chunk again, because the table changed.

        With another key the snapshot begins again elsewhere.
        """
        state.seen.append((event.mark, None))
        return self._plan_read(msgspec.structs.replace(state, table=event.table), now)

    def _handle_chunk_read(self, state: ChunkState, read: ChunkRead, now: float) -> Step:
        if read.request != state.request or state.chunk is not None:
            return state, []
        if not read.low.has_seen_all_before(state.begin, state.delivered):
            return self._plan_read(state, now + _LOW_RETRY)
        unseen = [keys for mark, keys in state.seen if not read.low.has_seen(mark)]
        if None in unseen:
            return self._plan_read(state, now + _LOW_RETRY)
        chunk_keys = frozenset(_list_keys(state.table, read.rows))
        touched = {key for keys in unseen for key in keys or () if key in chunk_keys}
        return msgspec.structs.replace(state, chunk=read, keys=chunk_keys, touched=touched), []

    def _handle_stream_position(self, state: ChunkState, event: StreamReached, now: float) -> Step:
        if state.chunk is None or event.point < state.chunk.high:
            return state, []
        emit = self._build_emission(state, state.chunk, event.point)
        if emit.upto is None:
            return msgspec.structs.replace(state, done=True, chunk=None), [emit, SnapshotDone(state.table)]
        state = msgspec.structs.replace(
            state,
            number=state.number + 1,
            after=emit.upto,
            begin=event.point,
            delivered=event.delivered.copy() if event.delivered is not None else None,
            seen=[],
        )
        state, effects = self._plan_read(state, now)
        return state, [emit, *effects]

    def _build_emission(self, state: ChunkState, chunk: ChunkRead, at: LogPoint) -> EmitChunk:
        rows, touched = chunk.rows, state.touched
        keys = _list_keys(state.table, rows)
        left = tuple(row for row, key in zip(rows, keys, strict=True) if key not in touched)
        upto = keys[-1] if len(rows) >= state.limit else None
        return EmitChunk(state.table, left, at, state.number, state.after, upto, state.repeated)


def _record_rows(state: ChunkState, event: RowsPassed) -> ChunkState:
    if state.chunk is None:
        state.seen.append((event.mark, event.keys))
    else:
        # The SELECT may have seen this transaction already. Its image in the topic is then no older than
        # the chunk's row, so leaving the row out is still right.
        state.touched.update(key for key in event.keys if key in state.keys)
    return state


def _list_keys(table: Table, rows: Sequence[Row]) -> Sequence[Key]:
    """Return the keys of `rows`. The rows of a key sweep are keys."""
    columns = table.find_ordinals(table.key.columns)
    if columns == tuple(range(len(table.columns))):
        return rows
    return [tuple(row[i] for i in columns) for row in rows]
