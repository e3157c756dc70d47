"""Converts the bytes of row events to Kafka records: the hot path of capture.

Usage per event body (`body`: an event without its 19-byte header and without its checksum):

    table_map = maps.get_table_map(body)  # TABLE_MAP: TableMapCache, unchanged bytes are a dict look-up
    codec = TableCodec(table, table_map, source, tail)  # once per (definition, table_map.layout, topic)
    event_type, body = unpack_rows_event(event_type, body)  # only for MariaDB's log_bin_compress
    records = codec.build_records(event_type, body, tx, first_row)  # [(key, value)]; advances tx.total_order
    first_row += len(records)  # for uncaptured tables: first_row += count_rows(table_map, …)
    last = mark_last(value)  # sets "last": true in the one record that is held back

`tail` (TopicTail) has the position of the topic's last event and is shared by all codecs that write to the
topic; every event function writes it into the envelope as `source.prev` (docs/reference/envelope.md) and
moves it on. There is one `TransactionContext` per source transaction. Events other than rows (definition,
TRUNCATE, snapshot rows, chunk markers) are in producer/kafka/control_events.py. The Kafka key of an update is
that of its after image.

A value that does not fit its column (bytes that are no text of its charset) is written to the event raw
and marked (producer/decoders/marked.py). Errors: `DefinitionMismatch` when the TABLE_MAP does not fit
the definition (the stream is at an unnoticed DDL: read the definition again, or stop the table);
`IncompleteRowImage`; `OversizedValue` for a published value that was too large to keep
(producer/binlog_format/large_rows.py); `UndecodableRow` for any other unknown form.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import orjson

from producer.binlog_format import types as t
from producer.binlog_format.column_sizes import count_length_bytes, get_fixed_size
from producer.binlog_format.definition_match import explain_mismatch
from producer.binlog_format.errors import DefinitionMismatch, OversizedValue, UndecodableRow
from producer.binlog_format.large_rows import CutBody
from producer.binlog_format.row_events import (
    ColumnMap,
    TableMap,
    TableMapCache,
    find_rows_start,
    is_row_event,
    parse_table_map,
    read_table_id,
    unpack_rows_event,
)
from producer.decoders.columns import build_column_format, require_single_codes
from producer.decoders.envelope import (
    LAST_FALSE,
    LAST_TRUE,
    EnvelopeRenderer,
    SourceContext,
    TopicTail,
    TransactionContext,
)
from producer.decoders.fragments import ColumnFormat, FixedFormat, VariableFormat
from producer.decoders.generate import ImageFunction, ImageFunctions, LoopFunction, RowLayout, compile_loop
from producer.decoders.marked import EnvelopeText, UndecodableRowEncoder
from schemas.table.keys import list_indexed_columns
from schemas.table.model import Key, Row, Table
from schemas.wire.position import Position

__all__ = [
    "DefinitionMismatch",
    "SourceContext",
    "TableCodec",
    "TableMap",
    "TableMapCache",
    "TopicTail",
    "TransactionContext",
    "UndecodableRow",
    "count_rows",
    "is_row_event",
    "mark_last",
    "parse_table_map",
    "read_table_id",
    "unpack_rows_event",
]

_ERRORS = (struct.error, IndexError, KeyError, UnicodeDecodeError, ValueError, OverflowError)

_OPERATION = {
    **dict.fromkeys(t.WRITES, "c"),
    **dict.fromkeys(t.UPDATES, "u"),
    **dict.fromkeys(t.DELETES, "d"),
}
_HEADS = {
    "c": ('{"op":"c","before":null,"after":', ""),
    "u": ('{"op":"u","before":', ""),
    "d": ('{"op":"d","before":', ',"after":null'),
}
"""The text before the first image, and between the last image and the envelope's `source`."""


