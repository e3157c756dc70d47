"""A log that can be opened at every event: what a TransactionStream connects to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from producer.binlog_format.log_event import BinlogEvent


class SeekableLog:
    """A log that can be opened anywhere, as a TransactionStream does; `size` events come at a time."""

    def __init__(self, events: list[BinlogEvent], size: int = 7) -> None:
        self.events, self.size = events, size
        self.on_stream_opened: list[int] = []

    def connect(self, file: str, pos: int) -> Reading:
        self.on_stream_opened.append(pos)
        return Reading(self, next(i for i, e in enumerate(self.events) if (e.file, e.start) == (file, pos)))


@dataclass
class Reading:
    server: SeekableLog
    at: int
    closed: bool = False
    recent: Sequence[BinlogEvent] = ()

    def read_events(self, timeout: float) -> list[BinlogEvent]:
        assert not self.closed
        found = self.server.events[self.at : self.at + self.server.size]
        self.at += len(found)
        self.recent = found
        return found

    def find_evidence(self, file: str, pos: int) -> tuple[BinlogEvent, ...]:
        return tuple(event for event in self.recent if (event.file, event.end) == (file, pos))

    @property
    def point(self) -> tuple[str, int]:
        if self.at == 0:
            return self.server.events[0].file, self.server.events[0].start
        last = self.server.events[self.at - 1]
        return last.file, last.end

    def close(self) -> None:
        self.closed = True
