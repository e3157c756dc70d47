"""Rows with values that the source itself cannot decode: such a row is quarantined with its key. Without
I/O.

The event contains the value raw and marked (schemas.wire.event.Undecodable). The target never gets it,
and comparisons of values see NULL in its place: a row with such a value is not in the target, so it
holds no unique value there.
"""

from __future__ import annotations

from collections.abc import Collection

from consumer.errors import CopyNeededError
from consumer.tables.definition import ActiveDefinition
from schemas.table.model import Row, Table
from schemas.wire.event import Undecodable

_REMEDY = (
    "correct the value at the source, then run `rowlock quarantine retry`, which applies the "
    "row as it is then; or discard the event with `rowlock quarantine skip`"
)


def clear_undecodable(row: Row, table: Table, columns: Collection[str]) -> Row:
    """Return `row` of `table` with NULL in `columns`; added columns after the table's own stay."""
    marked = set(columns)
    values = (None if c.name in marked else v for c, v in zip(table.columns, row, strict=False))
    return (*values, *row[len(table.columns) :])


def explain_undecodable(table: Table, columns: Collection[str]) -> str:
    """Return why a row with undecodable values in `columns` is quarantined."""
    name = next(iter(columns))
    type_ = table.get_column(name).type
    return f"column {name}: its bytes at the source are not valid {type_.charset or type_.kind}: {_REMEDY}"


def check_key(active: ActiveDefinition, marked: Undecodable, place: str) -> None:
    """Raise CopyNeededError if a value of the key is undecodable: the row could not be identified."""
    key = set(active.target.table.key.columns)
    if odd := sorted(key.intersection((*marked.before, *marked.after))):
        raise CopyNeededError(
            f"{place}: the value of key column {odd[0]} cannot be decoded at the source, so "
            "the row cannot be identified",
            cause="key", first="correct the value at the source",
        )  # fmt: skip
