"""Holds the events of a transaction until its end is known: pure, and of bounded memory.

What a group of events comes to is known only at its end: MariaDB logs a transaction that made a temporary table and was
rolled back as rows and ROLLBACK, ROLLBACK TO SAVEPOINT undoes a part, an XA group is only prepared. So nothing of a
group goes on before its end, and rows that did not come to be are marked (`UNDONE`) then.

A group larger than `limit` is not kept. Its end is awaited all the same, and if there is anything to publish, it comes from
the spill, or the answer is `RereadRequest`: read the log anew from the group's first event; its events then pass one by
one, with the same marks.
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
from producer.binlog_format.table_map import TableMap, TableMapCache
from producer.errors import StreamStoppedError, TransientSourceError
from producer.statements import ddl
from producer.statements.tokens import tokenize_sql

#: Bytes of a transaction that are held in memory.
MAX_HELD_BYTES = 64 << 20
#: What an event costs in memory beyond its body.
_EVENT_COST = 250
#: Added to the flags of a row event whose rows did not come to be; the log's own flags have 16 bits.
UNDONE = 1 << 16

_BEGINNINGS = frozenset({log.GTID, log.ANONYMOUS_GTID, log.MARIADB_GTID, log.GTID_TAGGED})
_QUIET = log.DECODABLE_ROW_EVENTS | log.IGNORED | {log.TABLE_MAP}
_PLAIN = log.DECODABLE_ROW_EVENTS | {log.TABLE_MAP}
_KIND: Callable[[BinlogEvent], int] = itemgetter(BinlogEvent._fields.index("type"))


def _build_byte_class(kinds: Iterable[int]) -> bytes:
    return b"[%b]" % re.escape(bytes(kinds))


#: Transactions by the types of their events: a GTID, rows (and BEGIN, which has to be looked at), an XID.
_PLAIN_RUN = re.compile(
    b"(?:%b%b*+%b)*+"
    % (_build_byte_class(_BEGINNINGS), _build_byte_class(_QUIET | {log.QUERY}), _build_byte_class({log.XID}))
)
ONE_PHASE = b"\1"
"""First byte of an XA_PREPARE event that commits at once."""
_SHORT_BODY = 1000

EventRange = tuple[int, int]
"""[first ordinal, ordinal behind the last) of a group's events."""


class Spill(Protocol):
    """A store for the events of a large transaction, so that the log need not be read again. OSError: it cannot keep them."""

    def append(self, event: BinlogEvent) -> None: ...
    def __iter__(self) -> Iterator[BinlogEvent]: ...
    def close(self) -> None: ...


class RereadRequest(NamedTuple):
    """A transaction is to be published that was too large to keep: read the log again from here."""

    file: str
    pos: int


class _KnownGroup(NamedTuple):
    """A group as the first reading found it: its first event, its end, and the stretches that were undone."""

    first: BinlogEvent
    end: int
    undone: tuple[EventRange, ...]

    def is_undone(self, at: int) -> bool:
        """Tell whether the event with the ordinal `at` is in one of the stretches; they are in order, and may be many."""
        before = bisect_right(self.undone, at, key=lambda stretch: stretch[0])
        return before > 0 and at < self.undone[before - 1][1]


