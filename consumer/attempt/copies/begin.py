"""Finds where a unit goes on that cannot follow its topic: at the begin of a copy of the table. Pure but for two effects.

A copy brings every row that the source has at its begin or later, in its own rows or as a change, and says at its end which rows are left; so
whoever goes on at a begin needs nothing of what stands before it (docs/adr/0026-applying-a-copy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from consumer.attempt.effects import FindBegin, Machine
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
"""Stands in every event with which a copy begins, and in few others."""


def move_to_copy_begin(spec: UnitSpec, progress: AttemptProgress, error: CopyNeededError) -> Machine[bool]:
    """Move all lanes, which have applied what comes before `error.after`, to just before a copy that begins behind it.

    Ends with whether there is one. Without a hint where, only who has the time looks for it in the whole topic.
    """
    after = error.after or 0
    hint = spec.copy_at if spec.copy_at is not None and spec.copy_at > after else None
    if hint is None and not spec.patient:
        return False
    found = yield FindBegin(after, hint)
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
    """Return where lanes stand that next read the begin at `offset`; None: no unit that stands at `rows` can go on there.

    Their position is that of the begin's predecessor in the topic, which nobody read: so no gap is seen where something was passed over.
    """
    event = None if raw is None else decode_copy_begin(raw)
    if event is None or offset <= after:
        return None
    source, position = event.source, max(row.position for row in rows)
    if source.gen < max(row.gen for row in rows) or source.position <= position:
        return None  # of a capture that was replaced before: what its successor writes may stand below it
    if source.prev is not None:
        position = max(position, source.prev)
    return offset - 1, position, source.gen, source.ts_ms


def decode_copy_begin(raw: bytes) -> EventEnvelope | None:
    """Return the event with which a copy of the whole table begins, if `raw` is one."""
    if _MARK not in raw:
        return None
    try:
        event = decode_event(raw)
    except EnvelopeError:
        return None
    begins = event.copy is not None and event.definition is not None and not event.copy.partial
    return event if begins else None


def find_begin(
    read: Callable[[int, int], Iterable[RecordSlice]],
    rest: Callable[[int], Iterable[RecordSlice]],
    after: int,
    hint: int | None,
) -> tuple[int, bytes] | None:
    """Return the begin at `hint`, if it is one, or else the first one behind `after`. `read`: what [start, upto) of a topic holds;
    `rest`: from start on."""
    if hint is not None and (found := find_first_copy_begin(read(hint, hint + 1))) is not None:
        return found
    return find_first_copy_begin(rest(after + 1))


def find_first_copy_begin(slices: Iterable[RecordSlice]) -> tuple[int, bytes] | None:
    """Return the first begin among records that follow each other, which no capture wrote that was replaced before."""
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
    """Return the number of the assignment that wrote an event, as it stands at the end of `source`; 0: not an event."""
    _, found, rest = raw.rpartition(b'"gen":')
    digits = rest[: len(rest) - len(rest.lstrip(b"0123456789"))]
    return int(digits) if found and digits else 0
