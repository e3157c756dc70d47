"""The choice of a table's key, and the keys that are refused because servers do not compare their values
exactly. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import NoKeyError, UnsupportedTypeError
from schemas.table.model import NUMBERED, Column, Kind, Table, TextOf, UniqueIndex

_COMPARED_EXACTLY = 53
"""Labels of a SET with numbers that the servers compare exactly in a statement.

With more labels the number becomes a double or negative.
"""


def list_indexed_columns(table: Table) -> frozenset[str]:
    """Return the columns of the key and of the unique indexes."""
    return frozenset(table.key.columns).union(*(index.columns for index in table.unique))


def require_comparable_keys(table: Table) -> None:
    """Raise UnsupportedTypeError for a column of a key or unique index with values that could not be found
    again: a SET by its numbers, or labels by their text.
    """
    for name in list_indexed_columns(table):
        type_ = table.get_column(name).type
        if type_.text_of is TextOf.VECTOR:
            raise UnsupportedTypeError(
                f"column {name} of {table.db}.{table.name} belongs to a key or unique index and is a VECTOR: "
                "other servers hold two vectors equal that this one distinguishes (0 and -0)",
                "drop the index, or exclude the table",
            )
        if type_.kind in NUMBERED and len(set(type_.members)) < len(type_.members):
            raise UnsupportedTypeError(
                f"column {name} of {table.db}.{table.name} belongs to a key or unique index, and two of its "
                f"labels have one text ({', '.join(type_.members)})",
                "rename one of the labels, or exclude the table",
            )
        if type_.kind is Kind.SET_NUMBER and len(type_.members) > _COMPARED_EXACTLY:
            raise UnsupportedTypeError(
                f"column {name} of {table.db}.{table.name} belongs to a key or unique index and is a SET "
                f"with an empty label and {len(type_.members)} labels: its numbers can be compared exactly "
                f"for up to {_COMPARED_EXACTLY}",
                "rename the empty label, or exclude the table",
            )


def choose_key(columns: Sequence[Column], indexes: Sequence[UniqueIndex], name: str) -> UniqueIndex:
    """Return the primary key, else the first unique index over NOT NULL columns (by column names, then name).

    Raises NoKeyError.
    """
    nullable = {column.name for column in columns if column.nullable}
    for index in indexes:
        if index.name == "PRIMARY":
            return index
    fit = [index for index in indexes if nullable.isdisjoint(index.columns)]
    if not fit:
        raise NoKeyError(
            f"table {name} has neither a primary key nor a unique index over NOT NULL columns, so its "
            "rows cannot be distinguished",
            "add a primary key, or exclude the table",
        )
    return min(fit, key=lambda index: (index.columns, index.name))
