"""The numbers that a server gives new rows by itself: where they have to begin in a target table."""

from __future__ import annotations

from hashlib import blake2s

from consumer.targets.dialect_components import Link
from consumer.targets.sql import Quote, qualify_table
from schemas.table.model import Table


def choose_first_number(link: Link, quote: Quote, table: Table, column: str, next_number: int) -> int:
    """Return `next_number`, or a greater one if the table has a row with it or a greater one."""
    name = qualify_table(quote, table.db, table.name)
    [(largest,)] = link.execute(f"SELECT MAX({quote(column)}) FROM {name}", [])
    return max(1, next_number, 0 if largest is None else int(str(largest)) + 1)


def choose_sequence_name(table: Table, column: str) -> str:
    """Return the name of a new sequence: the same one for each call, and short enough for every server."""
    digest = blake2s(f"{table.name}.{column}".encode(), digest_size=6).hexdigest()
    return f"rowlock_numbers_{digest}"
