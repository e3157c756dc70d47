"""The progress of first copies, by the watermarks of capture. Pure.

A watermark names the tables whose first copy is not complete, and the last offsets of the topics that were
written in the second before it. In the topic of such a table almost every record is a row of the copy, so
its offsets count the rows, about as exactly as the server's estimate does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.wire.records import Watermark

FIRST_COPY_RATE_WINDOW_S = 30.0
"""A rate is measured over at most this many seconds, and over half of them once there are as many."""


@dataclass(frozen=True, slots=True)
class FirstCopyProgress:
    """The progress of a first copy, or of several."""

    rows: int
    estimate: int | None = None
    """Rows in all by the server's estimate; None: not known."""
    rows_per_s: float | None = None
    """None: not known, or the copy has not begun."""
    eta_s: float | None = None

    def describe(self) -> str:
        """Return the rows, their rate and the remaining time, for a line."""
        of = f" of about {self.estimate:,}" if self.estimate else ""
        rate = "" if self.rows_per_s is None else f", {self.rows_per_s:,.0f} rows/s"
        left = "" if self.eta_s is None else f", about {self.eta_s:,.0f} s left"
        return f"{self.rows:,}{of} rows{rate}{left}"


@dataclass(frozen=True, slots=True)
class FirstCopy:
    """The first copy of a table ("db.table") that is not complete."""

    source: str
    table: str
    progress: FirstCopyProgress

    @property
    def has_begun(self) -> bool:
        return self.progress.rows > 0


@dataclass(slots=True)
class RateWindow:
    """A count at two earlier moments: its rate is measured since the first of them."""

    begin: tuple[float, int]
    middle: tuple[float, int]
    last: tuple[float, int]

    @classmethod
    def open_at(cls, now_s: float, count: int) -> RateWindow:
        return cls((now_s, count), (now_s, count), (now_s, count))

    def note_count(self, now_s: float, count: int) -> None:
        if now_s - self.middle[0] >= FIRST_COPY_RATE_WINDOW_S / 2:
            self.begin, self.middle = self.middle, (now_s, count)
        self.last = (now_s, count)

    @property
    def rate(self) -> float | None:
        """The growth per second; None: there was one reading."""
        elapsed_s = self.last[0] - self.begin[0]
        return max(0, self.last[1] - self.begin[1]) / elapsed_s if elapsed_s > 0 else None


@dataclass(slots=True)
class _PendingTable:
    """A table whose first copy is not complete."""

    is_topic_new: bool
    """Whether its topic held nothing before this copy. Otherwise rows are counted from the first offset that
    is seen, because the earlier ones may be those of an earlier copy.
    """
    first_offset: int | None = None
    last_offset: int = -1
    window: RateWindow | None = None

    def note_offset(self, now_s: float, offset: int | None) -> None:
        """Note the topic's last offset; None: it is as it was. Time before the first row is not measured."""
        if offset is not None:
            self.last_offset = offset
        is_first = self.first_offset is None
        if is_first:
            self.first_offset = offset
        if self.window is None or is_first or self.rows == 0:
            self.window = RateWindow.open_at(now_s, self.last_offset)
        self.window.note_count(now_s, self.last_offset)

    @property
    def rows(self) -> int:
        """The records that were written since. The first one of a new topic is the table's definition."""
        return max(0, self.last_offset) if self.is_topic_new else self.seen_rows

    @property
    def seen_rows(self) -> int:
        """The rows that were written while the topic was watched."""
        return 0 if self.first_offset is None else self.last_offset - self.first_offset


@dataclass(slots=True)
class SourceFirstCopies:
    """The first copies of one source. `estimates`: "db.table" → rows; None: the source has not answered."""

    source: str
    clock_s: Callable[[], float] = time.monotonic
    estimates: Mapping[str, int] | None = None
    _tables: dict[str, _PendingTable] = field(default_factory=dict)
    _complete: dict[str, int] = field(default_factory=dict)
    """The tables whose copy was seen to end → their rows."""
    _complete_seen: int = 0
    """The rows of these tables that were written while they were watched."""
    _window: RateWindow | None = None

    def set_estimates(self, estimates: Mapping[str, int]) -> None:
        """Use the source's answer. Thread-safe."""
        self.estimates = estimates

    def note_watermark(self, mark: Watermark, topics: Mapping[str, str]) -> None:
        """Note the source's last watermark. `topics`: topic → "db.table" of those that it names."""
        now_s = self.clock_s()
        offsets = {topics[topic]: offset for topic, offset in mark.topics.items() if topic in topics}
        has_begun = bool(self._complete) or any(each.rows for each in self._tables.values())
        for table in mark.snapshot_pending:
            if table not in self._tables:
                is_topic_new = mark.position[0] == 0 and table not in self._complete
                self._tables[table] = _PendingTable(is_topic_new)
        for table, pending in self._tables.items():
            pending.note_offset(now_s, offsets.get(table))
        for table in self._tables.keys() - set(mark.snapshot_pending):
            self._complete_table(table)
        seen = self._complete_seen + sum(each.seen_rows for each in self._tables.values())
        # Time before the first row is not measured.
        if self._window is None or (seen == 0 and not has_begun):
            self._window = RateWindow.open_at(now_s, seen)
        self._window.note_count(now_s, seen)

    def _complete_table(self, table: str) -> None:
        """Count a table whose copy has ended: by the estimate if no watermark with its rows was seen."""
        pending, estimate = self._tables.pop(table), (self.estimates or {}).get(table, 0)
        self._complete[table] = pending.rows or estimate
        self._complete_seen += pending.seen_rows if pending.rows else estimate

    @property
    def is_complete(self) -> bool:
        return not self._tables

    def list_copies(self) -> list[FirstCopy]:
        """Return the copies that are not complete."""
        return [
            FirstCopy(self.source, name, self._build_progress(name, each))
            for name, each in self._tables.items()
        ]

    def _build_progress(self, table: str, pending: _PendingTable) -> FirstCopyProgress:
        estimate = (self.estimates or {}).get(table) or None
        rate = None if pending.window is None else pending.window.rate
        return build_progress(pending.rows, estimate, rate)

    def compute_total(self) -> FirstCopyProgress:
        """Return the progress of all of them, with those that were seen to end."""
        done = sum(self._complete.values())
        rows = done + sum(each.rows for each in self._tables.values())
        rate = None if self._window is None else self._window.rate
        if self.estimates is None:
            return build_progress(rows, None, rate)
        left = (max(each.rows, self.estimates.get(name, 0)) for name, each in self._tables.items())
        return build_progress(rows, done + sum(left), rate)


def build_progress(rows: int, estimate: int | None, rate: float | None) -> FirstCopyProgress:
    """Return the progress. Its remaining time is not known once there are more rows than estimated."""
    left = 0 if estimate is None else estimate - rows
    return FirstCopyProgress(rows, estimate, rate, left / rate if left > 0 and rate else None)


def add_sources(sources: Iterable[FirstCopyProgress]) -> FirstCopyProgress:
    """Return the sums of several sources. They are copied side by side, so the slowest one counts."""
    each = list(sources)
    estimates = [one.estimate for one in each if one.estimate is not None]
    rates = [one.rows_per_s for one in each if one.rows_per_s is not None]
    is_estimated = len(estimates) == len(each)
    return FirstCopyProgress(
        sum(one.rows for one in each),
        sum(estimates) if is_estimated else None,
        sum(rates) if rates else None,
        max((one.eta_s for one in each if one.eta_s is not None), default=None) if is_estimated else None,
    )
