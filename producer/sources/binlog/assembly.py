"""Holds the events of a transaction until its end is known. Pure, and of bounded memory.

The outcome of a group of events is known only at its end: MariaDB logs a transaction that created a
temporary table and was rolled back as rows and ROLLBACK, ROLLBACK TO SAVEPOINT undoes a part of a group,
and an XA group may only be prepared. So no event of a group is passed on before the group's end, and
rows that were rolled back are marked then (`UNDONE`).

A group larger than `limit` is not kept in memory. Its end is still awaited. If the group has anything to
publish, its events come from the spill; without a spill the answer is `RereadRequest`: the log must be
read again from the group's first event. Its events are then passed on one by one, with the same marks.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Protocol

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.binlog_format.row_events import TableMap, TableMapCache
from producer.errors import StreamStoppedError, TransientSourceError
from producer.statements import ddl
from producer.statements.statement import may_control_transaction, parse_statement

#: Bytes of a transaction that are held in memory.
MAX_HELD_BYTES = 64 << 20
#: Bytes of memory that an event takes in addition to its body.
_EVENT_COST = 250
#: Flag added to a row event that was rolled back. The log's own flags have 16 bits.
UNDONE = 1 << 16

_BEGINNINGS = frozenset({log.GTID, log.ANONYMOUS_GTID, log.MARIADB_GTID, log.GTID_TAGGED})
_QUIET = log.DECODABLE_ROW_EVENTS | log.IGNORED | {log.TABLE_MAP}
_PLAIN = log.DECODABLE_ROW_EVENTS | {log.TABLE_MAP}
_KIND: Callable[[BinlogEvent], int] = itemgetter(BinlogEvent._fields.index("type"))


def _build_byte_class(kinds: Iterable[int]) -> bytes:
    return b"[%b]" % re.escape(bytes(kinds))


#: Transactions by the types of their events: a GTID, rows (and BEGIN, which has to be parsed), an XID.
_PLAIN_RUN = re.compile(
    b"(?:%b%b*+%b)*+"
    % (_build_byte_class(_BEGINNINGS), _build_byte_class(_QUIET | {log.QUERY}), _build_byte_class({log.XID}))
)
ONE_PHASE = b"\1"
"""The first byte of an XA_PREPARE event that commits in one phase."""
_SHORT_BODY = 1000

EventRange = tuple[int, int]
"""The ordinals of a group's events, [first, last), the end exclusive."""


class Spill(Protocol):
    """A store for the events of a large transaction, which saves a second reading of the log.

    Raises OSError when it cannot keep them.
    """

    def append(self, event: BinlogEvent) -> None: ...
    def __iter__(self) -> Iterator[BinlogEvent]: ...
    def close(self) -> None: ...


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


@dataclass(slots=True)
class _Group:
    """A group with an end that has not been read.

    `grouped`: it ends with COMMIT or XID; otherwise it consists of one statement. `held`: its events;
    None once they are too many. `count`: events so far. `savepoints`: name → ordinal of the event after
    it. `statement`: the group contains a statement that is not transaction control. `watch`: its tables,
    set once its events are no longer held.
    """

    first: BinlogEvent
    grouped: bool
    held: list[BinlogEvent] | None
    count: int = 0
    size: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    undone: list[EventRange] = field(default_factory=list)
    statement: bool = False
    spill: Spill | None = None
    watch: _WatchedTables | None = None


class _WatchedTables:
    """The tables in which a group that is not held has rows, each with its first row event and
    TABLE_MAP.
    """

    def __init__(self, captured: Callable[[str, str], bool]) -> None:
        self._captured = captured
        self._parsed = TableMapCache()
        self._maps: dict[bytes, tuple[TableMap, BinlogEvent]] = {}
        self.head: list[BinlogEvent] = []
        self.rows: dict[tuple[str, str], tuple[BinlogEvent, BinlogEvent]] = {}
        self.captured = False

    def watch_event(self, event: BinlogEvent) -> None:
        if event.type == log.TABLE_MAP:
            self._maps[event.body[:6]] = (self._parsed.get_table_map(event.body), event)
        elif event.type in log.ANY_ROWS:
            found = self._maps.get(event.body[:6])
            if found is not None and (found[0].db, found[0].name) not in self.rows:
                table = found[0]
                self.rows[table.db, table.name] = (found[1], event)
                self.captured = self.captured or self._captured(table.db, table.name)
        elif event.type in _BEGINNINGS or (event.type in log.QUERIES and _is_begin_statement(event)):
            self.head.append(event)

    def yield_witnesses(self) -> Iterator[BinlogEvent]:
        """Yield the beginning of a group that was rolled back, and one row event of each table, marked."""
        yield from self.head
        for table_map, rows in self.rows.values():
            yield table_map
            yield mark_undone(rows)


