"""From what a unit has applied to what that means in the source's time (design.md §7, progress). Pure.

A watermark says: everything up to `commit_ts_ms` is in the topics, and each topic it names ended at that offset then. So
a unit that has applied its topic up to where it ended at some watermark is applied up to that watermark's time; a
topic that is not named has not grown, and an idle table advances with its source.

What is kept per topic is a list of (end, time before it): who has applied less than `end` stands at that time at best.
When the list grows long, neighbours become (later end, earlier time): never ahead, only coarser.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.wire.copies import CopyState
from schemas.wire.records import Watermark

MAX_TOPIC_ENTRIES = 128
"""Entries kept per topic: two minutes of a busy topic exactly, and hours of a backlog more coarsely."""

UNKNOWN_TIME = 0


@dataclass(slots=True)
class TopicWatermarks:
    """`ends` rises; `before[i]`: source time that holds for who has applied less than `ends[i]`."""

    ends: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    def add_watermark(self, end: int, before: int) -> None:
        if self.ends and end < self.ends[-1]:  # the topic was made again: nothing that was known holds
            self.ends, self.before, before = [], [], UNKNOWN_TIME
        if not self.ends or end > self.ends[-1]:
            self.ends.append(end)
            self.before.append(before)
        if len(self.ends) > MAX_TOPIC_ENTRIES:
            self._halve_entries()

    def _halve_entries(self) -> None:
        half = len(self.ends) // 4 * 2  # pairs only
        self.ends[:half] = self.ends[1:half:2]
        self.before[:half] = self.before[0 : half - 1 : 2]


@dataclass(slots=True)
class SourceWatermarks:
    """The sum of what the watermarks of one source have said so far. `resolved_ts`: captured up to. `copies`: "db.table" → of the last one."""

    gen: int = 0
    resolved_ts: int = UNKNOWN_TIME
    topics: dict[str, TopicWatermarks] = field(default_factory=dict)
    copies: Mapping[str, CopyState] = field(default_factory=dict)

    def fold_watermark(self, mark: Watermark) -> None:
        """Take the next watermark of the topic; one of a capture unit that has been replaced says nothing."""
        if mark.gen < self.gen:
            return
        self.gen = mark.gen
        for topic, last in mark.topics.items():
            known = self.topics.get(topic)
            if known is None:
                self.seed_topic(topic, last)
            else:
                known.add_watermark(last, self.resolved_ts)
        self.resolved_ts = max(self.resolved_ts, mark.commit_ts_ms)
        self.copies = mark.copies

    def seed_topic(self, topic: str, last: int) -> None:
        """Say that `topic`'s last offset was at most `last` at every watermark folded so far."""
        if topic not in self.topics:
            self.topics[topic] = TopicWatermarks([last], [UNKNOWN_TIME])

    def compute_checkpoint(self, topic: str, applied: int) -> int:
        """Return the source time up to which everything of `topic` is applied when `applied` is its last applied
        offset (-1: none). UNKNOWN_TIME (0) until enough has been seen."""
        known = self.topics.get(topic)
        if known is None:
            return UNKNOWN_TIME
        at = bisect_right(known.ends, applied)
        return self.resolved_ts if at == len(known.ends) else known.before[at]
