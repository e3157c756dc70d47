"""The optional metadata behind a TABLE_MAP (binlog_row_metadata MINIMAL and FULL).

Type-length-value fields, `Table_map_event::Optional_metadata_field_type` of MySQL; MariaDB (NO_LOG by default) uses
the same numbers. Unknown fields are skipped: they can only add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from producer.decoders import types as t
from producer.decoders.reader import Reader


class LoggedMetadata(msgspec.Struct):
    """What was found, by column ordinal."""

    unsigned: dict[int, bool] = {}
    charsets: dict[int, int] = {}
    names: list[str] = []
    members: dict[int, tuple[bytes, ...]] = {}
    primary: set[int] = set()


def parse_optional(reader: Reader, types: list[int]) -> LoggedMetadata:
    """Parse the fields up to the end of `reader` for columns of the (real) `types`."""
    found = LoggedMetadata()
    while reader.rest:
        number = reader.uint(1)
        field = Reader(reader.take(reader.lenenc()))
        parser = _PARSERS.get(number)
        if parser:
            parser(field, types, found)
    return found


def _of(types: list[int], kinds: Iterable[int]) -> list[int]:
    wanted = frozenset(kinds)
    return [i for i, kind in enumerate(types) if kind in wanted]


def _signedness(field: Reader, types: list[int], found: LoggedMetadata) -> None:
    bits = field.take(field.rest)
    for n, i in enumerate(_of(types, t.NUMERIC)):
        if n >> 3 < len(bits):
            found.unsigned[i] = bool(bits[n >> 3] & 0x80 >> (n & 7))


# MariaDB counts GEOMETRY among the character columns, so ids behind one can shift: they are not relied upon.
def _charset_of(kinds: Iterable[int]) -> tuple[_Parser, _Parser]:
    """Return the parsers of a default charset with exceptions, and of a charset for each column."""

    def default(field: Reader, types: list[int], found: LoggedMetadata) -> None:
        columns = _of(types, kinds)
        found.charsets.update(dict.fromkeys(columns, field.lenenc()))
        while field.rest:
            column = columns[field.lenenc()]  # first: Python evaluates the right side of an assignment first
            found.charsets[column] = field.lenenc()

    def each(field: Reader, types: list[int], found: LoggedMetadata) -> None:
        found.charsets.update({i: field.lenenc() for i in _of(types, kinds) if field.rest})

    return default, each


def _names(field: Reader, types: list[int], found: LoggedMetadata) -> None:
    found.names = [field.text().decode() for _ in types]


def _members_of(kind: int) -> _Parser:
    def parse(field: Reader, types: list[int], found: LoggedMetadata) -> None:
        for i in _of(types, {kind}):
            found.members[i] = tuple(field.text() for _ in range(field.lenenc()))

    return parse


def _primary(field: Reader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary.add(field.lenenc())


def _primary_with_prefix(field: Reader, _types: list[int], found: LoggedMetadata) -> None:
    while field.rest:
        found.primary.add(field.lenenc())
        field.lenenc()


_Parser = Callable[[Reader, list[int], LoggedMetadata], None]
_PARSERS: dict[int, _Parser] = {
    1: _signedness,
    **dict(zip((2, 3), _charset_of(t.CHARACTER), strict=True)),
    4: _names,
    5: _members_of(t.SET),
    6: _members_of(t.ENUM),
    8: _primary,
    9: _primary_with_prefix,
    **dict(zip((10, 11), _charset_of({t.ENUM, t.SET}), strict=True)),
}
