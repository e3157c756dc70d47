"""Row events that are too large to be held: they are read from a stream, without the values that are larger
than any event of Kafka. Pure.

Such a value cannot be published, so nothing needs it: its column is left out by the source's `columns:`, or
its table stops. In the body of the event its length is 0, so the event has its rows, NULLs and other values
and is decoded like any other; `CutBody.cut` names what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from producer.binlog_format import types as t
from producer.binlog_format.byte_source import ByteSource, Unpacker
from producer.binlog_format.column_sizes import count_length_bytes, get_fixed_size
from producer.binlog_format.errors import DecodeError, UndecodableRow
from producer.binlog_format.row_events import ColumnMap, parse_table_map

LARGE_EVENT = 32 << 20
"""Bytes of an event from which on it is not held as a whole."""
LARGEST_VALUE = 16 << 20
"""Bytes of the largest value that is kept of such an event: Kafka takes no larger event
(producer/kafka/settings.py).
"""
_HEAD, _ID = 8, 6  # bytes of a row event before the extra data, and those of the table's id in them
_UNREADABLE = b"\0"
"""In place of rows that cannot be parsed: no row, so that decoding them fails as well."""


class CutValue(NamedTuple):
    """A value that is missing in a body: the ordinal of its column, and its bytes in the log."""

    place: int
    size: int


class CutBody(bytes):
    """The body of a row event without the values `cut`."""

    cut: tuple[CutValue, ...] = ()

    @classmethod
    def build(cls, data: bytes, cut: tuple[CutValue, ...]) -> CutBody:
        body = cls(data)
        body.cut = cut
        return body


def cut_rows_event(
    event_type: int, source: ByteSource, maps: Mapping[bytes, bytes], limit: int = LARGEST_VALUE
) -> tuple[int, bytes]:
    """Return type and body of a row event, without values of more than `limit` bytes; of a compressed one,
    unpacked. The source is read to its end.

    `maps`: id of a table (six bytes) → the body of its last TABLE_MAP. Rows without one, and rows that
    cannot be parsed, become a body that cannot be decoded, for the same reasons as the whole.
    """
    plain = t.COMPRESSED.get(event_type, event_type)
    head = _read_head(plain, source)
    found = CutBody(head.data + _UNREADABLE)
    with suppress(DecodeError):  # the decoder finds it again, where it is known which table it concerns
        if head.has_all_columns and plain in t.WRITES | t.UPDATES | t.DELETES:
            rows = source if plain == event_type else _unpack_rows(source)
            cut = _cut_rows(head, rows, maps, limit)
            if rows is source or not rows.has_more():
                found = cut
    source.skip(source.rest)
    return plain, found


class _Head(NamedTuple):
    """The body of a row event up to its first row.

    `columns`: their number. `has_all_columns`: each image has all of them.
    """

    data: bytes
    columns: int
    has_all_columns: bool


def _read_head(event_type: int, source: ByteSource) -> _Head:
    head = source.take(_HEAD)
    if event_type in t.V2:
        extra = source.take(2)
        head += extra + source.take(max(0, int.from_bytes(extra, "little") - 2))
    first = source.take(1)
    more = source.take(2) if first[0] >= 251 else b""
    columns = int.from_bytes(more, "little") if more else first[0]
    size, full = (columns + 7) // 8, (1 << columns) - 1
    bitmaps = [source.take(size) for _ in range(2 if event_type in t.UPDATES else 1)]
    has_all = all(int.from_bytes(each, "little") & full == full for each in bitmaps)
    return _Head(head + first + more + b"".join(bitmaps), columns, has_all)


def _unpack_rows(source: ByteSource) -> ByteSource:
    """Return the unpacked rows of a compressed event (see log_event.unpack_compressed)."""
    form = source.take(1)[0]
    length = int.from_bytes(source.take(form & 7), "big")
    return ByteSource(Unpacker(source), length)


def _cut_rows(head: _Head, rows: ByteSource, maps: Mapping[bytes, bytes], limit: int) -> CutBody:
    logged = maps.get(head.data[:_ID])
    columns = () if logged is None else parse_table_map(logged).columns
    if len(columns) != head.columns:
        raise UndecodableRow(f"row event has {head.columns} columns where its TABLE_MAP has {len(columns)}")
    bitmap, out, cut = (len(columns) + 7) // 8, bytearray(head.data), list[CutValue]()
    sizes = [(get_fixed_size(column), column) for column in columns]
    while rows.rest:
        nulls = rows.take(bitmap)
        out += nulls
        for place, (fixed, column) in enumerate(sizes):
            if nulls[place >> 3] >> (place & 7) & 1:
                continue
            size = _copy_length(rows, column, out, limit) if fixed is None else fixed
            if fixed is None and size > limit:
                cut.append(CutValue(place, size))
                rows.skip(size)
            else:
                out += rows.take(size)
    return CutBody.build(bytes(out), tuple(cut))


def _copy_length(rows: ByteSource, column: ColumnMap, out: bytearray, limit: int) -> int:
    """Return the size of the next value, and add its length to `out`: 0 for a value above `limit`."""
    length = rows.take(count_length_bytes(column))
    size = int.from_bytes(length, "little")
    out += length if size <= limit else bytes(len(length))
    return size