class TableCodec:
    """Decodes the row events of one table under one definition and one TABLE_MAP layout, and builds the
    records of its topic.

    Raises DefinitionMismatch when `table_map` refutes `table`
    (producer/binlog_format/definition_match.py, and forms of columns).
    """

    def __init__(self, table: Table, table_map: TableMap, source: SourceContext, tail: TopicTail) -> None:
        formats = _build_formats(table, table_map, source)
        places, names = table.places, table.logged_names
        key = tuple(places[i] for i in table.find_ordinals(table.key.columns))
        self.table = table
        self._columns = len(formats)
        self._bitmap = (len(formats) + 7) // 8
        image = places if len(formats) > len(places) else None
        self._layout = RowLayout(formats, names, key, image)
        self._loops: dict[str, LoopFunction] = {}
        self._keyed = ImageFunctions(self._layout)
        self._plain = ImageFunctions(RowLayout(formats, names, image=image))
        key_only = (f if i in key else _skip_format(table_map.columns[i]) for i, f in enumerate(formats))
        self._keys = ImageFunctions(RowLayout(tuple(key_only), names, image=key))
        self._frame = EnvelopeRenderer(table.db, table.name, source)
        self._source = source
        self._tail = tail
        self._marked: UndecodableRowEncoder | None = None
        self._starts: dict[int, tuple[bytes, int]] = {}
        self._before: Position | None = None
        self._last: Position | None = None
        self._prev = "null"

    def build_records(
        self, event_type: int, body: bytes, tx: TransactionContext, first_row: int
    ) -> list[tuple[bytes, bytes]]:
        """Decode every row of a row event, and build the record of each: (Kafka key, event as JSON).

        `source.row` counts from `first_row`, `last` is false.

        Raises UndecodableRow, OversizedValue; nothing is changed then.
        """
        if body.__class__ is CutBody:
            self._require_unpublished(body)
        try:
            start = self._find_first_row(event_type, body)
            records = self._encode_records(event_type, body, start, tx, first_row)
        except _ERRORS:
            records = self._encode_undecodable_records(event_type, body, tx, first_row)
        if records:
            self._before = self._tail.last
            tx.total_order += len(records)
            last = (self._source.epoch, tx.file_number, tx.pos, first_row + len(records) - 1)
            self._tail.last = self._last = last
            self._prev = self._frame.render_position(last)
        return records

    def _require_unpublished(self, body: bytes) -> None:
        """Raise OversizedValue if a value is missing that is to be published."""
        for value in body.cut if isinstance(body, CutBody) else ():
            if value.place in self._layout.shown:
                column = self.table.logged_names[value.place]
                raise OversizedValue(
                    f"a value of column {column} of {self.table.db}.{self.table.name} has {value.size} "
                    "bytes, and Kafka takes no event of that size",
                    "leave the column out (`columns:`), exclude the table, or make the value smaller",
                )

    def withdraw_rows(self, records: list[tuple[bytes, bytes]], keep: int, tx: TransactionContext) -> None:
        """Withdraw all but the first `keep` of the records of the last `build_records`: they are not sent."""
        dropped = len(records) - keep
        if not dropped or self._last is None:
            return
        del records[keep:]
        tx.total_order -= dropped
        epoch, file, pos, row = self._last
        self._last = (epoch, file, pos, row - dropped) if keep else self._before
        self._tail.last = self._last
        self._prev = self._frame.render_position(self._last)

    def _find_first_row(self, event_type: int, body: bytes) -> int:
        """Return the offset of the first row.

        The bytes before it are nearly always those of the last event.
        """
        known, start = self._starts.get(event_type, (b"-", 8))
        if body[8:start] != known:
            start = find_rows_start(event_type, body, self._columns)
            self._starts[event_type] = (body[8:start], start)
        return start

    def _encode_records(
        self, event_type: int, body: bytes, start: int, tx: TransactionContext, first_row: int
    ) -> list[tuple[bytes, bytes]]:
        operation = _OPERATION[event_type]
        head, null_after = _HEADS[operation]
        where, position, middle, tail = self._frame.get_parts(tx)
        last = self._tail.last
        prev = self._prev if last is self._last else self._frame.render_position(last)
        out: list[tuple[bytes, bytes]] = []
        loop = self._loops.get(operation) or self._compile_loop(operation, body, start)
        end = loop(
            body, body.decode("latin-1"), start, len(body), self._plain, self._keyed, out.append,
            head, null_after + where, position, prev, middle, tail, first_row, tx.total_order + 1,
        )  # fmt: skip
        _check_end(end, len(body))
        return out

    def _encode_undecodable_records(
        self, event_type: int, body: bytes, tx: TransactionContext, first_row: int
    ) -> list[tuple[bytes, bytes]]:
        """Encode an event again that could not be decoded.

        Values that cannot be decoded stay raw, and are named.
        """
        if self._marked is None:
            self._marked = UndecodableRowEncoder(self._layout, self._bitmap)
        operation = _OPERATION[event_type]
        envelope = EnvelopeText(
            self._frame.get_parts(tx), operation, self._frame.render_position(self._tail.last)
        )
        try:
            start = find_rows_start(event_type, body, self._columns)
            return self._marked.encode_records(
                operation, body, start, envelope, (first_row, tx.total_order + 1)
            )
        except _ERRORS as error:
            raise self._make_undecodable_error(event_type, error) from error

    def _compile_loop(self, operation: str, body: bytes, start: int) -> LoopFunction:
        """Compile the loop of an operation for the NULLs of the first row seen: rows of a table resemble
        each other.
        """
        nulls = int.from_bytes(body[start : start + self._bitmap], "little")
        loop = self._loops[operation] = compile_loop(self._layout, nulls, update=operation == "u")
        return loop

    def decode_keys(self, event_type: int, body: bytes) -> list[Key]:
        """Return the keys of all images, before and after, which a snapshot window must not emit any
        more.
        """
        return self._decode_images(self._keys, event_type, body)

    def _decode_images(self, images: ImageFunctions, event_type: int, body: bytes) -> list[Row]:
        try:
            start = find_rows_start(event_type, body, self._columns)
            found = _walk_images(images, self._bitmap, body, start)
            return [tuple(orjson.loads(image.encode("latin-1")).values()) for image, _ in found]
        except _ERRORS as error:
            raise self._make_undecodable_error(event_type, error) from error

    def _make_undecodable_error(self, event_type: int, error: Exception) -> UndecodableRow:
        return UndecodableRow(
            f"row event (type {event_type}) of {self.table.db}.{self.table.name} cannot be decoded: "
            f"{type(error).__name__}: {error}"
        )


