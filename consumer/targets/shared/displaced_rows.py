"""Rows of `rowlock_displaced` that a copy of their table has made meaningless: the mark, which stands in `displaced_by`. Pure.

It needs neither a column nor a right to alter a table that an earlier version has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

SUPERSEDED_KEY = "superseded"
MARKED = f'%"{SUPERSEDED_KEY}"%'
"""`displaced_by LIKE` this: the row is marked."""
ROWS_A_STATEMENT = 500


class DisplacedRow(msgspec.Struct, frozen=True):
    """A row that had to make room, without its values. `by`: JSON of what displaced it."""

    id: int
    table: str
    by: str


def parse_displaced_row(row: Sequence[object]) -> DisplacedRow:
    """Build one from (id, table, displaced_by)."""
    id_, table, by = row
    return DisplacedRow(int(str(id_)), str(table), str(by))


def yield_superseded_marks(
    rows: Iterable[DisplacedRow], table: str, before: int, why: str
) -> Iterator[tuple[str, list[int]]]:
    """Yield (`displaced_by` with its mark, ids) of those rows of `table` which events below the offset `before` displaced.

    A row that says nothing of its event is left as it is: nobody knows whether the copy brought what it had.
    """
    ids: dict[str, list[int]] = {}
    for row in rows:
        last = _parse_displacer(row.by).get("to")
        if row.table == table and last and last[0] < before:
            ids.setdefault(row.by, []).append(row.id)
    for by, of in ids.items():
        text = msgspec.json.encode({**_parse_displacer(by), SUPERSEDED_KEY: why}).decode()
        for at in range(0, len(of), ROWS_A_STATEMENT):
            yield text, of[at : at + ROWS_A_STATEMENT]


def _parse_displacer(by: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(by)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
