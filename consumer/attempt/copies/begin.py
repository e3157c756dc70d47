"""Finds the copy of a table at which a unit continues if it cannot follow its topic. Apart from two
effects, nothing here does I/O.

A copy brings every row that the source has at its begin or later, in its own rows or as a change, and
its end shows which rows are left. A unit that continues at the begin of a copy therefore needs no event
before it (docs/adr/0026-applying-a-copy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from consumer.attempt.effects import FindBegin, Machine, ask_driver
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import CopyNeededError
from consumer.ordering.model import LaneProgress
from consumer.ordering.progress import LaneMark
from schemas.errors import EnvelopeError
from schemas.wire.codec import decode_event
from schemas.wire.event import EventEnvelope

_MARK = b'"copy":{'
"""Bytes that every begin event of a copy contains, and that few other events contain."""


def move_to_copy_begin(spec: UnitSpec, progress: AttemptProgress, error: CopyNeededError) -> Machine[bool]:
    """Move all lanes to just before a copy that begins after `error.after`; return whether there is one.

    The lanes have applied all events before `error.after`. Without a hint, only a patient attempt
    searches the whole topic.
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
    if lanes:
        yield from retry_transient(lambda: progress.move_lanes(lanes, mark))
    return True


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
