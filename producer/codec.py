"""From the bytes of row events to Kafka records: the hot path of capture (design.md §4 and §5).

How the stream uses it, per event body (`body`: an event without its 19-byte header and without its checksum):

    table_map = maps.get(body)                     # TABLE_MAP: TableMapCache, unchanged bytes are a dict look-up
    codec = TableCodec(table, table_map, source, tail)     # once per (definition, table_map.layout, topic)
    records = codec.encode(event_type, body, tx, first_row)   # [(key, value)]; len(records) rows; advances tx.total_order
    first_row += len(records)                      # for tables not captured: first_row += count_rows(table_map, …)
    last = mark_last(value)                        # patches "last": true into the one record that is held back

`tail` (TopicTail) holds the position of the topic's last event and is shared by all codecs that write to the topic;
every event function reads it as `source.prev` and moves it on. One `TransactionContext` per source transaction.
Events other than rows (definition, TRUNCATE, snapshot rows, chunk markers) are in producer/codec_control.py.
Errors: `DefinitionMismatch` when the TABLE_MAP does not fit the definition (the stream is at an unnoticed DDL: read
the definition again, or stop the table); `UndecodableRow` for an image that is not full or not of a known form.
"""

from __future__ import annotations

from producer.decoders.context import SourceContext, TopicTail, TransactionContext
from producer.decoders.errors import DefinitionMismatch, UndecodableRow
from producer.decoders.table_map import TableMap, TableMapCache, parse_table_map
from schemas.table import Key, Row, Table

__all__ = [
    "DefinitionMismatch", "SourceContext", "TableCodec", "TableMap", "TableMapCache", "TopicTail",
    "TransactionContext", "UndecodableRow", "count_rows", "is_row_event", "mark_last", "parse_table_map", "plain_rows_event",
]


class TableCodec:
    """Row events of one table under one definition and one TABLE_MAP layout, into one topic.

    Raises DefinitionMismatch when `table_map` cannot be of `table` (number or kinds of columns differ).
    """

    def __init__(self, table: Table, table_map: TableMap, source: SourceContext, tail: TopicTail) -> None:
        raise NotImplementedError

    def encode(self, event_type: int, body: bytes, tx: TransactionContext, first_row: int) -> list[tuple[bytes, bytes]]:
        """Return (Kafka key, event value) of every row; `source.row` counts from `first_row`, `last` is false."""
        raise NotImplementedError

    def rows(self, event_type: int, body: bytes) -> list[tuple[Row | None, Row | None]]:
        """Return (before, after) of every row as wire values; None where the operation has no such image."""
        raise NotImplementedError

    def keys(self, event_type: int, body: bytes) -> list[Key]:
        """Return the keys of all images, before and after: what a snapshot window must not emit any more."""
        raise NotImplementedError


def is_row_event(event_type: int) -> bool:
    """Tell whether `event_type` is a WRITE, UPDATE or DELETE_ROWS event of any version (compressed ones included)."""
    raise NotImplementedError


def plain_rows_event(event_type: int, body: bytes) -> tuple[int, bytes]:
    """Return type and body of a row event, unpacked if it is one of MariaDB's compressed ones (log_bin_compress)."""
    raise NotImplementedError


def count_rows(table_map: TableMap, event_type: int, body: bytes) -> int:
    """Return the number of rows of an event without decoding them: `row` counts those of uncaptured tables too."""
    raise NotImplementedError


def mark_last(value: bytes) -> bytes:
    """Return the event value with `transaction.last` true."""
    raise NotImplementedError
