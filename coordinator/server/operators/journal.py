"""The journal of a coordinator's actions and observations: each is logged, and the last ones are kept
for operators.

`GET /v1/events` and `rowlock events` show it. It is kept in memory: a later leader begins with its
election. The leader's thread writes it, and any thread may read it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

log = structlog.get_logger("coordinator")

#: The most events that are kept.
MAX_JOURNAL_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of the journal."""

    number: int
    """Counts from 1 in this process."""
    ts_ms: int
    """Wall clock."""
    rev: int
    what: str
    """A short constant phrase."""
    about: Mapping[str, object]
    """Its details."""


class Journal:
    """The last `MAX_JOURNAL_EVENTS` events."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._kept: deque[EventRow] = deque(maxlen=MAX_JOURNAL_EVENTS)
        self._number = 0
        self._counts: Counter[str] = Counter()
        self._moves: Counter[str] = Counter()

    def record_event(self, rev: int, what: str, about: Mapping[str, object], *, alarm: bool = False) -> None:
        """Log and keep an event of term `rev` (0: of no term of this coordinator)."""
        (log.warning if alarm else log.info)(what, rev=rev, **about)
        with self._lock:
            self._number += 1
            self._counts[what] += 1
            if "cause" in about:
                self._moves[str(about["cause"])] += 1
            self._kept.append(EventRow(self._number, int(self._wall() * 1000), rev, what, about))

    def list_events_after(self, number: int, most: int) -> tuple[EventRow, ...]:
        """Return the events after `number`, oldest first, at most the newest `most`."""
        with self._lock:
            found = [row for row in self._kept if row.number > number]
        return tuple(found[-most:])

    def count_events(self) -> Mapping[str, int]:
        """Return phrase → the number of its events since this process started, also of those that are no
        longer kept.
        """
        with self._lock:
            return dict(self._counts)

    def count_moves(self) -> Mapping[str, int]:
        """Return cause → how many units have come to another agent since this process started."""
        with self._lock:
            return dict(self._moves)
