"""Snapshots that Debezium was asked for, as a table's topic shows them. Pure.

The signal `execute-snapshot` of the type `blocking` has a running connector stop reading the log, read the table by one SELECT, and go on
with the log where it had stopped. So the rows stand in the table's topic in one piece, and whatever was changed since the log was left
comes behind them. `source.snapshot` says where such a row stands (as 3.5.0 with
MariaDB was seen to write, tests/golden/debezium; `blocking` is known since 2.4):

- `first`, or `first_in_data_collection` in a signal of several tables; then `true`; `last` or `last_in_data_collection`;
- of a table of one row alone: `last` (in a signal of several tables perhaps `first`, and no end); of an empty table no row at all;
- a snapshot that fails or is interrupted has no end. The connector that starts anew goes on with the log, and may mark its events `true`, too.

Rows of an incremental snapshot (`incremental`) come between those of the log, and nothing says which is the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum

import msgspec


class SnapshotPlace(Enum):
    """The place of a record in a snapshot: OTHER: it is none of its rows."""

    FIRST = "first"
    INSIDE = "inside"
    LAST = "last"
    OTHER = "other"


_MARKS = {
    "first": SnapshotPlace.FIRST,
    "first_in_data_collection": SnapshotPlace.FIRST,
    "true": SnapshotPlace.INSIDE,
    "last_in_data_collection": SnapshotPlace.LAST,
    "last": SnapshotPlace.LAST,
}


class _Source(msgspec.Struct, gc=False):
    snapshot: str | bool | None = msgspec.field(name="snapshot", default=None)


class _Row(msgspec.Struct, gc=False):
    op: str = msgspec.field(name="op")
    source: _Source = msgspec.field(name="source")


class _Record(msgspec.Struct, gc=False):
    """With schemas on, the event is `payload`."""

    op: str | None = msgspec.field(name="op", default=None)
    source: _Source | None = msgspec.field(name="source", default=None)
    payload: _Row | None = msgspec.field(name="payload", default=None)


_decode = msgspec.json.Decoder(_Record).decode


def read_snapshot_place(raw: bytes) -> SnapshotPlace:
    """Return where a record's value stands in a snapshot."""
    try:
        record = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return SnapshotPlace.OTHER
    event = record.payload or record
    if event.op != "r" or event.source is None:
        return SnapshotPlace.OTHER
    return _MARKS.get(str(event.source.snapshot).lower(), SnapshotPlace.OTHER)


class DebeziumSnapshotScan:
    """Finds the newest snapshot of which all rows stand behind the offset `after`, in records that are given in their order.

    `next`: the offset from which on it wants records; at first that of `after` itself, for it must know what a lone row follows.
    `found`: offsets of its first and of its last row.
    """

    def __init__(self, after: int) -> None:
        self.after = after
        self.next = max(after, 0)
        self.found: tuple[int, int] | None = None
        self._first: int | None = None
        self._apart = False  # the record before is known, and is no row of a snapshot

    def scan_records(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        for offset, raw in records:
            self.next = offset + 1
            if raw is not None:  # a tombstone says nothing
                self._record_place(offset, read_snapshot_place(raw))

    def _record_place(self, offset: int, mark: SnapshotPlace) -> None:
        if mark is SnapshotPlace.FIRST:
            self._first = offset
        elif mark is SnapshotPlace.LAST:
            self._end_snapshot(offset)
        elif mark is SnapshotPlace.OTHER:
            self._first = None  # an older row may come behind a newer change: such rows are no snapshot
        self._apart = mark is SnapshotPlace.OTHER

    def _end_snapshot(self, offset: int) -> None:
        first = offset if self._first is None and self._apart else self._first
        self._first = None
        if first is not None and first > self.after:
            self.found = first, offset


def encode_snapshot_signal(db: str, table: str) -> str:
    """Return the signal that has Debezium read one table again: the value of a record in its signal topic. Names are patterns in it."""
    name = ".".join(re.sub(r"([^\w-])", r"\\\1", part) for part in (db, table))
    asked = {"type": "execute-snapshot", "data": {"data-collections": [name], "type": "blocking"}}
    return json.dumps(asked, separators=(",", ":"), ensure_ascii=False)
