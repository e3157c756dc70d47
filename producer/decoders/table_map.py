"""TABLE_MAP events: which columns, in which binary form, the row events behind them have.

Format: MySQL's `Table_map_event` (libs/mysql/binlog/event/rows_event.h), optional metadata included. Only what a
decoder needs is kept; what the optional metadata says is a cross-check of the table definition, never its source,
since it lacks the unique indexes.
"""

from __future__ import annotations

import msgspec

from producer.decoders import types as t
from producer.decoders.errors import UndecodableRow
from producer.decoders.metadata import LoggedMetadata, parse_optional
from producer.decoders.reader import Reader


class ColumnMap(msgspec.Struct, frozen=True, kw_only=True):
    """One column as the log stores it; `unsigned` … `primary` only as far as the log's optional metadata tells.

    `metadata` by type: DECIMAL precision << 8 | scale; BIT length in bits; times fsp; strings length in bytes;
    ENUM, SET and BLOB-like types the number of bytes of the value or of its length.
    """

    type: int  # real type: ENUM and SET are told apart from STRING
    metadata: int
    nullable: bool
    unsigned: bool | None = None
    charset: int | None = None  # collation id
    name: str | None = None
    members: tuple[bytes, ...] | None = None
    primary: bool = False


class TableMap(msgspec.Struct, frozen=True, kw_only=True):
    """`layout`: the body without table id and flags; equal layouts may share a codec."""

    table_id: int
    db: str
    name: str
    columns: tuple[ColumnMap, ...]
    layout: bytes

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names, with binlog_row_metadata=FULL; else None."""
        names = tuple(column.name for column in self.columns if column.name is not None)
        return names if len(names) == len(self.columns) else None


class TableMapCache:
    """Parsed TABLE_MAPs by their raw body: servers send the same bytes before nearly every row event."""

    def __init__(self, limit: int = 4096) -> None:
        self._parsed: dict[bytes, TableMap] = {}
        self._limit = limit

    def get(self, body: bytes) -> TableMap:
        """Return the parsed `body`. Raises UndecodableRow."""
        found = self._parsed.get(body)
        if found is None:
            if len(self._parsed) >= self._limit:
                self._parsed.clear()
            found = self._parsed[body] = parse_table_map(body)
        return found


def parse_table_map(body: bytes) -> TableMap:
    """Parse the body of a TABLE_MAP event. Raises UndecodableRow."""
    try:
        return _parse(body)
    except (IndexError, KeyError, ValueError) as error:
        raise UndecodableRow(f"TABLE_MAP event of {len(body)} bytes cannot be parsed: {error}") from error


def _parse(body: bytes) -> TableMap:
    reader = Reader(body)
    table_id = reader.uint(6)
    reader.uint(2)
    db, name = _name(reader), _name(reader)
    count = reader.lenenc()
    types = reader.take(count)
    metadata = Reader(reader.take(reader.lenenc()))
    forms = [_real_type(kind, metadata) for kind in types]
    nullable = reader.take((count + 7) // 8)
    extra = parse_optional(reader, [kind for kind, _ in forms])
    columns = tuple(
        _column(i, kind, meta, bool(nullable[i >> 3] >> (i & 7) & 1), extra)
        for i, (kind, meta) in enumerate(forms)
    )
    return TableMap(table_id=table_id, db=db, name=name, columns=columns, layout=body[8:])


def _name(reader: Reader) -> str:
    text = reader.take(reader.uint(1)).decode()
    reader.uint(1)
    return text


def _real_type(kind: int, metadata: Reader) -> tuple[int, int]:
    """Read the metadata of one column; STRING's holds the real type and the high bits of the length."""
    if kind in (t.STRING, t.VAR_STRING, t.ENUM, t.SET):
        high, low = metadata.uint(1), metadata.uint(1)
        if high & 0x30 != 0x30:
            return high | 0x30, low | ((high & 0x30) ^ 0x30) << 4
        return high, low
    if kind == t.NEWDECIMAL:
        return kind, metadata.uint(1) << 8 | metadata.uint(1)
    if kind == t.BIT:
        return kind, metadata.uint(1) + 8 * metadata.uint(1)
    if kind in t.TWO_BYTES_OF_METADATA:
        return kind, metadata.uint(2)
    if kind in t.ONE_BYTE_OF_METADATA:
        return kind, metadata.uint(1)
    if kind in t.NO_METADATA:
        return kind, 0
    raise UndecodableRow(
        f"column type {kind} is not known: the table cannot be captured, leave it out of `tables`"
    )


def _column(i: int, kind: int, metadata: int, nullable: bool, extra: LoggedMetadata) -> ColumnMap:
    return ColumnMap(
        type=kind,
        metadata=metadata,
        nullable=nullable,
        unsigned=extra.unsigned.get(i),
        charset=extra.charsets.get(i),
        name=extra.names[i] if extra.names else None,
        members=extra.members.get(i),
        primary=i in extra.primary,
    )
