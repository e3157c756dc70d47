"""Row events: the TABLE_MAP that names the columns of the row events after it, and the frame of a row event
(header, column bitmaps, and where the row images begin).

Formats: `Table_map_event` and `Rows_event` of MySQL (libs/mysql/binlog/event/rows_event.h). MariaDB's
compressed variants pack everything after the bitmaps (sql/log_event.cc, row_log_event_uncompress). The
table's names are parsed at once, the rest only when it is needed: for an uncaptured table nothing else
may matter. The optional metadata is a cross-check of the table definition
(producer/binlog_format/definition_match.py), never its source, since it lacks the unique indexes.

The optional metadata (binlog_row_metadata NO_LOG, MINIMAL and FULL) consists of type-length-value
fields, `Table_map_event::Optional_metadata_field_type` of MySQL; MariaDB (NO_LOG by default) uses the
same numbers. Unknown fields are skipped: they can only add. Which columns a field counts depends on the
server: MariaDB has a charset for GEOMETRY (63, binary) and MySQL has none, so the fields of one are
misread by the rules of the other (tests/integration/test_logged_metadata.py tests both servers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.errors import IncompleteRowImage, UndecodableRow
from producer.binlog_format.log_event import unpack_compressed


class LoggedMetadata(msgspec.Struct):
    """The optional metadata of a TABLE_MAP event, by column ordinal.

    `names`: empty unless the metadata is FULL. `primary`: in the key's order.
    """

    unsigned: dict[int, bool] = {}
    charsets: dict[int, int] = {}  # collation ids
    names: tuple[str, ...] = ()
    members: dict[int, tuple[bytes, ...]] = {}
    primary: tuple[int, ...] = ()

    def name_columns(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def add_key_column(self, ordinal: int) -> None:
        self.primary = (*self.primary, ordinal)


Parser = Callable[[ByteReader, list[int], LoggedMetadata], None]


class TableMapForm(NamedTuple):
    """A server's form of TABLE_MAP events.

    `parsers`: of its metadata's fields by their number. `hidden_hashes`: whether it adds columns that no
    catalog shows, one for each unique index over long text.
    """

    parsers: Mapping[int, Parser]
    hidden_hashes: bool


def parse_metadata(data: bytes, types: list[int], parsers: Mapping[int, Parser]) -> LoggedMetadata:
    """Parse the optional metadata of columns of the (real) `types`. Raises UndecodableRow."""
    reader, found = ByteReader(data), LoggedMetadata()
    try:
        while reader.rest:
            number = reader.read_uint(1)
            field = ByteReader(reader.read_bytes(reader.read_lenenc()))
            parser = parsers.get(number)
            if parser:
                parser(field, types, found)
    except (IndexError, KeyError, ValueError) as error:
        raise UndecodableRow(f"the metadata of its TABLE_MAP cannot be parsed: {error}") from error
    return found


def _select_columns_of_kinds(types: list[int], kinds: Iterable[int]) -> list[int]:
    selected = frozenset(kinds)
    return [i for i, kind in enumerate(types) if kind in selected]


def _parse_signedness(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
    bits = field.read_bytes(field.rest)
    for n, i in enumerate(_select_columns_of_kinds(types, t.NUMERIC)):
        if n >> 3 < len(bits):
            found.unsigned[i] = bool(bits[n >> 3] & 0x80 >> (n & 7))


def _make_charset_parsers(kinds: Iterable[int]) -> tuple[Parser, Parser]:
    """Return the parsers of a default charset with exceptions, and of a charset for each column."""

    def parse_default(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        columns = _select_columns_of_kinds(types, kinds)
        found.charsets.update(dict.fromkeys(columns, field.read_lenenc()))
        while field.rest:
            column = columns[
                field.read_lenenc()
            ]  # first: Python evaluates the right side of an assignment first
            found.charsets[column] = field.read_lenenc()

    def parse_each(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        found.charsets.update({i: field.read_lenenc() for i in _select_columns_of_kinds(types, kinds)})
        if field.rest:
            raise ValueError("charsets for more columns than the table has")

    return parse_default, parse_each


def _parse_column_names(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
    found.name_columns(field.read_text().decode() for _ in types)


def _make_members_parser(kind: int) -> Parser:
    def parse(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        for i in _select_columns_of_kinds(types, {kind}):
            found.members[i] = tuple(field.read_text() for _ in range(field.read_lenenc()))

    return parse


def _parse_primary_key(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.add_key_column(field.read_lenenc())


def _parse_prefixed_primary_key(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.add_key_column(field.read_lenenc())
        field.read_lenenc()


def make_metadata_parsers(character: Iterable[int]) -> dict[int, Parser]:
    """Return the parsers of fields.

    `character`: the types that the server counts among those with a charset (ENUM and SET have their own
    fields).
    """
    return {
        1: _parse_signedness,
        **dict(zip((2, 3), _make_charset_parsers(character), strict=True)),
        4: _parse_column_names,
        5: _make_members_parser(t.SET),
        6: _make_members_parser(t.ENUM),
        8: _parse_primary_key,
        9: _parse_prefixed_primary_key,
        **dict(zip((10, 11), _make_charset_parsers({t.ENUM, t.SET}), strict=True)),
    }


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
        f"column type {kind} is not known", "change the column's type (or exclude the table)"
    )


def is_row_event(event_type: int) -> bool:
    """Return whether `event_type` is a WRITE, UPDATE or DELETE_ROWS event of any version, compressed or
    not.
    """
    return event_type in t.ROW_EVENTS


def read_table_id(body: bytes) -> int:
    """Return the table id of a row event, which is that of its TABLE_MAP."""
    return int.from_bytes(body[:6], "little")


def unpack_rows_event(event_type: int, body: bytes) -> tuple[int, bytes]:
    """Return type and body of a row event, unpacked if it is one of MariaDB's compressed ones
    (log_bin_compress).
    """
    plain = t.COMPRESSED.get(event_type)
    if plain is None:
        return event_type, body
    start = _find_bitmaps(plain, body)
    columns, start = _read_lenenc(body, start)
    start += (columns + 7) // 8 * (2 if plain in t.UPDATES else 1)
    return plain, body[:start] + unpack_compressed(body[start:], "a compressed row event")


def find_rows_start(event_type: int, body: bytes, columns: int) -> int:
    """Return the offset of the first row image.

    Raises UndecodableRow when the number of columns is not `columns`, and IncompleteRowImage.
    """
    if event_type == t.PARTIAL_UPDATE_ROWS_EVENT:
        raise IncompleteRowImage(
            "partial JSON update in the log", "SET GLOBAL binlog_row_value_options='', reconnect the clients"
        )
    found, start = _read_lenenc(body, _find_bitmaps(event_type, body))
    if found != columns:
        raise UndecodableRow(f"row event has {found} columns where its TABLE_MAP has {columns}")
    size = (columns + 7) // 8
    full = (1 << columns) - 1
    for _ in range(2 if event_type in t.UPDATES else 1):
        if int.from_bytes(body[start : start + size], "little") & full != full:
            raise IncompleteRowImage(
                "row image is not full", "SET GLOBAL binlog_row_image=FULL, reconnect the clients"
            )
        start += size
    return start


def _find_bitmaps(event_type: int, body: bytes) -> int:
    return 8 + (int.from_bytes(body[8:10], "little") if event_type in t.V2 else 0)


def _read_lenenc(body: bytes, at: int) -> tuple[int, int]:
    first = body[at]
    return (first, at + 1) if first < 251 else (int.from_bytes(body[at + 1 : at + 3], "little"), at + 3)
