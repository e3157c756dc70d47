"""The row events of prepared XA transactions, from memory or from the log at XA PREPARE.

The rules are in producer/sources/binlog/prepared_xa.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.errors import TransientSourceError
from schemas.wire.records import PreparedPlace

#: Bytes of prepared transactions that are held in memory together.
MAX_PREPARED_BYTES = 32 << 20

_ROWS = log.ANY_ROWS | {log.TABLE_MAP}


def select_rows(events: Iterable[BinlogEvent]) -> Iterator[BinlogEvent]:
    """Yield the row events, with their TABLE_MAPs."""
    return (event for event in events if event.type in _ROWS)


class PreparedRowsCache:
    """The events of the transactions that were prepared last, up to `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._held: dict[tuple[str, int], tuple[int, list[BinlogEvent]]] = {}

    def hold_events(self, first: BinlogEvent, events: Iterable[BinlogEvent], size: int) -> None:
        """Hold the `events` of the transaction that begins with `first`, of `size` bytes."""
        if size > self._limit:
            return
        self._held[first.file, first.start] = size, list(events)
        self._size += size
        while self._size > self._limit:
            self.take_events(*next(iter(self._held)))

    def take_events(self, file: str, pos: int) -> list[BinlogEvent] | None:
        """Remove and return the events of a transaction; None: they are not held."""
        size, events = self._held.pop((file, pos), (0, None))
        self._size -= size
        return events


class MarkedEvents(Protocol):
    """The log from XA PREPARE's transaction on, in which rows that were rolled back are marked:
    producer.sources.binlog.binlog_log.TransactionStream.
    """

    def read_events(self, timeout: float) -> Iterator[BinlogEvent]: ...
    def close(self) -> None: ...


class PreparedRowsReader:
    """Reads the rows at `place` again. `stream`: the log from there on."""

    def __init__(self, stream: MarkedEvents, place: PreparedPlace) -> None:
        self._stream = stream
        self._place = place
        self.ended = False

    def read_events(self, timeout: float) -> Iterator[BinlogEvent]:
        """Yield the row events, with their TABLE_MAPs, that arrive within `timeout` seconds.

        Raises like LogStream.read_events.
        """
        place = self._place
        for event in self._stream.read_events(timeout):
            if event.type == log.XA_PREPARE and (event.file, event.end) == (place.file, place.end):
                self.ended = True
                return
            if event.file != place.file or event.end > place.end or event.type in (log.XID, log.XA_PREPARE):
                raise TransientSourceError(
                    f"the source's log at {place.file}:{place.pos} has no XA transaction that is prepared at "
                    f"{place.end}: another server answers"
                )
            if event.type in _ROWS:
                yield event

    def close(self) -> None:
        self._stream.close()