@dataclass(slots=True)
class _Group:
    """A group without its end. `grouped`: COMMIT or XID ends it, else its one statement.

    `held`: its events; None once they are too many. `count`: events so far. `savepoints`: name → ordinal of what
    follows. `statement`: it holds one that is no transaction control. `watch`: only once it is not held any more.
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
    """The tables that a group that is not held has rows of: of each the first row event, with its TABLE_MAP."""

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
        """Yield, for a group that came to nothing, how it began and one row event of each table, marked."""
        yield from self.head
        for table_map, rows in self.rows.values():
            yield table_map
            yield mark_undone(rows)


def mark_undone(event: BinlogEvent) -> BinlogEvent:
    return event._replace(flags=event.flags | UNDONE)


class TransactionBuffer:
    """`captured(db, table)` says whether a table is captured; `spill` makes a place for a transaction larger than `limit`."""

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
        """Tell whether a group has begun and not ended, or is to be read again."""
        return self._group is not None or self._known is not None

    def find_plain_run_end(self, events: Sequence[BinlogEvent], kinds: bytes, start: int) -> int:
        """Return behind which of `events` the run of plain transactions ends that begins at `start`; `start` if none does.

        Such a one goes on as it is: it has rows and its XID, all at hand. That is nearly all that a log holds.
        `kinds`: `kinds_of(events)`.
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
        """Return the events that go on now, in order. Raises StreamStoppedError, TransientSourceError."""
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
                f"the log holds at {event.file}:{event.start} what capture cannot follow: a transaction begins inside another "
                f"one, which began at {before.first.start}"
            )
        if before is not None:
            # It is cut off by the end of its file: the server crashed while it wrote, and rolled the transaction back.
            _discard_held_events(before)
        known = self._known
        if known is not None and event != known.first:
            raise _reads_differently(event)
        self._group = group = _Group(event, grouped, None if known else [])
        self._add_event(group, event)
        return self._pass_known_event(group, event)

    def _handle_ungrouped(self, event: BinlogEvent) -> Iterable[BinlogEvent]:
        """Servers without GTID events begin a transaction with BEGIN; all else that stands outside is for the fold."""
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
        """Let `event` go on if its group is known, and is read again."""
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
        """The group is over; `nothing`: none of its rows has come to be."""
        self._group = None
        if self._known is not None:
            return self._end_known_group(group, event, self._known)
        stretches = ((0, group.count),) if nothing else tuple(group.undone)
        if group.held is not None:
            return _yield_marked(group.held, stretches) if stretches else group.held
        watch = group.watch or _WatchedTables(self._captured)  # it is watched since it is not held
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
    """Put events into the group's spill; one without room is given up, and the log read again."""
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
        f"the source's log reads differently at {event.file}:{event.start} the second time: another server answers"
    )


_SHORT: dict[bytes, ddl.TransactionControl] = {
    b"BEGIN": ddl.TransactionControl("begin"),
    b"COMMIT": ddl.TransactionControl("commit"),
    b"ROLLBACK": ddl.TransactionControl("rollback"),
}


def _parse_control(event: BinlogEvent) -> ddl.TransactionControl | None:
    """Return the transaction control that a statement is; the common ones without parsing it."""
    body = event.body
    if event.type == log.QUERY and len(body) < _SHORT_BODY:
        text = body[14 + body[8] + (body[11] | body[12] << 8) :]
        if (short := _SHORT.get(text)) is not None:
            return short
    query = log.parse_statement_event(event)
    statement = ddl.classify_statement(query.sql, query.db)
    return statement if isinstance(statement, ddl.TransactionControl) else None


def _is_begin_statement(event: BinlogEvent) -> bool:
    control = _parse_control(event)
    return control is not None and control.verb in ("begin", "xa_start")


def _yield_marked(events: Iterable[BinlogEvent], stretches: tuple[EventRange, ...]) -> Iterator[BinlogEvent]:
    """Mark the row events of `stretches`, which are in order."""
    ahead = list(reversed(stretches))
    for at, event in enumerate(events):
        while ahead and at >= ahead[-1][1]:
            ahead.pop()
        inside = bool(ahead) and at >= ahead[-1][0]
        yield mark_undone(event) if inside and event.type in log.ANY_ROWS else event


def _parse_savepoint_name(event: BinlogEvent) -> str:
    """The name of a savepoint (its statement's last word), so that names the server holds equal are equal."""
    tokens = tokenize_sql(log.parse_statement_event(event).sql)
    name = unicodedata.normalize("NFD", tokens[-1].text)
    return "".join(char for char in name if not unicodedata.combining(char)).casefold()


def _roll_back_to(group: _Group, name: str) -> None:
    """Undo everything behind the savepoint; one that is not in the log was set before the transaction's first change."""
    start = group.savepoints.get(name, 0)
    while group.undone and group.undone[-1][0] >= start:
        group.undone.pop()
    group.undone.append((start, group.count))
