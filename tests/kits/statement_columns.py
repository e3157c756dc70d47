"""A table and the types of its columns, for statements that change them."""

from __future__ import annotations

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

KEY = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))


TYPES = {
    "int": ColumnType(kind=Kind.INT, bits=32),
    "big": ColumnType(kind=Kind.INT, bits=64),
    "text": ColumnType(kind=Kind.VARCHAR, length=10, charset="latin1", collation="latin1_swedish_ci"),
    "wide": ColumnType(kind=Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin"),
    "float": ColumnType(kind=Kind.FLOAT),
    "at": ColumnType(kind=Kind.TIMESTAMP),
}


def table(*columns: str | Column) -> Table:
    """Columns are written "name" (an INT) or "name type"."""
    made = tuple(each if isinstance(each, Column) else _column(*each.split()) for each in columns)
    return Table(db="db", name="t", columns=made, key=KEY)


def _column(name: str, type_: str = "int") -> Column:
    return Column(name=name, type=TYPES[type_])


T = table("id", "a", "b")
