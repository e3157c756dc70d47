"""Decisions about progress rows: where to start, with which layout, and what to write.

The rows of `rowlock_progress` are authoritative; these functions derive the next step from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from consumer.errors import CopyNeededError, FencedError, UnitStoppedError
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress
from schemas.findings import START_OVER
from schemas.wire.position import Position

LaneMark = tuple[int, Position, int, int]
"""The progress of a lane: (offset, position, gen, source commit time in ms)."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The progress from which an attempt continues."""

    start: int
    """The first offset to read (lowest lane + 1)."""
    layout: Layout
    """The layout to dispatch with."""
    finish: int | None = None
    """The highest lane's offset if the layout changes there: no later event may be dispatched with `layout`.

    Drain the lanes with the marks reached there. Then all lanes are at one offset: write `relay_rows()` and
    plan again.
    """
    switch_now: bool = False
    """Whether all lanes are at one offset and another layout is configured: replace the rows first."""


def plan_resume(rows: Sequence[LaneProgress], configured: Layout) -> ResumePlan:
    """Return the plan for the rows read at the begin of an attempt.

    Raises UnitStoppedError if the rows are damaged, or if the lanes are at different offsets and this
    version cannot compute the stored layout.
    """
    stored = Layout.decode(rows[0].layout)
    if len(rows) != stored.lanes or any(row.layout != rows[0].layout for row in rows):
        raise UnitStoppedError(
            f"table rowlock_progress of the target is damaged: it has {len(rows)} rows of this topic, which "
            f"do not match their layout {rows[0].layout}",
            f"restore the target from a backup, or {START_OVER}",
        )
    offsets = [row.offset for row in rows]
    start = min(offsets) + 1
    if stored == configured:
        return ResumePlan(start, stored)
    if min(offsets) == max(offsets):
        return ResumePlan(start, configured, switch_now=True)
    if not stored.computable:
        raise UnitStoppedError(
            f"the rows of rowlock_progress are at different offsets ({offsets}) in a layout of another "
            f"version ({rows[0].layout})",
            "run the version of rowlock that wrote them until it has caught up, then this one",
        )
    return ResumePlan(start, stored, finish=max(offsets))


def relay_rows(rows: Sequence[LaneProgress], configured: Layout) -> list[LaneProgress]:
    """Return the rows of the layout `configured`, all at the offset of `rows`.

    Raises ValueError if `rows` are at different offsets: keys would move to a lane with other progress.
    """
    first = rows[0]
    if any(row.offset != first.offset for row in rows):
        raise ValueError(f"lanes are at different offsets: {[row.offset for row in rows]}")
    text = configured.encode()
    return [replace(first, lane=lane, layout=text) for lane in range(configured.lanes)]


def advance_row(row: LaneProgress, mark: LaneMark) -> LaneProgress:
    """Return `row` moved to `mark`, as a lane writes it last in its transaction.

    Raises ValueError for a step back.
    """
    offset, position, gen, commit_ts_ms = mark
    if offset < row.offset or position < row.position:
        raise ValueError(f"lane {row.lane} at {row.offset} {row.position} cannot go back to {mark}")
    return replace(
        row, offset=offset, position=position, gen=gen, commit_ts_ms=max(commit_ts_ms, row.commit_ts_ms)
    )


def was_committed(read: LaneProgress | None, guard: LaneProgress, wrote: LaneProgress) -> bool:
    """Return whether a commit of unknown outcome happened, by the row `read` afterwards.

    `guard`: the row before. `wrote`: the row as the transaction left it. If these are equal, the answer
    is no: applying a range again is harmless. Raises FencedError if the row is neither.
    """
    if read is not None and (read.epoch, read.attempt) == (guard.epoch, guard.attempt):
        found = (read.offset, read.layout)
        if found == (guard.offset, guard.layout):
            return False
        if found == (wrote.offset, wrote.layout):
            return True
    raise FencedError(
        f"another process took the unit over: row {guard.lane} of rowlock_progress is {read}, "
        f"expected {guard} or {wrote}"
    )


def find_lost_offsets(rows: Sequence[LaneProgress], topic_id: str, end: int) -> CopyNeededError | None:
    """Return why the offsets in `rows` are not those of the topic; None: they are. `end`: the topic's next
    offset in Kafka.

    Only a copy that begins in the topic as it is now brings the lost events.

    Deleted events at the topic's begin are found by the attempt that lacks them, because a copy of the
    table can replace them.
    """
    stored = rows[0].topic_id
    highest = max(row.offset for row in rows) + 1
    if stored and stored != topic_id:
        return CopyNeededError(
            f"the topic was deleted and created again in Kafka (its id is {topic_id}, {stored} was applied), "
            "so Kafka no longer has the events that the target had not applied yet",
            cause="topic-lost", after=-1,
        )  # fmt: skip
    if highest > end:
        return CopyNeededError(
            f"the target has applied offset {highest - 1}, but the topic ends at {end}: the topic has lost "
            "its last records",
            cause="topic-lost", after=-1,
        )  # fmt: skip
    return None
