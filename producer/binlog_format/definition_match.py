"""Checks whether a table definition is the one by which a row was logged. Pure.

The log never proves a definition (it has no unique indexes and no defaults), but it can refute one: by
the number and the nullability of columns always, by signs and character sets with
binlog_row_metadata=MINIMAL, and by names, labels and the primary key with FULL. A refuted definition is
never used for decoding: the values would be wrong without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from producer.binlog_format import types as t
from producer.binlog_format.charsets import encode_utf8_in_latin1, find_decoder
from producer.binlog_format.row_events import ColumnMap, LoggedMetadata, TableMap, TableMapForm
from schemas.table.model import Column, ColumnType, Kind, Table, UniqueIndex

_SIGNED = frozenset({Kind.INT, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_TEXT = frozenset(
    {Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER}
)
_BINARY = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB})
_LONG = frozenset({Kind.TEXT, Kind.BLOB})
_HASH = ColumnMap(type=t.LONGLONG, metadata=0, nullable=True)


def explain_mismatch(
    table: Table, logged: TableMap, charsets: Mapping[int, str], form: TableMapForm
) -> str | None:
    """Return what in the TABLE_MAP contradicts `table`; None: nothing does.

    `charsets`: collation id → character set, of the server; an unknown id is not compared. The forms of
    columns (integer sizes, lengths of fractions, …) are checked in producer/decoders/columns.py. Raises
    UndecodableRow for metadata that cannot be read.
    """
    found = logged.parse_metadata(form)
    shown = len(logged.columns) - _count_hidden_columns(table, logged, found, form)
    names = table.logged_names
    if len(names) != shown:
        return f"{shown} columns in the log, {len(names)} in the table definition"
    if found.names and found.names[:shown] != names:
        return f"columns {found.names} in the log, {names} in the table definition"
    for i, column in zip(table.places, table.columns, strict=True):
        for logs, defines in _list_differences(i, column, logged, found, charsets):
            return f"column {column.name} is {logs} in the log, {defines} in the table definition"
    return _explain_other_key(table, found)


def _count_hidden_columns(table: Table, logged: TableMap, found: LoggedMetadata, form: TableMapForm) -> int:
    """Return how many columns at the end were added by the server (MariaDB): a hash for each unique
    index over long texts.

    No catalog shows them. If the log has no names they are recognised by their form, and by an index
    that needs one.
    """
    first = len(table.places) + len(table.left_out)
    more = len(logged.columns) - first
    if not form.hidden_hashes or more <= 0:
        return 0
    if not all(
        logged.columns[i] == _HASH and found.unsigned.get(i, True) for i in range(first, first + more)
    ):
        return 0
    if found.names:
        named = all(name.startswith("DB_ROW_HASH_") for name in found.names[first:])
        return more if named else 0
    return more if more == sum(_is_long(table, index) for index in table.unique) else 0


def _is_long(table: Table, index: UniqueIndex) -> bool:
    return any(
        part.prefix is None and table.get_column(part.column).type.kind in _LONG for part in index.parts
    )


def _list_differences(
    i: int, column: Column, logged: TableMap, found: LoggedMetadata, charsets: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """Yield (in the log, in the definition) for each difference in a column."""
    type_ = column.type
    if logged.columns[i].nullable != column.nullable:
        yield _describe_nullability(logged.columns[i].nullable), _describe_nullability(column.nullable)
    unsigned = found.unsigned.get(i)
    if type_.kind in _SIGNED and unsigned is not None and unsigned != type_.unsigned:
        yield _describe_sign(unsigned), _describe_sign(type_.unsigned)
    charset = charsets.get(found.charsets.get(i, -1))
    defined = _find_logged_charset(type_)
    if (
        charset is not None
        and defined is not None
        and _normalize_charset_name(charset) != _normalize_charset_name(defined)
    ):
        yield f"of character set {charset}", defined
    labels = found.members.get(i)
    if labels is not None and _decode_labels(labels, type_.charset) != tuple(
        map(encode_utf8_in_latin1, type_.members)
    ):
        shown = ",".join(label.decode("utf-8", "replace") for label in labels)
        yield f"one of ({shown})", f"one of ({','.join(type_.members)})"


def _find_logged_charset(type_: ColumnType) -> str | None:
    """Return the character set that the log shows for a column; None: it shows none. Types with a text are
    BINARY(n) there.
    """
    if type_.kind in _BINARY or type_.text_of is not None:
        return "binary"
    return type_.charset if type_.kind in _TEXT else None


def _describe_nullability(nullable: bool) -> str:
    return "NULL" if nullable else "NOT NULL"


def _describe_sign(unsigned: bool) -> str:
    return "unsigned" if unsigned else "signed"


def _normalize_charset_name(charset: str) -> str:
    return "utf8mb3" if charset == "utf8" else charset


def _decode_labels(labels: tuple[bytes, ...], charset: str | None) -> tuple[str, ...] | None:
    """Return the labels as UTF-8 in latin-1; None: they are not text of `charset`."""
    decode = find_decoder(charset)
    try:
        return tuple(decode(label) if decode else label.decode("latin-1") for label in labels)
    except UnicodeDecodeError:
        return None


def _explain_other_key(table: Table, found: LoggedMetadata) -> str | None:
    """Return the difference of the keys, or None.

    Without a primary key the server chooses a unique index over NOT NULL columns to log in its place.
    """
    if not found.names:
        return None
    primary = table.key.name == "PRIMARY"
    possible = (
        [table.key.columns] if primary else [(), *(index.columns for index in (table.key, *table.unique))]
    )
    names = table.logged_names
    logged = tuple(names[i] for i in found.primary)
    if logged in possible:
        return None
    defined = ", ".join(table.key.columns) if primary else "missing"
    return f"the primary key is ({', '.join(logged)}) in the log, ({defined}) in the table definition"
