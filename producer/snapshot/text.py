"""Text of snapshot rows, read as the bytes that the source stores and decoded like those of the log.

By default the server converts text to the connection's charset, and replaces what it cannot convert
(user-defined characters of gbk and similar ones) by question marks. The snapshot and the log would then
differ without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from producer.binlog_format.charsets import find_code_check, find_decoder
from producer.errors import TableStoppedError
from schemas.findings import format_copy_remedy
from schemas.table.keys import list_indexed_columns
from schemas.table.model import Column, Kind, Row, Table, TextOf
from schemas.table.text_types import format_vector
from schemas.values.converter import Convert, to_base64
from schemas.values.mysql import (
    encode_wire_geometry,
    is_geometry,
    make_select_row_converter,
    quote_name,
    select_list,
)

_TEXT = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.TEXT})


def _is_stored_as_text(column: Column) -> bool:
    return column.type.kind in _TEXT and column.type.text_of is None


def build_select_expressions(table: Table) -> list[str]:
    """Return the SQL expression of every column, in order."""
    plain = select_list(table)
    return [
        f"CAST({quote_name(column.name)} AS BINARY)" if _is_stored_as_text(column) else expression
        for column, expression in zip(table.columns, plain, strict=True)
    ]


def make_snapshot_row_decoder(table: Table) -> Callable[[tuple[Any, ...]], Row]:
    """Return a function that converts a row of `build_select_expressions` to wire values.

    Text that cannot be decoded, and bytes that are no geometry, are raw and marked.

    The function raises TableStoppedError for a key that cannot be decoded.
    """
    indexed = list_indexed_columns(table)
    convert = make_select_row_converter(
        table, lambda column: _make_value_decoder(column, single_codes=column.name in indexed)
    )
    keys = [i for i in table.find_ordinals(table.key.columns) if _is_stored_as_text(table.columns[i])]
    if not keys:
        return convert

    def decode_row(row: tuple[Any, ...]) -> Row:
        found = convert(row)
        for i in keys:
            if isinstance(found[i], dict):
                raise _build_undecodable_key_stop(table, table.columns[i])
        return found

    return decode_row


def _make_value_decoder(column: Column, *, single_codes: bool) -> Convert | None:
    """Return the decoder of a column with values that may be raw and marked; None for any other.

    `single_codes`: codes of characters that have another code cannot be decoded (find_code_check).
    """
    if column.type.kind is Kind.GEOMETRY:
        return _decode_geometry
    if column.type.text_of is TextOf.VECTOR:
        return _decode_vector
    if not _is_stored_as_text(column):
        return None
    decode = find_decoder(column.type.charset)
    check = find_code_check(column.type.charset) if single_codes else None

    def decode_text(data: bytes) -> object:
        try:
            if check is not None:
                check(data)
            return data.decode() if decode is None else decode(data).encode("latin-1").decode()
        except UnicodeError:
            return _mark_undecodable(data)

    return decode_text


def _decode_geometry(data: bytes) -> object:
    return encode_wire_geometry(data) if is_geometry(data) else _mark_undecodable(data)


def _decode_vector(data: bytes) -> object:
    try:
        return format_vector(data)
    except ValueError:
        return _mark_undecodable(data)


def _mark_undecodable(data: bytes) -> dict[str, str]:
    return {"undecodable": to_base64(data)}


def _build_undecodable_key_stop(table: Table, column: Column) -> TableStoppedError:
    return TableStoppedError(
        frozenset([(table.db, table.name)]), "value",
        f"key column {column.name} of a row of {table.db}.{table.name} has bytes that are not "
        f"valid {column.type.charset} text, or a code of a character that has another code in it",
        f"correct the row at the source, and {format_copy_remedy(table.db, table.name)}",
    )  # fmt: skip
