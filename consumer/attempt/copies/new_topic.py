"""Continues a unit at a copy of its table if the offsets of its progress are not those of its topic: the
topic was deleted and created again, or has lost its last records. Apart from effects, nothing here does I/O.

1. Nothing of such a topic is applied before the begin of a copy with a position above everything applied. So
   it was written after the loss, whatever its offset is.
2. One transaction replaces all lane rows: id and offsets are the topic's, position and generation are those
   before the begin. Neither of the two ever becomes lower.
3. The same transaction ends what refers to the lost offsets, which must not be compared with those of the
   topic as it is now. The copy brings every row again, so it closes the quarantine and supersedes displaced
   rows, and it pays a debt of removed rows whatever its offset is.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replace_struct

from consumer.attempt.copies.begin import find_mark_before_copy
from consumer.attempt.effects import FindBegin, Machine, ask_driver
from consumer.attempt.operations import CloseQuarantineBefore, Operation, SupersedeDisplaced, WriteUnit
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import CopyNeededError
from consumer.ordering.model import LaneProgress, UnitState
from consumer.ordering.progress import LaneMark
from consumer.tables.router import resolve_route
from consumer.tables.stored import StoredDefinition

_AFTER_ALL_OFFSETS = 2**63 - 1


def move_to_new_topic(
    spec: UnitSpec,
    progress: AttemptProgress,
    stored: StoredDefinition | None,
    lost: CopyNeededError,
    topic_id: str,
) -> Machine[None]:
    """Move all lanes to just before a copy that begins in the topic `topic_id` above everything applied.

    `stored`: the unit's definition. Raises `lost` if no such copy has begun.
    """
    mark = yield from _find_mark(spec, progress)
    if mark is None:
        raise lost
    rows = [_move_row(row, mark, topic_id) for row in progress.rows]
    operations = _forget_lost_offsets(spec, stored, mark[0] + 1)
    yield from retry_transient(lambda: progress.replace_lanes(rows, operations))


def _find_mark(spec: UnitSpec, progress: AttemptProgress) -> Machine[LaneMark | None]:
    """Return the mark before the last copy, if its offset is known, or else before the first one that
    qualifies.
    """
    after, hint = -1, spec.copy_at
    while (found := (yield from ask_driver(FindBegin(after, hint)))) is not None:
        mark = find_mark_before_copy(progress.rows, -1, *found)
        if mark is not None:
            return mark
        after, hint = (found[0] if hint is None else -1), None
    return None


def _move_row(row: LaneProgress, mark: LaneMark, topic_id: str) -> LaneProgress:
    offset, position, gen, _ = mark
    return replace_struct(row, topic_id=topic_id, offset=offset, position=position, gen=gen)


def _forget_lost_offsets(spec: UnitSpec, stored: StoredDefinition | None, begin: int) -> list[Operation]:
    why = f"the topic lost this event, and a copy that begins at offset {begin} brings the row again"
    operations: list[Operation] = [CloseQuarantineBefore(_AFTER_ALL_OFFSETS, why)]
    if stored is None:
        return operations
    routed = resolve_route(spec.routes, spec.source, stored.table.db, stored.table.name)
    if routed is not None and routed.topic is None and not spec.batches:  # only there rows are displaced
        why = f"by the copy from offset {begin}, after the topic had lost events"
        place = f"{routed.schema}.{routed.table}"
        operations.append(SupersedeDisplaced(place, _AFTER_ALL_OFFSETS, why))
    moved = _replace_offsets(stored, begin)
    if moved != stored:
        operations.append(WriteUnit(UnitState(moved.encode(), None, None)))
    return operations


def _replace_offsets(stored: StoredDefinition, begin: int) -> StoredDefinition:
    """Return the definition of a unit that continues at the copy that begins at the offset `begin`, without
    lost offsets.
    """
    removed = None if stored.removed is None else replace_struct(stored.removed, offset=-1)
    since = None if stored.columns_stable_since is None else begin
    return replace(stored, removed=removed, sweep_since=None, emptied_at=None, columns_stable_since=since)
