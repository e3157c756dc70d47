"""The optional metadata behind a TABLE_MAP (binlog_row_metadata NO_LOG, MINIMAL and FULL).

Type-length-value fields, `Table_map_event::Optional_metadata_field_type` of MySQL; MariaDB (NO_LOG by default) uses
the same numbers. Unknown fields are skipped: they can only add. Which columns a field counts is the server's own
matter: MariaDB has a charset for GEOMETRY (63, binary) and MySQL has none, so the fields of one are misread by the
rules of the other (tests/integration/test_logged_metadata.py asks both servers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.errors import UndecodableRow


class LoggedMetadata(msgspec.Struct):
    """The optional metadata of a TABLE_MAP event, by column ordinal. `names` is empty unless the metadata is FULL; `primary` in
    the key's order."""

    unsigned: dict[int, bool] = {}
    charsets: dict[int, int] = {}  # collation ids
    names: tuple[str, ...] = ()
    members: dict[int, tuple[bytes, ...]] = {}
    primary: tuple[int, ...] = ()


Parser = Callable[[ByteReader, list[int], LoggedMetadata], None]


class TableMapForm(NamedTuple):
    """A server's form of TABLE_MAP events: `parsers` of its metadata's fields by their number, and whether it adds columns
    that no catalogue shows (`hidden_hashes`: one for each unique index over long text)."""

    parsers: Mapping[int, Parser]
    hidden_hashes: bool


def parse_metadata(data: bytes, types: list[int], parsers: Mapping[int, Parser]) -> LoggedMetadata:
    """Parse the optional metadata of columns of the (real) `types`. Raises UndecodableRow."""
    reader, found = ByteReader(data), LoggedMetadata()
    try:
        while reader.rest:
            number = reader.uint(1)
            field = ByteReader(reader.take(reader.lenenc()))
            parser = parsers.get(number)
            if parser:
                parser(field, types, found)
    except (IndexError, KeyError, ValueError) as error:
        raise UndecodableRow(f"the metadata of its TABLE_MAP cannot be parsed: {error}") from error
    return found


def _of(types: list[int], kinds: Iterable[int]) -> list[int]:
    wanted = frozenset(kinds)
    return [i for i, kind in enumerate(types) if kind in wanted]


def _signedness(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
    bits = field.take(field.rest)
    for n, i in enumerate(_of(types, t.NUMERIC)):
        if n >> 3 < len(bits):
            found.unsigned[i] = bool(bits[n >> 3] & 0x80 >> (n & 7))


def _charset_of(kinds: Iterable[int]) -> tuple[Parser, Parser]:
    """Return the parsers of a default charset with exceptions, and of a charset for each column."""

    def default(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        columns = _of(types, kinds)
        found.charsets.update(dict.fromkeys(columns, field.lenenc()))
        while field.rest:
            column = columns[field.lenenc()]  # first: Python evaluates the right side of an assignment first
            found.charsets[column] = field.lenenc()

    def each(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        found.charsets.update({i: field.lenenc() for i in _of(types, kinds)})
        if field.rest:
            raise ValueError("charsets for more columns than the table has")

    return default, each


def _names(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
    found.names = tuple(field.text().decode() for _ in types)


def _members_of(kind: int) -> Parser:
    def parse(field: ByteReader, types: list[int], found: LoggedMetadata) -> None:
        for i in _of(types, {kind}):
            found.members[i] = tuple(field.text() for _ in range(field.lenenc()))

    return parse


def _primary(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary += (field.lenenc(),)


def _primary_with_prefix(field: ByteReader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary += (field.lenenc(),)
        field.lenenc()


def parsers(character: Iterable[int]) -> dict[int, Parser]:
    """`character`: the types that the server counts among those with a charset (ENUM and SET have fields of their own)."""
    return {
        1: _signedness,
        **dict(zip((2, 3), _charset_of(character), strict=True)),
        4: _names,
        5: _members_of(t.SET),
        6: _members_of(t.ENUM),
        8: _primary,
        9: _primary_with_prefix,
        **dict(zip((10, 11), _charset_of({t.ENUM, t.SET}), strict=True)),
    }
