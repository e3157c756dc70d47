"""Duplicates: decides which events of a topic are new.

A topic may contain an event several times (capture is at-least-once) and events of a capture process
that was already replaced (a zombie). The running maximum of (position, gen), rebuilt from the *lowest*
lane, recognises both. It depends on the topic's prefix alone, so every reading of the topic judges every
record alike. Whether a *lane* drops an event because it has passed it can therefore be decided by offset
(dispatch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from consumer.errors import CopyNeededError
from consumer.ordering.model import LaneProgress
from schemas.wire.position import Position


class DuplicateVerdict(IntEnum):
    """The verdict of `Deduplicator.judge_record` on an event.

    Only ACCEPT is 0, so a true value means "drop".
    """

    ACCEPT = 0
    COVERED = 1  # offset not above the lowest lane's, or judged before: every lane has it
    DUPLICATE = 2  # position not above the highest accepted one
    ZOMBIE = 3  # gen below the highest seen


# plain ints: the hot path compares and returns them by the hundred thousand
_ACCEPT, _COVERED, _DUPLICATE, _ZOMBIE = (int(verdict) for verdict in DuplicateVerdict)


class Deduplicator:
    """The highest position and generation of one topic. Pass every record once, in offset order, from
    the lowest lane's offset + 1.

    `position`, `gen`: highest accepted so far; idle lanes write them at the end of a batch. `offset`:
    the last judged one.
    """

    __slots__ = ("gen", "offset", "position")

    def __init__(self, lanes: Sequence[LaneProgress]) -> None:
        """`lanes`: the progress rows as read at the begin of the attempt; must not be empty."""
        lowest = min(lanes, key=lambda row: row.offset)
        self.offset: int = lowest.offset
        self.position: Position = lowest.position
        self.gen: int = lowest.gen

    def judge_record(self, offset: int, position: Position | None, prev: Position | None, gen: int) -> int:
        """Return the `DuplicateVerdict` (as int) of the record at `offset`, and move the marks.

        A record without a `position` (of a Debezium snapshot) is judged by its offset only; use
        `self.position` as its position then. Raises CopyNeededError for a gap: an acceptable event with
        a predecessor that this reader never accepted.
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
            f"gap in the topic: the event at offset {offset}, position {list(position)}, names the "
            f"preceding position {list(prev)}, but the last event that was read has {list(self.position)}: "
            "the events between them were lost on the way into Kafka or deleted from the topic",
            cause="gap", after=offset,
        )  # fmt: skip
