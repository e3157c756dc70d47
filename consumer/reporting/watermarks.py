"""The source time up to which a unit is applied, computed from watermarks. Without I/O.

A watermark states that everything up to `commit_ts_ms` is in the topics, and at which offset each topic
that it names ended then. A unit that has applied its topic up to that offset is therefore applied up to
the watermark's time. A topic that is not named has not grown, so an idle table advances with its source.

Per topic a list of (end, time before it) is kept: a unit that has applied less than `end` has reached
that time at most. When the list grows long, two neighbours are merged into (later end, earlier time):
the result is never too late, only coarser.
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
    """The watermarks of one topic."""

    ends: list[int] = field(default_factory=list)
    """End offsets, rising."""
    before: list[int] = field(default_factory=list)
    """`before[i]`: the source time that a unit has reached at most if it has applied less than `ends[i]`."""

    def add_watermark(self, end: int, before: int) -> None:
        if self.ends and end < self.ends[-1]:  # the topic was created again: earlier watermarks do not apply
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
    """The watermarks of one source, folded."""

    gen: int = 0
    """The highest capture generation seen."""
    resolved_ts: int = UNKNOWN_TIME
    """The source time (ms) up to which the source is captured."""
    topics: dict[str, TopicWatermarks] = field(default_factory=dict)
    copies: Mapping[str, CopyState] = field(default_factory=dict)
    """"db.table" → the state of the last copy."""

    def fold_watermark(self, mark: Watermark) -> None:
        """Fold the next watermark of the topic in. A watermark of a replaced capture process is ignored."""
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
        """Record that `topic`'s last offset was at most `last` at every watermark folded so far."""
        if topic not in self.topics:
            self.topics[topic] = TopicWatermarks([last], [UNKNOWN_TIME])

    def compute_checkpoint(self, topic: str, applied: int) -> int:
        """Return the source time up to which all of `topic` is applied; UNKNOWN_TIME (0) until enough
        was read.

        `applied`: the topic's last applied offset; -1: none.
        """
        known = self.topics.get(topic)
        if known is None:
            return UNKNOWN_TIME
        at = bisect_right(known.ends, applied)
        return self.resolved_ts if at == len(known.ends) else known.before[at]
