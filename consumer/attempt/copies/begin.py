"""Finds the copy of a table at which a unit continues if it cannot follow its topic. Apart from two
effects, nothing here does I/O.

A copy brings every row that the source has at its begin or later, in its own rows or as a change, and
its end shows which rows are left. A unit that continues at the begin of a copy therefore needs no event
before it (docs/adr/0026-applying-a-copy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from consumer.attempt.copies.sweep import MAX_QUICK_SWEEP_KEYS
from consumer.attempt.effects import FindBegin, Machine, ReadPassed, ask_driver
from consumer.attempt.operations import Operation, WriteUnit
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import CopyNeededError, TakesLongError
from consumer.ordering.model import LaneProgress, UnitState
from consumer.ordering.progress import LaneMark
from consumer.tables.evolution.decisions import DROPPED_CAUSE
from consumer.tables.stored import StoredDefinition
from schemas.errors import EnvelopeError
from schemas.wire.codec import decode_event
from schemas.wire.copies import MAX_DDL_LENGTH, RemovedRows
from schemas.wire.event import EventEnvelope

_MARK = b'"copy":{'
"""Bytes that every begin event of a copy contains, and that few other events contain."""
ROWS_REMOVED = "p"
_REMOVAL_MARKS = (b'"op":"p"', b'"stop":{')
"""Bytes of which every event has one that shows, or may hide, a statement that removed rows."""
_DELETED = "unknown: Kafka has deleted events"


def move_to_copy_begin(
    spec: UnitSpec,
    progress: AttemptProgress,
    error: CopyNeededError,
    stored: StoredDefinition | None = None,
    *,
    keeps: bool = False,
) -> Machine[bool]:
    """Move all lanes to just before a copy that begins after `error.after`; return whether there is one.

    The lanes have applied all events before `error.after`. Without a hint, only a patient attempt
    searches the whole topic. `stored`: the unit's definition. The copy also compares what a key sweep has
    passed. `keeps`: its route keeps rows that statements remove: a skipped statement may be one, and is then
    noted as a debt with the move.
    """
    after = error.after or 0
    hint = spec.copy_at if spec.copy_at is not None and spec.copy_at > after else None
    if hint is None and not spec.patient:
        return False
    found = yield from ask_driver(FindBegin(after, hint))
    if found is None:
        return False
    mark = find_mark_before_copy(progress.rows, after, *found)
    if mark is None:
        return False
    lanes = progress.list_lanes_below(mark)
    moved = None if stored is None else replace(stored, sweep_since=None)
    if (
        lanes
        and keeps
        and moved is not None
        and (why := (yield from find_skipped_removal(spec, progress.lowest.offset + 1, mark[0] + 1, error)))
    ):
        debt = RemovedRows(
            id=f"rows removed before offset {mark[0] + 1}", offset=mark[0], ddl=why, since_ms=mark[3]
        )
        moved = moved.add_debt(debt, kept=True)
    operations: list[Operation] = []
    if moved is not None and moved != stored:
        operations.append(WriteUnit(UnitState(moved.encode(), None, None)))
    if lanes:
        yield from retry_transient(lambda: progress.move_lanes(lanes, mark, operations))
    elif operations:  # already there
        yield from progress.commit_guarded(operations)
    return True


def find_skipped_removal(
    spec: UnitSpec, start: int, upto: int, error: CopyNeededError
) -> Machine[str | None]:
    """Return the statement among the events with offsets in [start, upto) that removed rows, or why there may
    be one; None: there is none.

    Raises TakesLongError.
    """
    if error.cause == "gap":
        return "unknown: events are missing in the topic"
    if start == upto:
        return None
    if upto - start > MAX_QUICK_SWEEP_KEYS and not spec.patient:
        raise TakesLongError(
            f"{spec.unit.topic}: rowlock is reading the events before a copy, to find out whether a "
            "statement removed rows"
        )
    found: str | None = None
    first = upto
    try:
        while (records := (yield from ask_driver(ReadPassed(start, upto)))) is not None:
            first = min(first, records[0][0])
            for _, raw in records:
                found = _describe_removal(raw) or found
    except CopyNeededError:
        return _DELETED
    return found if first == start else _DELETED


def _describe_removal(raw: bytes | None) -> str | None:
    """Return the statement of an event that removed rows, or why there may have been such a statement after
    it: capture writes nothing of a stopped table. After a DROP TABLE there were no rows left.
    """
    if raw is None or not any(mark in raw for mark in _REMOVAL_MARKS):
        return None
    try:
        event = decode_event(raw)
    except EnvelopeError as error:
        return f"unknown: {error}"[:MAX_DDL_LENGTH]
    if event.stop is not None and event.stop.cause != DROPPED_CAUSE:
        return f"unknown: capture had stopped the table: {event.stop.reason}"[:MAX_DDL_LENGTH]
    return (event.ddl or "unknown")[:MAX_DDL_LENGTH] if event.op == ROWS_REMOVED else None


def find_mark_before_copy(
    rows: Sequence[LaneProgress], after: int, offset: int, raw: bytes | None
) -> LaneMark | None:
    """Return the mark from which lanes next read the copy's begin event at `offset`; None if lanes at
    `rows` cannot continue there.

    The mark's position is that of the begin's predecessor in the topic, which was not read. So the
    skipped events do not look like a gap.
    """
    event = None if raw is None else decode_copy_begin(raw)
    if event is None or offset <= after:
        return None
    source, position = event.source, max(row.position for row in rows)
    if source.gen < max(row.gen for row in rows) or source.position <= position:
        return None  # of a replaced capture process: its successor's events may have lower positions
    if source.prev is not None:
        position = max(position, source.prev)
    return offset - 1, position, source.gen, source.ts_ms


def decode_copy_begin(raw: bytes) -> EventEnvelope | None:
    """Return the event in `raw` if it begins a copy of the whole table, otherwise None.

    A key sweep brings no row, so no unit can continue at its begin.
    """
    if _MARK not in raw:
        return None
    try:
        event = decode_event(raw)
    except EnvelopeError:
        return None
    copy = event.copy
    begins = copy is not None and event.definition is not None and not (copy.partial or copy.keys)
    return event if begins else None


def find_begin(
    read: Callable[[int, int], Iterable[RecordSlice]],
    rest: Callable[[int], Iterable[RecordSlice]],
    after: int,
    hint: int | None,
) -> tuple[int, bytes] | None:
    """Return the copy's begin event at offset `hint` if there is one, else the first one after `after`.

    `read`: returns the records of a topic in [start, upto). `rest`: returns those from an offset on.
    """
    if hint is not None and (found := find_first_copy_begin(read(hint, hint + 1))) is not None:
        return found
    return find_first_copy_begin(rest(after + 1))


def find_first_copy_begin(slices: Iterable[RecordSlice]) -> tuple[int, bytes] | None:
    """Return the first begin event of a copy among consecutive records. Records written by a capture
    process that was already replaced are ignored.
    """
    gen = 0
    for records in slices:
        for offset, raw in records:
            if raw is None:
                continue
            gen = max(gen, _read_assignment(raw))
            if (event := decode_copy_begin(raw)) is not None and event.source.gen >= gen:
                return offset, raw
    return None


def _read_assignment(raw: bytes) -> int:
    """Return the capture generation at the end of an event's `source`; 0 if `raw` is not an event."""
    _, found, rest = raw.rpartition(b'"gen":')
    digits = rest[: len(rest) - len(rest.lstrip(b"0123456789"))]
    return int(digits) if found and digits else 0
