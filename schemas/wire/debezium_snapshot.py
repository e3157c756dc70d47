"""Snapshots requested from Debezium, as a table's topic shows them. Pure.

The signal `execute-snapshot` of the type `blocking` makes a running connector stop reading the log,
read the table by one SELECT, and continue with the log where it had stopped. So the rows are contiguous
in the table's topic, and every change since then comes after them. `source.snapshot` gives the place of
such a row (as observed with 3.5.0 and MariaDB, tests/golden/debezium; `blocking` exists since 2.4):

- `first`, or `first_in_data_collection` in a signal of several tables; then `true`; `last` or
  `last_in_data_collection`;
- of a table with one row: only `last` (in a signal of several tables perhaps `first`, and no end); of
  an empty table no row at all;
- a snapshot that fails or is interrupted has no end. The connector that restarts continues with the
  log, and may mark its events `true`, too.

Rows of an incremental snapshot (`incremental`) come between those of the log, and no record marks the
last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum

import msgspec


class SnapshotPlace(Enum):
    """The place of a record in a snapshot; OTHER: it is not a row of one."""

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
    """Return the place of a record's value in a snapshot."""
    try:
        record = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return SnapshotPlace.OTHER
    event = record.payload or record
    if event.op != "r" or event.source is None:
        return SnapshotPlace.OTHER
    return _MARKS.get(str(event.source.snapshot).lower(), SnapshotPlace.OTHER)


class DebeziumSnapshotScan:
    """Finds the newest snapshot that lies completely after the offset `after`, in records given in
    their order.

    `next`: the offset of the first record that is still needed; at first that of `after` itself,
    because a lone row is judged by the record before it. `found`: offsets of the snapshot's first and
    last row.
    """

    def __init__(self, after: int) -> None:
        self.after = after
        self.next = max(after, 0)
        self.found: tuple[int, int] | None = None
        self._first: int | None = None
        self._apart = False  # the previous record is known, and is not a row of a snapshot

    def scan_records(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        for offset, raw in records:
            self.next = offset + 1
            if raw is not None:  # a tombstone has no place
                self._record_place(offset, read_snapshot_place(raw))

    def _record_place(self, offset: int, mark: SnapshotPlace) -> None:
        if mark is SnapshotPlace.FIRST:
            self._first = offset
        elif mark is SnapshotPlace.LAST:
            self._end_snapshot(offset)
        elif mark is SnapshotPlace.OTHER:
            self._first = None  # an older row may follow a newer change: such rows are not a snapshot
        self._apart = mark is SnapshotPlace.OTHER

    def _end_snapshot(self, offset: int) -> None:
        first = offset if self._first is None and self._apart else self._first
        self._first = None
        if first is not None and first > self.after:
            self.found = first, offset


def encode_snapshot_signal(db: str, table: str) -> str:
    """Return the value of a signal record that makes Debezium read one table again.

    Names are patterns in it.
    """
    name = ".".join(re.sub(r"([^\w-])", r"\\\1", part) for part in (db, table))
    asked = {"type": "execute-snapshot", "data": {"data-collections": [name], "type": "blocking"}}
    return json.dumps(asked, separators=(",", ":"), ensure_ascii=False)
