"""Duplicates: decides which events of a topic are new (design.md §6 Duplicates, findings 3, 4 and 14).

A topic may hold an event several times (at-least-once capture) and events of a capture task that was already
replaced (a zombie). The running maximum (position, gen), rebuilt from the lane that stands *lowest*, recognises
both. Because it is a function of the topic's prefix alone, every reading of the topic judges every record alike;
that an event is dropped *in its lane* iff that lane has passed it can therefore be decided by offset (dispatch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from consumer.errors import CopyNeededError
from consumer.ordering.model import LaneProgress
from schemas.wire.position import Position


class DuplicateVerdict(IntEnum):
    """The verdict of `Deduplicator.judge` on an event; only ACCEPT is 0, so `if judge(...)` means "drop"."""

    ACCEPT = 0
    COVERED = 1  # offset not above the lowest lane's, or judged before: every lane has it
    DUPLICATE = 2  # position not above the highest accepted one
    ZOMBIE = 3  # gen below the highest seen


# plain ints: the hot path compares and returns them by the hundred thousand
_ACCEPT, _COVERED, _DUPLICATE, _ZOMBIE = (int(verdict) for verdict in DuplicateVerdict)


class Deduplicator:
    """The marks of one topic. Feed every record in offset order, once, beginning at the lowest lane's offset + 1.

    `position`, `gen`: highest accepted so far (what idle lanes write at the end of a batch). `offset`: last judged.
    """

    __slots__ = ("gen", "offset", "position")

    def __init__(self, lanes: Sequence[LaneProgress]) -> None:
        """`lanes`: the progress rows as read at the begin of the attempt; must not be empty."""
        lowest = min(lanes, key=lambda row: row.offset)
        self.offset: int = lowest.offset
        self.position: Position = lowest.position
        self.gen: int = lowest.gen

    def judge_record(self, offset: int, position: Position | None, prev: Position | None, gen: int) -> int:
        """Return the `DuplicateVerdict` (as int) of the record at `offset` and move the marks.

        `position` None: a record without one of its own (Debezium's snapshot rows): by offset only; take
        `self.position` as its position then. Raises CopyNeededError for a gap: an acceptable event whose
        predecessor this reader never accepted.
        """
        if offset <= self.offset:
            return _COVERED
        self.offset = offset
        if gen < self.gen:
            return _ZOMBIE
        self.gen = gen
        if position is None:
            return _ACCEPT
        if position <= self.position:
            return _DUPLICATE
        if prev is not None and prev > self.position:
            raise self._build_gap_error(offset, position, prev)
        self.position = position
        return _ACCEPT

    def _build_gap_error(self, offset: int, position: Position, prev: Position) -> CopyNeededError:
        return CopyNeededError(
            f"gap in the topic: the event at offset {offset}, position {list(position)}, follows position {list(prev)}, "
            f"but the last one that was accepted is {list(self.position)}. Events between them were lost on the way into "
            "Kafka or deleted from it",
            cause="gap", after=offset,
        )  # fmt: skip
