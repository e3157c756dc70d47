"""The numbers that a server gives new rows by itself: where they have to begin in a target table."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from hashlib import blake2s

from consumer.errors import TargetConfigError
from consumer.targets.dialect_components import Link
from consumer.targets.sql import Quote, qualify_table
from schemas.table.model import ColumnType, Kind, Table

_GREATEST_OF_SEQUENCE = 2**63 - 1


def choose_first_number(link: Link, quote: Quote, table: Table, column: str, next_number: int) -> int:
    """Return `next_number`, or a greater one if the table has a row with it or a greater one.

    Raises TargetConfigError if the column, or a sequence for it, has no such number.
    """
    name = qualify_table(quote, table.db, table.name)
    [(largest,)] = link.execute(f"SELECT MAX({quote(column)}) FROM {name}", [])
    above = 1 if largest is None else int(Decimal(str(largest)).to_integral_value(ROUND_FLOOR)) + 1
    first = max(1, next_number, above)
    if first > (greatest := _find_greatest_number(table.get_column(column).type)):
        raise TargetConfigError(
            f"the next number {first} is above {greatest}, the greatest that the column can get",
            "give the column a wider type in the target, or let the application number the rows",
        )
    return first


def _find_greatest_number(type_: ColumnType) -> int:
    """Return the greatest number that a server gives by itself in a column of this type."""
    if type_.kind is not Kind.INT:
        return _GREATEST_OF_SEQUENCE
    return (1 << (type_.bits if type_.unsigned else type_.bits - 1)) - 1


def choose_sequence_name(table: Table, column: str) -> str:
    """Return the name of a new sequence: the same one for each call, and short enough for every server."""
    digest = blake2s(f"{table.name}.{column}".encode(), digest_size=6).hexdigest()
    return f"rowlock_numbers_{digest}"
