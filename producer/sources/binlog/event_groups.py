"""A group of events that is being read: a transaction, or one statement. Its events, the rows in it that
were rolled back, and the statements that control it. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.binlog_format.row_events import TableMap, TableMapCache
from producer.statements import ddl
from producer.statements.statement import may_control_transaction, parse_statement

#: Bytes of memory that an event takes in addition to its body.
_EVENT_COST = 250
#: Flag added to a row event that was rolled back. The log's own flags have 16 bits.
UNDONE = 1 << 16

BEGINNINGS = frozenset({log.GTID, log.ANONYMOUS_GTID, log.MARIADB_GTID, log.GTID_TAGGED})

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


@dataclass(slots=True)
class EventGroup:
    """A group with an end that has not been read.

    `grouped`: it ends with COMMIT or XID; otherwise it consists of one statement. `held`: its events;
    None once they are too many. `count`: events so far. `savepoints`: name → ordinal of the event after
    it. `statement`: the group contains a statement that is not transaction control. `released`: what is
    known of its events, set once they are no longer held.
    """

    first: BinlogEvent
    grouped: bool
    held: list[BinlogEvent] | None
    count: int = 0
    size: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    undone: list[EventRange] = field(default_factory=list)
    statement: bool = False
    released: ReleasedEvents | None = None

    def add_event(self, event: BinlogEvent, limit: int) -> bool:
        """Add the next event. Return whether the held events now take more than `limit` bytes."""
        self.count += 1
        if self.held is not None:
            self.held.append(event)
            self.size += len(event.body) + _EVENT_COST
            return self.size > limit
        if self.released is not None:
            self.released.add_event(event)
        return False

    def release_events(self, released: ReleasedEvents) -> None:
        """Hold no more events."""
        self.released = released  # first: its spill is closed with the group, also if an event cannot be read
        for event in self.held or ():
            released.add_event(event)
        self.held = None

    def discard_events(self) -> None:
        if self.released is not None:
            self.released.close_spill()

    def note_statement(self) -> bool:
        """Note a statement that is not transaction control, and return whether the group goes on."""
        self.statement = True
        return self.grouped

    def expect_commit(self) -> None:
        """Let the group end with COMMIT or XID."""
        self.grouped = True

    def set_savepoint(self, name: str) -> None:
        self.savepoints[name] = self.count

    def roll_back_to(self, name: str) -> None:
        """Mark everything after the savepoint as rolled back.

        A savepoint that is not in the log was set before the transaction's first change.
        """
        start = self.savepoints.get(name, 0)
        while self.undone and self.undone[-1][0] >= start:
            self.undone.pop()
        self.undone.append((start, self.count))


class ReleasedEvents:
    """The events of a group that is not held: the tables in which they have rows, each with its first row
    event and TABLE_MAP, and the spill.

    `spill`: all of the events; None: there is no room for them, and the log must be read again.
    """

    def __init__(self, captured: Callable[[str, str], bool], spill: Callable[[], Spill | None]) -> None:
        self._captured = captured
        self.spill: Spill | None = None
        with suppress(OSError):
            self.spill = spill()
        self._parsed = TableMapCache()
        self._maps: dict[bytes, tuple[TableMap, BinlogEvent]] = {}
        self.head: list[BinlogEvent] = []
        self.rows: dict[tuple[str, str], tuple[BinlogEvent, BinlogEvent]] = {}
        self.captured = False

    def add_event(self, event: BinlogEvent) -> None:
        self._watch_event(event)
        if self.spill is not None:
            try:
                self.spill.append(event)
            except OSError:
                self.close_spill()

    def close_spill(self) -> None:
        spill, self.spill = self.spill, None
        if spill is not None:
            spill.close()

    def _watch_event(self, event: BinlogEvent) -> None:
        if event.type == log.TABLE_MAP:
            self._maps[event.body[:6]] = (self._parsed.get_table_map(event.body), event)
        elif event.type in log.ANY_ROWS:
            found = self._maps.get(event.body[:6])
            if found is not None and (found[0].db, found[0].name) not in self.rows:
                table = found[0]
                self.rows[table.db, table.name] = (found[1], event)
                self.captured = self.captured or self._captured(table.db, table.name)
        elif event.type in BEGINNINGS or (event.type in log.QUERIES and is_begin_statement(event)):
            self.head.append(event)

    def yield_witnesses(self) -> Iterator[BinlogEvent]:
        """Yield the beginning of a group that was rolled back, and one row event of each table, marked."""
        yield from self.head
        for table_map, rows in self.rows.values():
            yield table_map
            yield mark_undone(rows)


def mark_undone(event: BinlogEvent) -> BinlogEvent:
    return event._replace(flags=event.flags | UNDONE)


def yield_marked(events: Iterable[BinlogEvent], stretches: tuple[EventRange, ...]) -> Iterator[BinlogEvent]:
    """Yield `events`, and mark the row events in the ranges `stretches`, which are sorted."""
    ahead = list(reversed(stretches))
    for at, event in enumerate(events):
        while ahead and at >= ahead[-1][1]:
            ahead.pop()
        inside = bool(ahead) and at >= ahead[-1][0]
        yield mark_undone(event) if inside and event.type in log.ANY_ROWS else event


_SHORT: dict[bytes, ddl.TransactionControl] = {
    b"BEGIN": ddl.TransactionControl("begin"),
    b"COMMIT": ddl.TransactionControl("commit"),
    b"ROLLBACK": ddl.TransactionControl("rollback"),
}


def parse_control(event: BinlogEvent) -> ddl.TransactionControl | None:
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


def is_begin_statement(event: BinlogEvent) -> bool:
    control = parse_control(event)
    return control is not None and control.verb in ("begin", "xa_start")


def parse_savepoint_name(event: BinlogEvent) -> str:
    """Return a savepoint's name (the last word of its statement), normalised: names that the server
    considers equal are equal.
    """
    tokens = parse_statement(log.parse_statement_event(event)).tokens
    name = unicodedata.normalize("NFD", tokens[-1].text)
    return "".join(char for char in name if not unicodedata.combining(char)).casefold()