def mark_undone(event: BinlogEvent) -> BinlogEvent:
    return event._replace(flags=event.flags | UNDONE)


class TransactionBuffer:
    """The transaction that is being read, with its events up to its end.

    `captured(db, table)`: whether a table is captured. `spill`: creates a store for a transaction larger
    than `limit`.
    """

    def __init__(
        self,
        captured: Callable[[str, str], bool],
        *,
        limit: int = MAX_HELD_BYTES,
        spill: Callable[[], Spill | None] = lambda: None,
    ) -> None:
        self._captured = captured
        self._limit = limit
        self._spill = spill
        self._group: _Group | None = None
        self._known: _KnownGroup | None = None

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
            self._add_event(group, event)
            return () if self._known is None else self._pass_known_event(group, event)
        if kind in log.IGNORED:
            return ()
        if kind in _BEGINNINGS:
            return self._begin_group(event, self._is_mariadb_grouped(event))
        if group is None:
            return self._handle_ungrouped(event)
        self._add_event(group, event)
        if kind == log.XID:
            return self._end_group(group, event)
        if kind in log.QUERIES:
            return self._handle_query(group, event)
        if kind == log.XA_PREPARE:
            return self._end_group(group, event, nothing=event.body[:1] != ONE_PHASE)
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
            _discard_held_events(before)
        known = self._known
        if known is not None and event != known.first:
            raise _reads_differently(event)
        self._group = group = _Group(event, grouped, None if known else [])
        self._add_event(group, event)
        return self._pass_known_event(group, event)

    def _handle_ungrouped(self, event: BinlogEvent) -> Iterable[BinlogEvent]:
        """Begin a transaction at a BEGIN, as servers without GTID events write it; pass every other
        event on.
        """
        if event.type in log.QUERIES and _is_begin_statement(event):
            return self._begin_group(event, grouped=True)
        if self._known is not None:
            raise _reads_differently(event)
        return (event,)

    # --- hold

    def _add_event(self, group: _Group, event: BinlogEvent) -> None:
        group.count += 1
        if group.held is not None:
            group.held.append(event)
            group.size += len(event.body) + _EVENT_COST
            if group.size > self._limit:
                self._let_go(group)
        elif group.watch is not None:
            group.watch.watch_event(event)
            _spill_events(group, (event,))

    def _let_go(self, group: _Group) -> None:
        held, group.held = group.held or [], None
        group.watch = _WatchedTables(self._captured)
        try:
            group.spill = self._spill()
        except OSError:
            group.spill = None
        for event in held:
            group.watch.watch_event(event)
        _spill_events(group, held)

    def _pass_known_event(self, group: _Group, event: BinlogEvent) -> Iterable[BinlogEvent]:
        """Return `event` if its group is read for the second time, and is to be published."""
        known = self._known
        if known is None:
            return ()
        if event.type in log.ANY_ROWS and known.is_undone(group.count - 1):
            event = mark_undone(event)
        return (event,)

    # --- statements

    def _handle_query(self, group: _Group, event: BinlogEvent) -> Iterable[BinlogEvent] | RereadRequest:
        control = _parse_control(event)
        if control is None:
            group.statement = True
            return self._pass_known_event(group, event) if group.grouped else self._end_group(group, event)
        match control.verb:
            case "begin" | "xa_start":
                group.grouped = True
            case "commit" | "xa_commit" | "xa_rollback":
                return self._end_group(group, event)
            case "rollback":
                return self._end_group(group, event, nothing=True)
            case "xa_prepare":
                return self._end_group(group, event, nothing=True)
            case "savepoint":
                group.savepoints[_parse_savepoint_name(event)] = group.count
            case "rollback_to":
                _roll_back_to(group, _parse_savepoint_name(event))
        return self._pass_known_event(group, event)

    # --- end

    def _end_group(
        self, group: _Group, event: BinlogEvent, *, nothing: bool = False
    ) -> Iterable[BinlogEvent] | RereadRequest:
        """End the group. `nothing`: all of its rows were rolled back."""
        self._group = None
        if self._known is not None:
            return self._end_known_group(group, event, self._known)
        stretches = ((0, group.count),) if nothing else tuple(group.undone)
        if group.held is not None:
            return _yield_marked(group.held, stretches) if stretches else group.held
        watch = group.watch or _WatchedTables(self._captured)  # set whenever the events are not held
        if group.statement or (watch.captured and not nothing):
            if group.spill is not None:
                return _yield_marked(group.spill, stretches)
            self._known = _KnownGroup(group.first, event.end, stretches)
            return RereadRequest(group.first.file, group.first.start)
        _discard_held_events(group)
        return [*watch.yield_witnesses(), event]

    def _end_known_group(
        self, group: _Group, event: BinlogEvent, known: _KnownGroup
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


def _spill_events(group: _Group, events: Iterable[BinlogEvent]) -> None:
    """Write events to the group's spill. Without room, close the spill; the log is then read again."""
    spill = group.spill
    if spill is None:
        return
    try:
        for event in events:
            spill.append(event)
    except OSError:
        _discard_held_events(group)


def _discard_held_events(group: _Group) -> None:
    spill, group.spill = group.spill, None
    if spill is not None:
        spill.close()


def _reads_differently(event: BinlogEvent) -> TransientSourceError:
    return TransientSourceError(
        f"the source's log at {event.file}:{event.start} has other content than when it was first read: "
        "another server answers"
    )


_SHORT: dict[bytes, ddl.TransactionControl] = {
    b"BEGIN": ddl.TransactionControl("begin"),
    b"COMMIT": ddl.TransactionControl("commit"),
    b"ROLLBACK": ddl.TransactionControl("rollback"),
}


def _parse_control(event: BinlogEvent) -> ddl.TransactionControl | None:
    """Return the transaction control that a statement is, or None.

    The common ones are recognised without parsing. Other statements are parsed when they are folded
    (producer/sources/binlog/transactions.py): of them, only the first word is read here.
    """
    body = event.body
    if event.type == log.QUERY and len(body) < _SHORT_BODY:
        text = body[14 + body[8] + (body[11] | body[12] << 8) :]
        if (short := _SHORT.get(text)) is not None:
            return short
    query = log.parse_statement_event(event)
    if not may_control_transaction(query):
        return None
    kind = parse_statement(query).kind
    return kind if isinstance(kind, ddl.TransactionControl) else None


def _is_begin_statement(event: BinlogEvent) -> bool:
    control = _parse_control(event)
    return control is not None and control.verb in ("begin", "xa_start")


def _yield_marked(events: Iterable[BinlogEvent], stretches: tuple[EventRange, ...]) -> Iterator[BinlogEvent]:
    """Yield `events`, and mark the row events in the ranges `stretches`, which are sorted."""
    ahead = list(reversed(stretches))
    for at, event in enumerate(events):
        while ahead and at >= ahead[-1][1]:
            ahead.pop()
        inside = bool(ahead) and at >= ahead[-1][0]
        yield mark_undone(event) if inside and event.type in log.ANY_ROWS else event


def _parse_savepoint_name(event: BinlogEvent) -> str:
    """Return a savepoint's name (the last word of its statement), normalised: names that the server
    considers equal are equal.
    """
    tokens = parse_statement(log.parse_statement_event(event)).tokens
    name = unicodedata.normalize("NFD", tokens[-1].text)
    return "".join(char for char in name if not unicodedata.combining(char)).casefold()


def _roll_back_to(group: _Group, name: str) -> None:
    """Mark everything after the savepoint as rolled back.

    A savepoint that is not in the log was set before the transaction's first change.
    """
    start = group.savepoints.get(name, 0)
    while group.undone and group.undone[-1][0] >= start:
        group.undone.pop()
    group.undone.append((start, group.count))
