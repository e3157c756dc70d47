"""Rows that a server returns packed: as one JSON text in one row, next to their number.

PyMySQL takes 1.5 µs and more for each row, the decoder of JSON a tenth of that. Only keys are read so, and
only of types whose values a server writes in JSON as its driver returns them, and orders as Python does:
integers as numbers, dates and times as text. `schemas.values.mysql.pack_rows` makes the expressions. psycopg
reads rows as fast as packed ones.

A server cuts a text that becomes too long, and skips a row with NULL, without an error. So what is not
certainly all rows in key order (`decode_packed_rows`) must be read row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from itertools import islice
from operator import lt
from typing import Any, NamedTuple

import msgspec

from schemas.table.model import Kind, Row, Table

_NUMBERS = frozenset({Kind.INT, Kind.YEAR})
_TIMES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})


class PackedSelect(NamedTuple):
    """The expressions of a SELECT of packed rows."""

    columns: str
    """Those of the rows, in the inner SELECT."""
    values: str
    """The JSON of all rows, without the outer brackets."""

    def render(self, page: str) -> str:
        """Return the SELECT of the number of rows and their JSON. `page`: the inner SELECT.

        In both, "%" is doubled and a parameter is "%s".
        """
        return f"SELECT COUNT(*), {self.values.replace('%', '%%')} FROM ({page}) AS page"


def can_pack(table: Table, added: Collection[str] = ()) -> bool:
    """Return whether the rows of a table can be packed: they are keys, of packable types.

    `added`: columns that may also be texts, because most pages have one value in them. Servers do not order
    other texts as Python does.
    """
    return table.column_names == table.key.columns and all(
        column.type.kind in _NUMBERS | _TIMES or (column.type.kind is Kind.VARCHAR and column.name in added)
        for column in table.columns
    )


def list_json_parts(table: Table, values: Sequence[str]) -> list[str]:
    """Return the SQL expressions whose texts, one after the other, are a row's JSON.

    `values`: the expression of each column's value, that of a VARCHAR as JSON. Times have no character that
    JSON escapes.
    """
    parts, before = [], "["
    for column, value in zip(table.columns, values, strict=True):
        mark = '"' if column.type.kind in _TIMES else ""
        parts += [f"'{before}{mark}'", value]
        before = f"{mark},"
    return [*parts, f"'{before[:-1]}]'"]


def decode_packed_rows(table: Table, packed: Sequence[object]) -> list[Row] | None:
    """Return the rows of the one row that PackedSelect's SELECT returned, as the server's driver would return
    them; None if they are not complete for certain.

    Each row has brackets of its own, so that a row that was cut is no JSON.
    """
    count, text = packed  # NULL is the text of no rows
    decode = _make_decoder(tuple(int if c.type.kind in _NUMBERS else str for c in table.columns)).decode
    try:
        rows = decode(f"[{text or ''}]")
    except msgspec.MsgspecError:
        return None
    is_ascending = all(map(lt, rows, islice(rows, 1, None)))
    return rows if len(rows) == count and is_ascending else None


@functools.cache
def _make_decoder(types: tuple[type, ...]) -> msgspec.json.Decoder[list[Row]]:
    row: Any = tuple[types]  # type: ignore[valid-type]
    return msgspec.json.Decoder(list[row], strict=True)
