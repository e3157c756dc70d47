"""The mark, in `displaced_by`, of rows of `rowlock_displaced` that a copy of their table has superseded.
Pure.

It needs neither a new column nor the right to alter a table that an earlier version created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

SUPERSEDED_KEY = "superseded"
MARKED = f'%"{SUPERSEDED_KEY}"%'
"""The pattern for `displaced_by LIKE …` that finds marked rows."""
ROWS_A_STATEMENT = 500


class DisplacedRow(msgspec.Struct, frozen=True):
    """A displaced row without its values. `by`: JSON of the events that displaced it."""

    id: int
    table: str
    by: str


def parse_displaced_row(row: Sequence[object]) -> DisplacedRow:
    """Return the row of (id, table, displaced_by)."""
    id_, table, by = row
    return DisplacedRow(int(str(id_)), str(table), str(by))


def yield_superseded_marks(
    rows: Iterable[DisplacedRow], table: str, before: int, why: str
) -> Iterator[tuple[str, list[int]]]:
    """Yield (`displaced_by` with its mark, ids) for the rows of `table` that events below the offset
    `before` displaced.

    A row without information about its event stays as it is, because the copy may not have contained
    its values.
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
