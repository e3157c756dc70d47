"""The optional metadata after a TABLE_MAP (binlog_row_metadata NO_LOG, MINIMAL and FULL).

It consists of type-length-value fields, `Table_map_event::Optional_metadata_field_type` of MySQL;
MariaDB (NO_LOG by default) uses the same numbers. Unknown fields are skipped: they can only add. Which
columns a field counts depends on the server: MariaDB has a charset for GEOMETRY (63, binary) and MySQL
has none, so the fields of one are misread by the rules of the other
(tests/integration/test_logged_metadata.py tests both servers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.errors import UndecodableRow


class LoggedMetadata(msgspec.Struct):
    """The optional metadata of a TABLE_MAP event, by column ordinal.

    `names`: empty unless the metadata is FULL. `primary`: in the key's order.
    """

    unsigned: dict[int, bool] = {}
    charsets: dict[int, int] = {}  # collation ids
    names: tuple[str, ...] = ()
    members: dict[int, tuple[bytes, ...]] = {}
    primary: tuple[int, ...] = ()


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

    def default(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        columns = _select_columns_of_kinds(types, kinds)
        found.charsets.update(dict.fromkeys(columns, field.read_lenenc()))
        while field.rest:
            column = columns[
                field.read_lenenc()
            ]  # first: Python evaluates the right side of an assignment first
            found.charsets[column] = field.read_lenenc()

    def each(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        found.charsets.update({i: field.read_lenenc() for i in _select_columns_of_kinds(types, kinds)})
        if field.rest:
            raise ValueError("charsets for more columns than the table has")

    return default, each


def _parse_column_names(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
    found.names = tuple(field.read_text().decode() for _ in types)


def _make_members_parser(kind: int) -> Parser:
    def parse(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        for i in _select_columns_of_kinds(types, {kind}):
            found.members[i] = tuple(field.read_text() for _ in range(field.read_lenenc()))

    return parse


def _parse_primary_key(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary += (field.read_lenenc(),)


def _parse_prefixed_primary_key(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary += (field.read_lenenc(),)
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
