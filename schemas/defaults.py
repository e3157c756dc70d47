"""Column defaults in DDL for targets.

rowlock writes every column of every row, so a default matters only to other writers of a target. What cannot be
said there exactly is left out: expressions, defaults of TIMESTAMP (their text depends on a session's time zone), of
large and binary types, dates that PostgreSQL does not have.
"""

from __future__ import annotations

from schemas.errors import ValueRefusedError
from schemas.postgres_values import to_postgres_columns
from schemas.table import Column, Kind, Table, UniqueIndex
from schemas.typemap import quote_literal

_NOWHERE = frozenset({Kind.TIMESTAMP, Kind.JSON, Kind.GEOMETRY, Kind.BINARY, Kind.VARBINARY, Kind.BLOB})
#: MySQL allows no literal default there.
_NOT_ON_MYSQL = _NOWHERE | {Kind.TEXT}


def mysql_default(column: Column) -> str | None:
    """Return the SQL literal after DEFAULT for MySQL or MariaDB, or None for no DEFAULT clause."""
    if column.default is None or column.generated or column.type.kind in _NOT_ON_MYSQL:
        return None
    if column.type.kind is Kind.BIT:
        return f"b'{int(column.default):b}'"
    return quote_literal(column.default)


def postgres_default(column: Column) -> str | None:
    """Return the SQL literal after DEFAULT for PostgreSQL, or None for no DEFAULT clause."""
    if column.default is None or column.generated or column.type.kind in _NOWHERE:
        return None
    table = Table(db="", name="", columns=(column,), key=UniqueIndex(name="", parts=()))
    try:
        (text,) = to_postgres_columns(table, (column.name,))((column.default,))
    except ValueRefusedError:
        return None
    return "'" + str(text).replace("'", "''") + "'"