def _build_formats(table: Table, table_map: TableMap, source: SourceContext) -> tuple[ColumnFormat, ...]:
    where = f"{table.db}.{table.name}"
    if source.form is None:
        raise ValueError(f"{where}: the form of the source's TABLE_MAP events is not given")
    try:
        wrong = explain_mismatch(table, table_map, source.charsets, source.form)
    except UndecodableRow as error:
        raise UndecodableRow.wrap_error(where, error) from error
    if wrong is not None:
        raise DefinitionMismatch(f"{where}: {wrong}")
    formats: dict[int, ColumnFormat] = {}
    indexed = list_indexed_columns(table)
    for i, column in zip(table.places, table.columns, strict=True):
        try:
            form = build_column_format(i, table_map.columns[i], column.type)
            formats[i] = require_single_codes(i, form, column.type) if column.name in indexed else form
        except (DefinitionMismatch, UndecodableRow) as error:
            raise type(error).wrap_error(f"{where}.{column.name}", error) from error
    # The others are left out, or hidden ones of the server, which no definition has.
    return tuple(formats.get(i) or _skip_format(logged) for i, logged in enumerate(table_map.columns))


def _walk_images(images: ImageFunctions, bitmap: int, body: bytes, p: int) -> Iterator[tuple[str, int]]:
    text, end = body.decode("latin-1"), len(body)
    while p < end:
        function: ImageFunction = images[int.from_bytes(body[p : p + bitmap], "little")]
        found = function(body, text, p)
        p = found[1]
        yield found
    _check_end(p, end)


def _check_end(p: int, end: int) -> None:
    if p != end:
        raise ValueError(f"the last row ends at {p}, the event at {end}: the table definition does not fit")


_COUNTERS: dict[bytes, ImageFunctions] = {}
_MAX_COUNTERS = 4096


def count_rows(table_map: TableMap, event_type: int, body: bytes) -> int:
    """Return the number of rows of an event without decoding them: `row` counts those of uncaptured
    tables too.

    Raises UndecodableRow.
    """
    images = _COUNTERS.get(table_map.layout)
    if images is None:
        if len(_COUNTERS) >= _MAX_COUNTERS:
            _COUNTERS.clear()
        images = _COUNTERS[table_map.layout] = ImageFunctions(
            RowLayout(tuple(_skip_format(c) for c in table_map.columns))
        )
    try:
        return _count_rows(images, event_type, body, len(table_map.columns))
    except _ERRORS as error:
        where = f"{table_map.db}.{table_map.name}"
        raise UndecodableRow(
            f"rows of an event (type {event_type}) of {where} cannot be counted: {error}"
        ) from error


def _count_rows(images: ImageFunctions, event_type: int, body: bytes, columns: int) -> int:
    p, bitmap, end, count = find_rows_start(event_type, body, columns), (columns + 7) // 8, len(body), 0
    while p < end:
        p = images[int.from_bytes(body[p : p + bitmap], "little")](body, "", p)
        count += 1
    _check_end(p, end)
    return count // 2 if event_type in t.UPDATES else count


def mark_last(value: bytes) -> bytes:
    """Return the event value with `transaction.last` true."""
    at = value.rindex(LAST_FALSE)
    return value[:at] + LAST_TRUE + value[at + len(LAST_FALSE) :]


def replace_previous(value: bytes, position: Position | None) -> bytes:
    """Return the event value with `source.prev` set to `position`: the rows before it are not sent."""
    begin = value.rindex(_PREVIOUS) + len(_PREVIOUS)  # after the images, so no value of the database has it
    end = value.index(_AFTER_PREVIOUS, begin)
    return value[:begin] + EnvelopeRenderer.render_position(position).encode() + value[end:]


_PREVIOUS, _AFTER_PREVIOUS = b'"prev":', b',"gen":'


def _skip_format(column: ColumnMap) -> ColumnFormat:
    """Return a format that reads only what is needed to find the next column."""
    size = get_fixed_size(column)
    if size is not None:
        return FixedFormat(parts=(("", f"{size}x"),), render=lambda _names, _out: [])
    return VariableFormat(length_bytes=count_length_bytes(column), render=lambda _start, _end, _out: [])
