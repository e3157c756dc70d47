"""TABLE_MAP events: the columns of the row events that follow, and their binary form.

Format: MySQL's `Table_map_event` (libs/mysql/binlog/event/rows_event.h), optional metadata included. The
table's names are parsed at once, the rest only when it is needed: for an uncaptured table nothing else
may matter. The optional metadata is a cross-check of the table definition
(producer/binlog_format/definition_match.py), never its source, since it lacks the unique indexes.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.errors import UndecodableRow
from producer.binlog_format.metadata import LoggedMetadata, TableMapForm, parse_metadata


class ColumnMap(msgspec.Struct, frozen=True, kw_only=True):
    """One column as the log stores it.

    `metadata` by type: DECIMAL precision << 8 | scale; BIT length in bits; times fsp; strings length in
    bytes; ENUM, SET and BLOB-like types the number of bytes of the value or of its length.
    """

    type: int  # real type: ENUM and SET are distinguished from STRING
    metadata: int
    nullable: bool


class TableMap:
    """A TABLE_MAP event. `layout`: the body without table id and flags; equal layouts may share a codec."""

    def __init__(self, table_id: int, db: str, name: str, layout: bytes) -> None:
        self.table_id = table_id
        self.db = db
        self.name = name
        self.layout = layout

    @cached_property
    def columns(self) -> tuple[ColumnMap, ...]:
        """The columns. Raises UndecodableRow for a body that is no TABLE_MAP, and for an unknown type."""
        return self._parsed[0]

    def parse_metadata(self, form: TableMapForm) -> LoggedMetadata:
        """Return the optional metadata. Raises UndecodableRow."""
        columns, rest = self._parsed
        return parse_metadata(rest, [column.type for column in columns], form.parsers)

    @cached_property
    def _parsed(self) -> tuple[tuple[ColumnMap, ...], bytes]:
        try:
            return _parse_columns(self.layout)
        except (IndexError, KeyError, ValueError) as error:
            raise UndecodableRow(
                f"TABLE_MAP event of {self.db}.{self.name} cannot be parsed: {error}"
            ) from error


class TableMapCache:
    """Parsed TABLE_MAPs by their raw body: servers send the same bytes before nearly every row event."""

    def __init__(self, limit: int = 4096) -> None:
        self._parsed: dict[bytes, TableMap] = {}
        self._limit = limit

    def get_table_map(self, body: bytes) -> TableMap:
        """Return the parsed `body`. Raises UndecodableRow."""
        found = self._parsed.get(body)
        if found is None:
            if len(self._parsed) >= self._limit:
                self._parsed.clear()
            found = self._parsed[body] = parse_table_map(body)
        return found


def parse_table_map(body: bytes) -> TableMap:
    """Parse the names in the body of a TABLE_MAP event. Raises UndecodableRow."""
    try:
        reader = ByteReader(body)
        table_id = reader.read_uint(6)
        reader.read_uint(2)
        return TableMap(table_id, _read_name(reader), _read_name(reader), body[8:])
    except (IndexError, ValueError) as error:
        raise UndecodableRow(f"TABLE_MAP event of {len(body)} bytes cannot be parsed: {error}") from error


def _parse_columns(layout: bytes) -> tuple[tuple[ColumnMap, ...], bytes]:
    """Return the columns, and the optional metadata after them."""
    reader = ByteReader(layout)
    _read_name(reader), _read_name(reader)
    count = reader.read_lenenc()
    types = reader.read_bytes(count)
    metadata = ByteReader(reader.read_bytes(reader.read_lenenc()))
    forms = [_read_real_type(kind, metadata) for kind in types]
    nullable = reader.read_bytes((count + 7) // 8)
    columns = tuple(
        ColumnMap(type=kind, metadata=size, nullable=bool(nullable[i >> 3] >> (i & 7) & 1))
        for i, (kind, size) in enumerate(forms)
    )
    return columns, reader.read_bytes(reader.rest)


def _read_name(reader: ByteReader) -> str:
    text = reader.read_bytes(reader.read_uint(1)).decode()
    reader.read_uint(1)
    return text


def _read_real_type(kind: int, metadata: ByteReader) -> tuple[int, int]:
    """Read the metadata of one column. STRING's contains the real type and the high bits of the length."""
    if kind in (t.STRING, t.VAR_STRING, t.ENUM, t.SET):
        high, low = metadata.read_uint(1), metadata.read_uint(1)
        if high & 0x30 != 0x30:
            return high | 0x30, low | ((high & 0x30) ^ 0x30) << 4
        return high, low
    if kind == t.NEWDECIMAL:
        return kind, metadata.read_uint(1) << 8 | metadata.read_uint(1)
    if kind == t.BIT:
        return kind, metadata.read_uint(1) + 8 * metadata.read_uint(1)
    if kind in t.TWO_BYTES_OF_METADATA:
        return kind, metadata.read_uint(2)
    if kind in t.ONE_BYTE_OF_METADATA:
        return kind, metadata.read_uint(1)
    if kind in t.NO_METADATA:
        return kind, 0
    raise UndecodableRow(
        f"column type {kind} is not known: the table cannot be captured, leave it out of `tables`"
    )
