"""Holds the events of a transaction until its end is known. Pure, and of bounded memory.

The outcome of a group of events is known only at its end: MariaDB logs a transaction that created a
temporary table and was rolled back as rows and ROLLBACK, ROLLBACK TO SAVEPOINT undoes a part of a group,
and an XA group may only be prepared. So no event of a group is passed on before the group's end, and
rows that were rolled back are marked then (`event_groups.UNDONE`). So are those of an XA group that is only
prepared; a small group is held until its XA COMMIT (`prepared`).

A group larger than `limit` is not kept in memory. Its end is still awaited. If the group has anything to
publish, its events come from the spill; without a spill the answer is `RereadRequest`: the log must be
read again from the group's first event. Its events are then passed on one by one, with the same marks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.errors import StreamStoppedError, TransientSourceError
from producer.sources.binlog.event_groups import (
    BEGINNINGS,
    EventGroup,
    EventRange,
    ReleasedEvents,
    Spill,
    is_begin_statement,
    mark_undone,
    parse_control,
    parse_savepoint_name,
    yield_marked,
)
from producer.sources.binlog.prepared_rows import MAX_PREPARED_BYTES, PreparedRowsCache

#: Bytes of a transaction that are held in memory.
MAX_HELD_BYTES = 64 << 20
_QUIET = log.DECODABLE_ROW_EVENTS | log.IGNORED | {log.TABLE_MAP}
_PLAIN = log.DECODABLE_ROW_EVENTS | {log.TABLE_MAP}
_KIND: Callable[[BinlogEvent], int] = itemgetter(BinlogEvent._fields.index("type"))


def _build_byte_class(kinds: Iterable[int]) -> bytes:
    return b"[%b]" % re.escape(bytes(kinds))


#: Transactions by the types of their events: a GTID, rows (and BEGIN, which has to be parsed), an XID.
_PLAIN_RUN = re.compile(
    b"(?:%b%b*+%b)*+"
    % (_build_byte_class(BEGINNINGS), _build_byte_class(_QUIET | {log.QUERY}), _build_byte_class({log.XID}))
)
ONE_PHASE = b"\1"
"""The first byte of an XA_PREPARE event that commits in one phase."""


class RereadRequest(NamedTuple):
    """A request to read the log again from here, because a transaction that must be published was too
    large to keep.
    """

    file: str
    pos: int


class _KnownGroup(NamedTuple):
    """A group as the first reading found it: its first event, its end, and the ranges that were rolled
    back.
    """

    first: BinlogEvent
    end: int
    undone: tuple[EventRange, ...]

    def is_undone(self, at: int) -> bool:
        """Return whether the event with the ordinal `at` is in one of the ranges.

        The ranges are sorted; there may be many.
        """
        before = bisect_right(self.undone, at, key=lambda stretch: stretch[0])
        return before > 0 and at < self.undone[before - 1][1]


class TransactionBuffer:
    """The transaction that is being read, with its events up to its end.

    `captured(db, table)`: whether a table is captured. `spill`: creates a store for a transaction larger
    than `limit`. `prepared_limit`: bytes of the XA transactions in `prepared`, which are only prepared.
    """

    def __init__(
        self,
        captured: Callable[[str, str], bool],
        *,
        limit: int = MAX_HELD_BYTES,
        spill: Callable[[], Spill | None] = lambda: None,
        prepared_limit: int = MAX_PREPARED_BYTES,
    ) -> None:
        self.prepared = PreparedRowsCache(prepared_limit)
        self._captured = captured
        self._limit = limit
        self._spill = spill
        self._publishes_prepared = False
        self._group: EventGroup | None = None
        self._known: _KnownGroup | None = None

    def build_prepared_buffer(self) -> TransactionBuffer:
        """Return a buffer for XA transactions that have been committed since: it passes on what they
        prepared.
        """
        found = TransactionBuffer(self._captured, limit=self._limit, spill=self._spill)
        found._publishes_prepared = True
        return found

    @property
    def inside(self) -> bool:
        """True if a group has begun and not ended, or must be read again."""
        return self._group is not None or self._known is not None

    def find_plain_run_end(self, events: Sequence[BinlogEvent], kinds: bytes, start: int) -> int:
        """Return the index after the run of plain transactions that begins at `start`; `start` if there
        is no such run.

        A plain transaction consists of rows and an XID and is complete in `events`, so it is passed on
        unchanged. Nearly all transactions of a log are plain. `kinds`: `pack_event_types(events)`.
        """
        if self._group is not None or self._known is not None:
            return start
        end = _find_run_end(kinds, start, len(kinds))
        at = kinds.find(log.QUERY, start, end)
        while at >= 0:
            if not _is_begin(events[at].body):
                return _find_run_end(kinds, start, at)
            at = kinds.find(log.QUERY, at + 1, end)
        return end

    def accept_event(self, event: BinlogEvent) -> Iterable[BinlogEvent] | RereadRequest:
        """Return the events that can be passed on now, in order.

        Raises StreamStoppedError, TransientSourceError.
        """
        kind, group = event.type, self._group
        if kind in _PLAIN and group is not None:
            if group.add_event(event, self._limit):
                self._release_events(group)
            return () if self._known is None else self._pass_known_event(group, event)
        if kind in log.IGNORED:
            return ()
        if kind in BEGINNINGS:
            return self._begin_group(event, self._is_mariadb_grouped(event))
        if group is None:
            return self._handle_ungrouped(event)
        if group.add_event(event, self._limit):
            self._release_events(group)
        if kind == log.XID:
            return self._end_group(group, event)
        if kind in log.QUERIES:
            return self._handle_query(group, event)
        if kind == log.XA_PREPARE:
            return self._end_xa_group(group, event, is_prepared=event.body[:1] != ONE_PHASE)
        if kind == log.INCIDENT:
            return (event,)
        return self._pass_known_event(group, event)

    # --- begin

    @staticmethod
    def _is_mariadb_grouped(event: BinlogEvent) -> bool:
        return event.type == log.MARIADB_GTID and not event.body[12] & log.MARIADB_STANDALONE

    def _begin_group(self, event: BinlogEvent, grouped: bool) -> Iterable[BinlogEvent]:
        before = self._group
        if before is not None and before.first.file == event.file:
            raise StreamStoppedError(
                f"capture cannot follow the log at {event.file}:{event.start}: a transaction begins "
                f"inside another one, which began at {before.first.start}"
            )
        if before is not None:
            # The group was cut off by the end of its file: the server crashed while it wrote, and rolled
            # it back.
            before.discard_events()
        known = self._known
        if known is not None and event != known.first:
            raise _reads_differently(event)
        self._group = group = EventGroup(event, grouped, None if known else [])
        if group.add_event(event, self._limit):
            self._release_events(group)
        return self._pass_known_event(group, event)

    def _handle_ungrouped(self, event: BinlogEvent) -> Iterable[BinlogEvent]:
        """Begin a transaction at a BEGIN, as servers without GTID events write it; pass every other
        event on.
        """
        if event.type in log.QUERIES and is_begin_statement(event):
            return self._begin_group(event, grouped=True)
        if self._known is not None:
            raise _reads_differently(event)
        return (event,)

    # --- hold

    def _release_events(self, group: EventGroup) -> None:
        group.release_events(ReleasedEvents(self._captured, self._spill))

    def _pass_known_event(self, group: EventGroup, event: BinlogEvent) -> Iterable[BinlogEvent]:
        """Return `event` if its group is read for the second time, and is to be published."""
        known = self._known
        if known is None:
            return ()
        if event.type in log.ANY_ROWS and known.is_undone(group.count - 1):
            event = mark_undone(event)
        return (event,)

    # --- statements

    def _handle_query(self, group: EventGroup, event: BinlogEvent) -> Iterable[BinlogEvent] | RereadRequest:
        control = parse_control(event)
        if control is None:
            goes_on = group.note_statement()
            return self._pass_known_event(group, event) if goes_on else self._end_group(group, event)
        match control.verb:
            case "begin" | "xa_start":
                group.expect_commit()
            case "commit" | "xa_commit" | "xa_rollback":
                return self._end_group(group, event)
            case "rollback":
                return self._end_group(group, event, nothing=True)
            case "xa_prepare":
                return self._end_xa_group(group, event, is_prepared=True)
            case "savepoint":
                group.set_savepoint(parse_savepoint_name(event))
            case "rollback_to":
                group.roll_back_to(parse_savepoint_name(event))
        return self._pass_known_event(group, event)

    # --- end

    def _end_xa_group(
        self, group: EventGroup, event: BinlogEvent, *, is_prepared: bool
    ) -> Iterable[BinlogEvent] | RereadRequest:
        """End an XA group, which is committed at once unless it `is_prepared`."""
        if not is_prepared or self._publishes_prepared:
            return self._end_group(group, event)
        if group.held is not None:
            self.prepared.hold_events(group.first, yield_marked(group.held, tuple(group.undone)), group.size)
        return self._end_group(group, event, nothing=True)

    def _end_group(
        self, group: EventGroup, event: BinlogEvent, *, nothing: bool = False
    ) -> Iterable[BinlogEvent] | RereadRequest:
        """End the group. `nothing`: all of its rows were rolled back."""
        self._group = None
        if self._known is not None:
            return self._end_known_group(group, event, self._known)
        stretches = ((0, group.count),) if nothing else tuple(group.undone)
        if (released := group.released) is None:
            held = group.held or []
            return yield_marked(held, stretches) if stretches else held
        if group.statement or (released.captured and not nothing):
            if released.spill is not None:
                return yield_marked(released.spill, stretches)
            self._known = _KnownGroup(group.first, event.end, stretches)
            return RereadRequest(group.first.file, group.first.start)
        group.discard_events()
        return [*released.yield_witnesses(), event]

    def _end_known_group(
        self, group: EventGroup, event: BinlogEvent, known: _KnownGroup
    ) -> Iterable[BinlogEvent]:
        last = self._pass_known_event(group, event)
        self._known = None
        if event.end != known.end:
            raise _reads_differently(event)
        return last


def pack_event_types(events: Iterable[BinlogEvent]) -> bytes:
    """Return the events' types, a byte each."""
    return bytes(map(_KIND, events))


def _find_run_end(kinds: bytes, start: int, end: int) -> int:
    found = _PLAIN_RUN.match(kinds, start, end)
    return start if found is None else found.end()


def _is_begin(body: bytes) -> bool:
    return body[-6:] == b"\0BEGIN" and len(body) == 19 + body[8] + (body[11] | body[12] << 8)


def _reads_differently(event: BinlogEvent) -> TransientSourceError:
    return TransientSourceError(
        f"the source's log at {event.file}:{event.start} has other content than when it was first read: "
        "another server answers"
    )
